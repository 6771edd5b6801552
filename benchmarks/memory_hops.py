"""Accuracy of memory networks on generated questions, by the number of hops and the kind of question.

python -m benchmarks.memory_hops OUTPUT --minutes 3 [--hops 1 2 3] [--seeds 1] [--facts 6]

Trains with `multihead.train` on questions from other seeds than those it is tested on. A model that OUTPUT already
contains is resumed or, if it is finished, used as it is.
"""

import argparse
import statistics
from collections import defaultdict
from pathlib import Path

import multihead
from multihead.tasks.questions import KINDS, Question, make_question

N_TRAIN, N_VALID, N_TEST = 20_000, 500, 1_000
VALID, TEST = 10_000_000, 20_000_000  # seeds of the first question


def questions(first: int, n: int, most_facts: int) -> list[Question]:
    """Return questions about two facts or more."""
    return [make_question(seed, 2 + seed % (most_facts - 1)) for seed in range(first, first + n)]


def write(found: list[Question], folder: Path, name: str) -> tuple[Path, Path]:
    paths = folder / f"{name}.text", folder / f"{name}.answer"
    for path, lines in zip(paths, ([one.text for one in found], [one.answer for one in found]), strict=True):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return paths


def accuracies(model: Path, found: list[Question]) -> dict[str, float]:
    """Return the share of right answers for each kind of question, and for all."""
    translator = multihead.load(model)
    answers = translator.translate([one.text for one in found], beam=1, split=False, guard=False)
    right = defaultdict(list)
    for one, answer in zip(found, answers, strict=True):
        for group in (one.kind, "all"):
            right[group].append(answer.text == one.answer)
    return {group: statistics.fmean(values) for group, values in right.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--hops", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--facts", type=int, default=6, help="at most this many facts before a question")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    text = [
        write(questions(first, n, options.facts), options.output, name)
        for name, first, n in (("train", 0, N_TRAIN), ("valid", VALID, N_VALID))
    ]
    test = questions(TEST, N_TEST, options.facts)
    header = ["hops", *KINDS, "all", "spread"]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for hops in options.hops:
        found = []
        for seed in range(1, options.seeds + 1):
            model = options.output / f"hops-{hops}-seed-{seed}"
            multihead.train(
                source=text[0][0],
                target=text[0][1],
                valid_source=text[1][0],
                valid_target=text[1][1],
                output=model,
                preset="memory-network",
                settings={
                    "model.encoder_layers": hops,
                    "train.seed": seed,
                    "train.minutes": options.minutes,
                    "data.clean": False,
                    "data.source_lang": "en",
                    "data.target_lang": "en",
                },
            )
            found.append(accuracies(model, test))
        means = [statistics.fmean(one[group] for one in found) for group in (*KINDS, "all")]
        spread = statistics.stdev(one["all"] for one in found) if len(found) > 1 else 0.0
        cells = [str(hops), *(f"{100 * value:.1f}%" for value in means), f"{100 * spread:.1f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
