"""Draw BLEU over minutes: the validations of every run, and its published model.

python -m benchmarks.recipes.picture docs/quality.png "5 minutes=RUN" "3 hours=FIRST+ONE-THAT-STARTED-FROM-IT" ...
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from multihead.runs.log import read_log
from multihead.storage.model_folder import read_config

COLORS = ["#2563eb", "#059669", "#d97706", "#dc2626", "#7c3aed", "#6b7280"]

TICKS = [1, 2, 5, 10, 20, 50, 100, 200]  # minutes


def validations(runs: list[Path]) -> list[tuple[float, float]]:
    """Return minutes and BLEU of runs that continue each other; the last point is the published model."""
    points: list[tuple[float, float]] = []
    for run in runs:
        begun = points[-1][0] if points else 0.0
        scores = [(record.get("published_bleu", record.get("valid_bleu")), record) for record in read_log(run)]
        points += [(begun + record["minutes"], score) for score, record in scores if score is not None]
    return points


def pair(run: str) -> str:
    """Return the language pair of a run, such as en-de; `run` is an argument of `main`."""
    data = read_config(Path(run.partition("=")[2].split("+")[0])).data
    return f"{data.source_lang}-{data.target_lang}"


def main(output: Path, runs: list[str]) -> None:
    """Draw the runs, each given as LABEL=FOLDER, or as LABEL=FOLDER+FOLDER if the second continues the first."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for run, color in zip(runs, COLORS, strict=False):
        label, _, folders = run.partition("=")
        points = validations([Path(folder) for folder in folders.split("+")])
        minutes, bleu = points[-1]
        axes.plot(*zip(*points, strict=True), color=color, linewidth=1.8, marker=".", label=f"{label}: {bleu:.1f}")
        axes.plot(minutes, bleu, "o", color=color)
    axes.legend(loc="lower right")
    axes.set_xscale("log")
    axes.margins(y=0.1)
    longest = axes.get_xlim()[1]
    axes.set_xticks(ticks := [tick for tick in TICKS if tick < longest], [str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("minutes since the start of the command, preparation included")
    axes.set_title(
        f"Multi30k {pair(runs[0])}, BLEU on val. Lines: greedy, 200 sentences; large dots: published model, beam 4",
        loc="left",
        fontsize=11,
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
