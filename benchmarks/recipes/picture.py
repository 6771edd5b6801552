"""BLEU over minutes: every run's validation on the way, and the model that it published.

python -m benchmarks.recipes.picture docs/quality.png "5 minutes=RUN" "10 minutes=RUN" ...
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from multihead.journal import read_log

COLOURS = ["#2563eb", "#059669", "#d97706", "#dc2626", "#7c3aed", "#6b7280"]

TICKS = [1, 2, 5, 10, 20, 50, 100, 200]  # minutes


def main(output: Path, runs: list[str]) -> None:
    """Draw the runs, each given as LABEL=FOLDER."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for run, colour in zip(runs, COLOURS, strict=False):
        label, _, folder = run.partition("=")
        records = [record for record in read_log(Path(folder)) if record.get("valid_bleu") is not None]
        on_the_way = [(record["minutes"], record["valid_bleu"]) for record in records if "published" not in record]
        published = [(record["minutes"], record["valid_bleu"]) for record in records if "published" in record]
        axes.plot(*zip(*(on_the_way + published), strict=True), color=colour, linewidth=1.8, marker=".")
        for minutes, bleu in published:
            axes.plot(minutes, bleu, "o", color=colour)
            axes.annotate(
                f"{label}: {bleu:.1f}",
                (minutes, bleu),
                xytext=(0, 17),
                textcoords="offset points",
                color=colour,
                ha="right",
            )
    axes.set_xscale("log")
    axes.margins(y=0.1)
    longest = axes.get_xlim()[1]
    axes.set_xticks(ticks := [tick for tick in TICKS if tick < longest], [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("minutes since the command was given, raw text and all")
    axes.set_title(
        "Multi30k en-de, BLEU on val: of 200 sentences, greedy, on the way; of all, beam 4, once published", loc="left"
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
