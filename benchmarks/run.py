"""Run both speed benchmarks and append the results to history.jsonl.

    python benchmarks/run.py --data PREPARED --model MODEL --source test.en --reference test.de

PREPARED is a folder made by `multihead prepare`. Run it on an otherwise idle machine.
"""

import argparse
import json
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

from multihead.bench.training import bench_training
from multihead.bench.translation import bench_translation, read_text
from multihead.config.schema import SearchConfig

HISTORY = Path(__file__).with_name("history.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    arguments = parser.parse_args()

    training = {
        name: bench_training(preset, arguments.data, steps, 4096, vocab_size).to_dict()
        for name, preset, steps, vocab_size in (
            ("small", "small", 30, None),
            ("small, 37,000 pieces", "small", 10, 37_000),
            ("base", "base", 6, None),
        )
    }
    text = read_text(arguments.source, arguments.reference, 10_000)
    entry = {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "training": training,
        "translation": bench_translation(arguments.model, text, SearchConfig()).to_dict(),
    }
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    print(json.dumps(entry, indent=2))


if __name__ == "__main__":
    main()
