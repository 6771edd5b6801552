"""`multihead bench translate`: sentences per second and BLEU, from text to text, ours beside CTranslate2 used directly.

Each engine is measured in a separate process, on the same sentences, after a warm-up.
"""

import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from multihead.bench.timing import timed
from multihead.concurrency import run_in_subprocess
from multihead.config.schema import ALPHA, BEAM, SearchConfig
from multihead.data.embedded_corpus import embedded_pairs
from multihead.errors import UsageError, UserError
from multihead.evaluation.metrics import bleu
from multihead.figures import PALETTE, add_legend, new_figure, save_figure, style_axes
from multihead.hardware.memory import peak_memory_mb
from multihead.interop.export_cache import cached_export
from multihead.interop.hub import find_model
from multihead.storage.model_folder import ModelFolder
from multihead.text.lines import TextInput
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.translator import Translator, load

WARM_UP = 64  # sentences that are not timed
BATCH_SIZES = (512, 1024, 2048, 4096)  # tokens; CTranslate2 is reported with the fastest
FASTEST = "ctranslate2"  # of our engines; a translation may depend on the rest of its batch
CALLS = 20  # with one sentence, of which the median is reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed and quality of one engine."""

    name: str
    sentences_per_second: float
    peak_memory_mb: float
    bleu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Lines to translate, and references to score the translations with."""

    lines: list[str]
    references: list[str] | None = None

    def __post_init__(self) -> None:
        if self.references is not None and len(self.references) != len(self.lines):
            raise UserError(f"{len(self.lines)} lines to translate, but {len(self.references)} references")


def read_text(source: Path | None, reference: Path | None, max_lines: int) -> Text:
    """Read lines of files, or of the embedded corpus if `source` is None."""
    if source is None and reference is not None:
        raise UsageError("--reference needs --source")
    if source is None:
        pairs = embedded_pairs("valid")[:max_lines]
        return Text(lines=[source for source, _ in pairs], references=[target for _, target in pairs])
    references = list(islice(TextInput.open(reference), max_lines)) if reference else None
    return Text(lines=list(islice(TextInput.open(source), max_lines)), references=references)


def measure_ours(model: str, text: Text, engine: str, search: SearchConfig) -> Speed:
    """Measure `Translator.stream` with one of our engines."""
    translator = load(model, engine=engine)
    name = f"ours, {engine}, beam {search.beam}"

    def translate(lines: list[str]) -> list[str]:
        return [translation.text for translation in translator.stream(lines, search)]

    return _measure(name, translate, text, translator.config.data.target_lang)


def measure_ctranslate2(model: str, text: Text, search: SearchConfig, compute_type: str, batch_tokens: int) -> Speed:
    """Measure CTranslate2 as its documentation shows it, with a worker for each core."""
    translator = load(model, engine="torch")
    engine = _ctranslate2(translator, model, compute_type, workers=torch.get_num_threads())
    tokenizer = translator.tokenizer
    ids = _ids_by_piece(tokenizer)
    options = {
        "beam_size": search.beam,
        "length_penalty": search.penalty,
        "max_batch_size": batch_tokens,
        "batch_type": "tokens",
        "max_decoding_length": translator.config.data.max_length,
    }

    def translate(lines: list[str]) -> list[str]:
        sources = [tokenizer.tokens(tokenizer.encode(line)) for line in lines]
        results = engine.translate_batch(sources, **options)
        return [tokenizer.decode([ids[piece] for piece in result.hypotheses[0]]).strip() for result in results]

    name = f"CTranslate2 {compute_type}, {batch_tokens} tokens, beam {search.beam}"
    return _measure(name, translate, text, translator.config.data.target_lang)


def _ctranslate2(translator: Translator, model: str, compute_type: str, workers: int) -> Any:
    import ctranslate2

    folder = cached_export(ModelFolder.open(find_model(model)), compute_type)
    return ctranslate2.Translator(str(folder), compute_type=compute_type, inter_threads=workers, intra_threads=1)


def _ids_by_piece(tokenizer: SubwordTokenizer) -> dict[str, int]:
    return {piece: id for id, piece in enumerate(tokenizer.pieces())}  # as the export names them


def _measure(name: str, translate: Callable[[list[str]], list[str]], text: Text, language: str) -> Speed:
    translate(text.lines[:WARM_UP])
    translations, seconds = timed(lambda: translate(text.lines))
    return Speed(
        name=name,
        sentences_per_second=len(text.lines) / seconds,
        peak_memory_mb=peak_memory_mb(),
        bleu=bleu(translations, text.references, language) if text.references else None,
    )


# One sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds to translate one sentence."""

    warm: float  # a call, with the model loaded
    ctranslate2_warm: float
    cold: float  # a command in the shell
    ctranslate2_cold: float


def measure_latency(model: str, line: str) -> Latency:
    """Measure one sentence, with a loaded model and as a command."""
    return Latency(
        warm=run_in_subprocess(_warm, model, line),
        ctranslate2_warm=run_in_subprocess(_warm_ctranslate2, model, line),
        cold=_command_seconds([sys.executable, "-m", "multihead", "translate", model, line]),
        ctranslate2_cold=_command_seconds([sys.executable, "-c", _CTRANSLATE2_SCRIPT, str(_int8_export(model)), line]),
    )


_CTRANSLATE2_SCRIPT = f"""
import sys, ctranslate2, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
translator = ctranslate2.Translator(sys.argv[1], intra_threads=1)
result = translator.translate_batch([tokenizer.encode(sys.argv[2]).tokens], beam_size={BEAM}, length_penalty={ALPHA})
ids = [tokenizer.token_to_id(token) for token in result[0].hypotheses[0]]
print(tokenizer.decode(ids))
"""


def _int8_export(model: str) -> Path:
    return cached_export(ModelFolder.open(find_model(model)), "int8")


def _warm(model: str, line: str) -> float:
    translator = load(model)
    return _median_seconds(lambda: translator.translate(line))


def _warm_ctranslate2(model: str, line: str) -> float:
    translator = load(model, engine="torch")
    engine, tokenizer = _ctranslate2(translator, model, "int8", workers=1), translator.tokenizer
    ids = _ids_by_piece(tokenizer)

    def translate() -> str:
        source = tokenizer.tokens(tokenizer.encode(line))
        result = engine.translate_batch([source], beam_size=BEAM, length_penalty=ALPHA)[0]
        return tokenizer.decode([ids[piece] for piece in result.hypotheses[0]])

    return _median_seconds(translate)


def _median_seconds(call: Callable[[], object]) -> float:
    return statistics.median(timed(call)[1] for _ in range(CALLS))


def _command_seconds(command: list[str]) -> float:
    """Return the best time of three, with files in the page cache."""
    return min(timed(lambda: subprocess.run(command, check=True, capture_output=True))[1] for _ in range(3))


# The report


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationReport:
    """The speed of each engine on the same text."""

    ours: Speed
    theirs: Speed  # CTranslate2 with int8 and its best batch size
    others: list[Speed]
    latency: Latency

    def to_dict(self) -> dict[str, object]:
        return {
            "threads": torch.get_num_threads(),
            "engine": FASTEST,
            "sentences_per_second": round(self.ours.sentences_per_second, 1),
            "ctranslate2_sentences_per_second": round(self.theirs.sentences_per_second, 1),
            "ratio": round(self.ours.sentences_per_second / self.theirs.sentences_per_second, 3),
            "bleu": self.ours.bleu,
            "ctranslate2_bleu": self.theirs.bleu,
            "peak_memory_mb": round(self.ours.peak_memory_mb),
            "ctranslate2_peak_memory_mb": round(self.theirs.peak_memory_mb),
            "latency": asdict(self.latency),
            "settings": [asdict(speed) for speed in (self.ours, self.theirs, *self.others)],
        }

    def as_text(self) -> str:
        lines = [f"{'':42} {'sentences/s':>11} {'BLEU':>6} {'memory':>9}"]
        for speed in (self.ours, self.theirs, *self.others):
            score = "" if speed.bleu is None else f"{speed.bleu:.2f}"
            lines.append(
                f"{speed.name:42} {speed.sentences_per_second:11.1f} {score:>6} {speed.peak_memory_mb:6,.0f} MB"
            )
        latency = self.latency
        return "\n".join(
            [
                *lines,
                f"{self.to_dict()['ratio']} times CTranslate2's best with int8",
                f"one sentence, model loaded: {1e3 * latency.warm:.0f} ms, "
                f"CTranslate2 {1e3 * latency.ctranslate2_warm:.0f} ms",
                f"one sentence from the shell: {latency.cold:.2f} s, "
                f"CTranslate2 directly {latency.ctranslate2_cold:.2f} s",
            ]
        )


def bench_translation(model: str, text: Text, search: SearchConfig) -> TranslationReport:
    """Measure our fastest engine, CTranslate2 with each batch size, and our engines with stricter guarantees."""
    theirs = [run_in_subprocess(measure_ctranslate2, model, text, search, "int8", size) for size in BATCH_SIZES]
    ours = run_in_subprocess(measure_ours, model, text, FASTEST, search)
    best = max(theirs, key=lambda speed: speed.sentences_per_second)
    return TranslationReport(
        ours=ours,
        theirs=best,
        others=[speed for speed in theirs if speed is not best]
        + [run_in_subprocess(measure_ctranslate2, model, text, search, "float32", 1024)]
        + [run_in_subprocess(measure_ours, model, text, engine, search) for engine in ("auto", "torch")],
        latency=measure_latency(model, max(text.lines[:100], key=len)),
    )


def bench_growth(model: str, text: Text) -> list[dict[str, object]]:
    """Measure speed and BLEU by beam width, and speed by sentence length, ours and CTranslate2's."""
    rows = [_growth_row(model, text, beam, "all") for beam in (1, 2, 4, 8)]
    lines = sorted(text.lines, key=len)
    third = len(lines) // 3
    short, long = Text(lines=lines[:third]), Text(lines=lines[-third:])
    return [*rows, _growth_row(model, short, 4, "short"), _growth_row(model, long, 4, "long")]


def _growth_row(model: str, text: Text, beam: int, which: str) -> dict[str, object]:
    search = SearchConfig(beam=beam)
    ours = run_in_subprocess(measure_ours, model, text, FASTEST, search)
    theirs = run_in_subprocess(measure_ctranslate2, model, text, search, "int8", 1024)
    return {
        "sentences": which,
        "beam": beam,
        "sentences_per_second": round(ours.sentences_per_second, 1),
        "ctranslate2_sentences_per_second": round(theirs.sentences_per_second, 1),
        "ratio": round(ours.sentences_per_second / theirs.sentences_per_second, 3),
        "bleu": ours.bleu,
        "ctranslate2_bleu": theirs.bleu,
    }


def write_picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot speed against BLEU, with a point for each beam width."""
    scored = [row for row in rows if row["bleu"] is not None]
    if not scored:
        raise UserError("a picture of speed against BLEU needs --reference")
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for prefix, name, color in (("", "Multihead", PALETTE[0]), ("ctranslate2_", "CTranslate2 alone, int8", PALETTE[1])):
        speeds, bleus = ([row[f"{prefix}{key}"] for row in scored] for key in ("sentences_per_second", "bleu"))
        axes.plot(speeds, bleus, "o-", color=color, label=name)
        for row, x, y in zip(scored, speeds, bleus, strict=True):
            axes.annotate(f"beam {row['beam']}", (x, y), textcoords="offset points", xytext=(6, 5), fontsize=8)
    axes.set(xlim=(0, None))
    style_axes(axes, xlabel="sentences per second", ylabel="BLEU")
    add_legend(axes)
    save_figure(figure, path)
