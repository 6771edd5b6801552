"""What each cleaning rule finds in text with 10% of noise, and what it drops from clean text.

python -m benchmarks.cleaning_rules ../shared/data [pairs]        # ten minutes with 20,000 pairs of each corpus
"""

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from multihead.config.schema import DataConfig
from multihead.console import Table
from multihead.data.cleaning import CleaningReport, chunks, clean_chunk, scripts_of, typical_ratio
from multihead.data.language_rule import learn_detector, wrong_language
from multihead.data.spool import Spool
from multihead.text.lines import read_lines

Pair = tuple[bytes, bytes]
SHARE = 0.1
CORPORA = [("tatoeba/en-de", "tatoeba/en-es"), ("europarl", "europarl"), ("newstest", "newstest")]
SIGNS = "!?*#_-|<>=+~%&/0123456789"


def noisy(kind: str, pairs: list[Pair], spanish: list[bytes], rng: random.Random) -> list[tuple[Pair, bool]]:
    """Return the pairs, of which some are noise of a kind, each with whether it is."""
    sources, targets = zip(*pairs, strict=True)
    makers: dict[str, Callable[[int], Pair]] = {
        "shuffled": lambda n: (sources[n], rng.choice(targets)),
        "swapped": lambda n: (targets[n], sources[n]),
        "untranslated": lambda n: (sources[n], sources[n]),
        "nearly untranslated": lambda n: (sources[n], sources[n].rstrip(b".!?") + b" - " + sources[n]),
        "wrong language": lambda n: (sources[n], rng.choice(spanish)),
        "cut": lambda n: (sources[n], b" ".join(targets[n].split()[: max(1, len(targets[n].split()) // 3)])),
        "mojibake": lambda n: (sources[n], targets[n].decode().encode().decode("latin-1").encode()),
        "signs": lambda n: (sources[n], "".join(rng.choices(SIGNS, k=len(targets[n]))).encode()),
        "wrong script": lambda n: (sources[n], targets[n].decode().translate(CYRILLIC).encode()),
        "glued words": lambda n: (sources[n] * 3, targets[n].replace(b" ", b"") * 3),
        "other numbers": lambda n: (sources[n] + b" 1987", targets[n] + b" 2004"),
    }
    return [(makers[kind](n), True) if rng.random() < SHARE else (pair, False) for n, pair in enumerate(pairs)]


CYRILLIC = {ord("a") + n: 0x430 + n for n in range(26)} | {ord("A") + n: 0x410 + n for n in range(26)}
KINDS = ["shuffled", "swapped", "untranslated", "nearly untranslated", "wrong language", "cut"]
KINDS += ["mojibake", "signs", "wrong script", "glued words", "other numbers"]


def dropped(pairs: list[Pair], config: DataConfig) -> list[str]:
    """Return why each pair is dropped, or an empty text; duplicates are not looked for."""
    ratio, scripts = typical_ratio(pairs, config), scripts_of(pairs, config)
    reasons: list[str] = []
    with tempfile.TemporaryDirectory() as folder, Spool(Path(folder) / "spool") as spool:
        for pair in pairs:
            found = clean_chunk([pair], config, ratio, scripts)
            reasons.append(next(iter(found.dropped), ""))
        kept = [n for n, reason in enumerate(reasons) if not reason]
        report = CleaningReport()
        for chunk in chunks(pairs[n] for n in kept):
            cleaned = clean_chunk(chunk, config, ratio, scripts)
            report.add(cleaned)
            spool.write(cleaned.text, len(cleaned.fingerprints), 0)
        detector = learn_detector(spool, config)
        if detector:
            texts = [pair for segment in spool.segments for pair in spool.read(segment)]
            for n, wrong in zip(kept, wrong_language(detector, texts), strict=True):
                reasons[n] = "language" if wrong else ""
    return reasons


def main(data: Path, n_pairs: int) -> None:
    config = DataConfig(source_lang="en", target_lang="de", drop_numbers=True)
    clean_rows, noise_rows = [], []
    for folder, spanish_folder in CORPORA:
        sides = [list(islice(read_lines(data / folder / f"train.{code}.gz"), n_pairs)) for code in ("en", "de")]
        spanish = list(islice(read_lines(data / spanish_folder / "train.es.gz"), n_pairs))
        pairs = [pair for pair in zip(*sides, strict=True) if all(pair)]
        counts = Counter(dropped(pairs, config))
        found = ", ".join(f"{name} {n / len(pairs):.3%}" for name, n in counts.most_common() if name)
        clean_rows.append([folder, f"{len(pairs):,}", found])
        for kind in KINDS:
            labeled = noisy(kind, pairs, spanish, random.Random(1))
            reasons = dropped([pair for pair, _ in labeled], config)
            noise = Counter(reason for reason, (_, is_noise) in zip(reasons, labeled, strict=True) if is_noise)
            wrong = sum(bool(reason) for reason, (_, is_noise) in zip(reasons, labeled, strict=True) if not is_noise)
            recall = ", ".join(f"{name} {n / noise.total():.1%}" for name, n in noise.most_common() if name)
            share = wrong / (len(pairs) - noise.total())
            noise_rows.append([folder, kind, recall, f"{share:.2%}"])
            print(noise_rows[-1], file=sys.stderr, flush=True)
    print(Table(header=["clean text", "pairs", "dropped by"], rows=clean_rows).as_text())
    print(Table(header=["corpus", "noise, 10%", "found by", "correct pairs dropped"], rows=noise_rows).as_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)
