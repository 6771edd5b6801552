"""BLEU by the length of the source: whether a model loses what a long sentence says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multihead.evaluation.metrics import Lines, bleu
from multihead.figures import PALETTE, add_legend, new_figure, save_figure, style_axes

N_GROUPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthGroup:
    """The sentences of a range of lengths, and the BLEU of one or two systems on them."""

    shortest: int  # in words of the source, or in characters for text without spaces
    longest: int
    sentences: int
    bleu: float
    other_bleu: float | None = None

    @property
    def lengths(self) -> str:
        return f"{self.shortest}" if self.shortest == self.longest else f"{self.shortest}-{self.longest}"


def bleu_by_length(  # noqa: PLR0913 - a test set, the output of one or two systems, and how to group them
    sources: Lines,
    hypotheses: Lines,
    references: Lines,
    target_lang: str = "",
    others: Lines | None = None,
    n_groups: int = N_GROUPS,
) -> list[LengthGroup]:
    """Return BLEU in groups of similar length, short to long, each with about the same number of sentences."""
    lengths = source_lengths(sources)

    def score(lines: Lines, group: Sequence[int]) -> float:
        return bleu([lines[n] for n in group], [references[n] for n in group], target_lang)

    return [
        LengthGroup(
            shortest=lengths[group[0]],
            longest=lengths[group[-1]],
            sentences=len(group),
            bleu=score(hypotheses, group),
            other_bleu=None if others is None else score(others, group),
        )
        for group in groups_of_length(lengths, n_groups)
    ]


def source_lengths(sources: Lines) -> list[int]:
    """Return lengths in words, or in characters where most lines are one word."""
    words = [len(line.split()) for line in sources]
    return words if 2 * sum(n > 1 for n in words) >= len(words) else [len(line) for line in sources]


def groups_of_length(lengths: Sequence[int], n_groups: int) -> list[list[int]]:
    """Return the indices of sentences from short to long in at most `n_groups` groups that share no length."""
    order = sorted(range(len(lengths)), key=lambda n: lengths[n])
    groups: list[list[int]] = []
    for rank, n in enumerate(order):
        is_full = rank * n_groups >= len(groups) * len(order)
        if not groups or (is_full and lengths[n] != lengths[order[rank - 1]]):
            groups.append([])
        groups[-1].append(n)
    return groups


def write_picture(groups: Sequence[LengthGroup], path: Path, names: Sequence[str]) -> None:
    """Write a PNG of BLEU over length, with a curve for each system."""
    figure = new_figure(7, 4)
    axes = figure.subplots()
    places = range(len(groups))
    curves = [[group.bleu for group in groups], [group.other_bleu or 0.0 for group in groups]]
    for name, curve, color in zip(names, curves, PALETTE, strict=False):
        axes.plot(places, curve, color=color, marker="o", markersize=4, label=name)
    axes.set_xticks(places, [f"{group.lengths}\n({group.sentences:,})" for group in groups])
    axes.set_ylim(bottom=0)
    style_axes(axes, title="BLEU by the length of the source", xlabel="length (sentences)", ylabel="BLEU")
    add_legend(axes)
    save_figure(figure, path)
