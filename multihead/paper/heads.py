"""What each attention head does on a test set, how much is lost without it, and sentences that show it.

Importance is measured by removing one head at a time: by how much the log-probability of the references falls, and the
BLEU of the model's own translations.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from multihead.config.schema import SearchConfig
from multihead.console import Log, Progress, Table
from multihead.data.bucketing import length_buckets
from multihead.errors import UsageError, UserError
from multihead.evaluation.metrics import bleu
from multihead.inspection.ablation import heads_of, without_heads
from multihead.inspection.attention_maps import AttentionMaps
from multihead.inspection.head_examples import HeadExample, ReadSentence, find_examples, word_attention
from multihead.inspection.head_roles import Head, HeadRole, head_roles
from multihead.inspection.record import record_attention
from multihead.model.transformer import Transformer
from multihead.text.constituency_trees import Tree, read_trees
from multihead.text.dependency_trees import NO_HEAD, parse_heads, strip_tree
from multihead.text.file_formats import check_is_text
from multihead.text.head_rules import dependency_heads
from multihead.text.lines import TextInput, file_size
from multihead.text.pieces import owners
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID
from multihead.text.treebank_words import split_words
from multihead.translation.engine import Segment
from multihead.translation.engines.torch_engine import TorchEngine, pad, torch_threads
from multihead.translation.translator import Translator

BATCH_TOKENS = 2048
QUOTES = {"``": '"', "''": '"'}  # as treebanks write them
_NO_WORD = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLine:
    """A line of a test set; for examples the reference may be missing."""

    number: int  # in the file, from 1
    source: str
    reference: str = ""
    tree: Tree | None = None


def read_test_set(
    source: Path, reference: Path | None = None, trees: Path | None = None, sample: int | None = None
) -> list[SampleLine]:
    """Return `sample` lines from all parts of a test set, or all of them; lines without text are left out.

    `trees` has the constituency tree of each source, one a line in Penn Treebank brackets.
    """
    files = {"--source": source, "--reference": reference, "--trees": trees}
    columns: dict[str, list[str]] = {}
    for option, path in files.items():
        if path:
            if file_size(path):
                check_is_text(path, option)
            columns[option] = list(TextInput.open(path))
    n_lines = len(columns["--source"])
    for option, found in columns.items():
        if len(found) != n_lines:
            raise UserError(
                f"--source has {n_lines:,} lines and {option} has {len(found):,}; line n of one belongs to line n of "
                "the other"
            )
    n_taken = min(n_lines, sample or n_lines)
    numbers = [index * n_lines // n_taken for index in range(n_taken)]
    empty = [""] * n_lines
    parsed = list(read_trees(columns["--trees"], name=f"{trees}, line")) if trees else [None] * n_lines
    lines = [
        SampleLine(
            number=index + 1,
            source=columns["--source"][index],
            reference=columns.get("--reference", empty)[index],
            tree=parsed[index],
        )
        for index in numbers
    ]
    kept = [line for line in lines if line.source.strip() and (not reference or line.reference.strip())]
    if not kept:
        raise UserError(f"{source} has no text to inspect")
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMeasure:
    """A head: its role, and how much log-probability (nats for each reference token) and BLEU are lost without it."""

    role: HeadRole
    log_prob_drop: float
    bleu_drop: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """A model without some of its heads, on the same test set."""

    removed: list[Head]
    log_prob: float
    bleu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadReport:
    """The heads of a model on a test set; `multihead inspect --heads` prints it."""

    model: str
    sentences: int
    log_prob: float  # of a reference token, with all heads
    bleu: float | None
    heads: list[HeadMeasure]
    pruned: Pruned | None = None

    def as_json(self) -> dict[str, Any]:
        heads = [
            {
                **asdict(one.role),
                "role": one.role.role,
                "log_prob_drop": one.log_prob_drop,
                "bleu_drop": one.bleu_drop,
            }
            for one in self.heads
        ]
        names = ("model", "sentences", "log_prob", "bleu")
        pruned = {"pruned": asdict(self.pruned)} if self.pruned else {}
        return {**{name: getattr(self, name) for name in names}, "heads": heads, **pruned}

    def describe_pruned(self, test_set: str) -> str:
        """Return what was removed from the model, and what that cost."""
        assert self.pruned
        bleu = f", BLEU from {self.bleu:.2f} to {self.pruned.bleu:.2f}" if self.bleu is not None else ""
        return (
            f"{self.model} without {len(self.pruned.removed)} of its {len(self.heads)} heads, whose weights are zero: "
            f"{', '.join(map(str, self.pruned.removed))}. On {self.sentences:,} sentences of {test_set}, by which they "
            f"were chosen, the log-probability of a token goes from {self.log_prob:.4f} to {self.pruned.log_prob:.4f}"
            f"{bleu}."
        )

    def to_table(self) -> Table:
        """Return a row for each head; a share is left out where the side has no such role."""
        names = list(dict.fromkeys(name for one in self.heads for name in one.role.shares))
        rows = [
            [
                str(one.role.place),
                one.role.role,
                f"{one.role.peak:.2f}",
                *(f"{one.role.shares[name]:.2f}" if name in one.role.shares else "" for name in names),
                f"{one.log_prob_drop:+.4f}",
                *([f"{one.bleu_drop:+.2f}"] if one.bleu_drop is not None else []),
            ]
            for one in self.heads
        ]
        with_bleu = self.bleu is not None
        return Table(
            title=f"{self.model}: {len(self.heads)} heads on {self.sentences:,} sentences",
            header=["head", "role", "peak", *names, "nats lost", *(["BLEU lost"] if with_bleu else [])],
            rows=rows,
            notes=[
                f"With all heads: {self.log_prob:.4f} nats for each token of the references"
                + (f", BLEU {self.bleu:.2f}." if with_bleu else "."),
                "head: layer and number. peak: mean of the largest weight. Then the share of its weight in each role.",
                "nats and BLEU lost: by removing this head alone. Small and negative numbers may be chance.",
            ],
        )


# Roles and importance


def measure_heads(
    translator: Translator, lines: Sequence[SampleLine], search: SearchConfig, log: Log, *, with_bleu: bool = True
) -> HeadReport:
    """Return the role and the importance of every head of a model."""
    model = _model_of(translator)
    pairs = _encode(translator, lines)
    with torch_threads(1):  # many small passes, which more threads only slow down
        roles = {one.place: one for one in head_roles(*_maps_and_syntax(translator, lines, pairs))}
    measured = [head for head in heads_of(model) if head in roles]
    log_prob = mean_log_prob(model, pairs)
    score = _scorer(translator, lines, search) if with_bleu else None
    whole = score() if score else None
    heads = []
    with Progress(log, f"removing each of {len(measured)} heads") as progress:
        for head in measured:
            with without_heads(model, [head]):
                log_prob_drop = log_prob - mean_log_prob(model, pairs)
                bleu_drop = whole - score() if score and whole is not None else None
            heads.append(HeadMeasure(role=roles[head], log_prob_drop=log_prob_drop, bleu_drop=bleu_drop))
            progress.done += len(lines)
    return HeadReport(model=translator.name, sentences=len(lines), log_prob=log_prob, bleu=whole, heads=heads)


def check_number(translator: Translator, n: int) -> None:
    """Refuse to remove all heads of a model, or more."""
    n_heads = len(heads_of(_model_of(translator)))
    if n >= n_heads:
        raise UsageError(f"--prune {n}: {translator.name} has {n_heads} heads, and at least one has to remain")


def prune(  # noqa: PLR0913 - a model, a test set, and what to do with both
    translator: Translator, lines: Sequence[SampleLine], search: SearchConfig, report: HeadReport, n: int, log: Log
) -> HeadReport:
    """Return the report with the `n` heads to remove, and the effect of removing them together.

    Heads stand in for each other. So they are removed one after the other: each time the head without which the
    references lose the least, given those that are gone.
    """
    model, pairs = _model_of(translator), _encode(translator, lines)
    removed: list[Head] = []
    with Progress(log, f"choosing {n} heads to remove") as progress:
        while len(removed) < n:
            left = {}
            for head in set(heads_of(model)) - set(removed):
                with without_heads(model, [*removed, head]):
                    left[head] = mean_log_prob(model, pairs)
                progress.done += len(pairs)
            removed.append(max(sorted(left), key=lambda head: left[head]))
    with without_heads(model, removed):
        pruned = Pruned(removed=removed, log_prob=left[removed[-1]], bleu=_scorer(translator, lines, search)())
    return replace(report, pruned=pruned)


def _model_of(translator: Translator) -> Transformer:
    """Return the torch model, which must have heads."""
    if translator.parser:
        raise UserError(f"{translator.name} is a parser: heads are measured by translations")
    model = translator.models[0]
    if not heads_of(model):
        raise UserError(f"{translator.name} has no attention heads: {', '.join(model.config.variants)}")
    return model


def _encode(translator: Translator, lines: Sequence[SampleLine]) -> list[tuple[Segment, list[int]]]:
    longest = translator.config.model.max_len - 1
    return [
        (
            translator.segmenter.encode_sentence(line.source),
            translator.tokenizer.encode_target(line.reference)[:longest],
        )
        for line in lines
    ]


@torch.inference_mode()
def mean_log_prob(model: Transformer, pairs: Sequence[tuple[Segment, list[int]]]) -> float:
    """Return the mean log-probability of the target tokens and end symbols, each given the true tokens before it."""
    device = next(model.parameters()).device
    lengths = np.array([[len(source.ids), len(target)] for source, target in pairs], dtype=np.int32) + 1
    total, n_tokens = 0.0, 0
    for batch in length_buckets(lengths, max(BATCH_TOKENS, int(lengths.max()))):
        chosen = [pairs[place] for place in batch.tolist()]
        ids, heads = pad([source for source, _ in chosen])
        width = 1 + max(len(target) for _, target in chosen)
        written = [[*target, EOS_ID] + [PAD_ID] * (width - 1 - len(target)) for _, target in chosen]
        read = [[BOS_ID, *row[:-1]] for row in written]
        source, target_in, target_out = (torch.tensor(rows, device=device) for rows in (ids, read, written))
        logits = model(source, target_in, None if heads is None else torch.tensor(heads, device=device))
        chances = logits.float().log_softmax(dim=-1).gather(2, target_out.unsqueeze(2)).squeeze(2)
        is_real = target_out != PAD_ID
        total += float(chances[is_real].double().sum())
        n_tokens += int(is_real.sum())
    return total / n_tokens


def _scorer(translator: Translator, lines: Sequence[SampleLine], search: SearchConfig) -> Callable[[], float]:
    """Return a function that translates the sources with the torch model as it is then, and returns BLEU."""
    shortlist = translator.folder.shortlist() if translator.folder else None
    target_lang = translator.config.data.target_lang

    def score() -> float:
        # A new engine each time: it keeps a copy of the weights for near ties.
        chosen = translator.with_engine(TorchEngine(translator.models, shortlist))
        translations = [one.text for one in chosen.stream([line.source for line in lines], search)]
        return bleu(translations, [line.reference for line in lines], target_lang)

    return score


# Attention between words


def _maps_and_syntax(
    translator: Translator, lines: Sequence[SampleLine], pairs: Sequence[tuple[Segment, list[int]]]
) -> tuple[Iterator[AttentionMaps], list[list[list[int]]] | None]:
    """Return the attention maps of all lines, and for each source token the positions of what it depends on."""
    layer = translator.folder.alignment_layer if translator.folder else None
    model, tokenizer = translator.models[0], translator.tokenizer
    maps = (record_attention(model, tokenizer, source.ids, target, source.heads, layer) for source, target in pairs)
    if translator.config.data.tree:
        return maps, [[[] if head == NO_HEAD else [head] for head in source.heads or []] for source, _ in pairs]
    if not any(line.tree for line in lines):
        return maps, None
    return maps, [_governors(translator, line, source) for line, (source, _) in zip(lines, pairs, strict=True)]


def _governors(translator: Translator, line: SampleLine, source: Segment) -> list[list[int]]:
    """Return for each source token the positions of the word that its word depends on."""
    assert line.tree
    belongs = _owners(translator, line, source, line.tree.words)
    heads = dependency_heads(line.tree)
    positions: list[list[int]] = [[] for _ in line.tree.words]
    for position, word in enumerate(belongs):
        if word != _NO_WORD:
            positions[word].append(position)
    return [positions[heads[word] - 1] if word != _NO_WORD and heads[word] else [] for word in belongs]


def _owners(translator: Translator, line: SampleLine, source: Segment, words: Sequence[str]) -> list[int]:
    """Return the word that each source token is a piece of; a piece before the text, as of a language, has none."""
    n_prefix = len(translator.segmenter.prefix)
    pieces = translator.tokenizer.readable(source.ids[n_prefix:])
    found = owners(pieces, [QUOTES.get(word, word) for word in words])
    if found is None:
        raise UserError(f"line {line.number}: the words of the tree are not those of the source, '{line.source[:60]}'")
    return [_NO_WORD] * n_prefix + found


# Examples


def examples_in(translator: Translator, lines: Sequence[SampleLine], most: int) -> list[HeadExample]:
    """Return sentences that show heads as the paper's Figures 3 to 5 do."""
    _model_of(translator)
    if translator.config.model.encoder_mixer != "attention":
        raise UserError(f"{translator.name} has no attention in its encoder, which the examples show")
    language = translator.config.data.source_lang
    with torch_threads(1):
        return find_examples(_read_sentences(translator, lines), language, most)


def _read_sentences(translator: Translator, lines: Sequence[SampleLine]) -> Iterator[ReadSentence]:
    for line in lines:
        source = translator.segmenter.encode_sentence(line.source)
        words, tags, heads = _words(translator, line)
        belongs = _owners(translator, line, source, words)
        maps = record_attention(translator.models[0], translator.tokenizer, source.ids, [], source.heads)
        yield ReadSentence(
            number=line.number,
            words=words,
            weights=word_attention(maps.encoder, belongs, len(words)),
            tags=tags,
            heads=heads,
        )


def _words(translator: Translator, line: SampleLine) -> tuple[Sequence[str], Sequence[str], Sequence[int]]:
    """Return the words of a line, and their parts of speech and heads as far as they are known."""
    if translator.config.data.tree:
        return strip_tree(line.source).split(), (), parse_heads(line.source)
    if line.tree:
        return line.tree.words, line.tree.tags, dependency_heads(line.tree)
    return split_words(translator.segmenter.clean(line.source)), (), ()
