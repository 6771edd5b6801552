"""`multihead bench translate`: our sentences a second and BLEU, beside CTranslate2's own, text to text.

Each setting is measured in a process of its own, on the same sentences, after a warm-up.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from multihead.concurrency import run_in_subprocess
from multihead.config.schema import SearchConfig
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
BATCH_SIZES = (512, 1024, 2048, 4096)  # tokens, of which CTranslate2 is given the best
FASTEST = "ctranslate2"  # of our engines, where a sentence's neighbours may change it
CALLS = 20  # of one sentence, to find the usual time of a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What one setting reached."""

    name: str
    sentences_per_second: float
    peak_memory_mb: float
    bleu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What is translated; without references nothing is scored."""

    lines: list[str]
    references: list[str] | None = None

    def __post_init__(self) -> None:
        if self.references is not None and len(self.references) != len(self.lines):
            raise UserError(f"{len(self.lines)} lines to translate, but {len(self.references)} references")


def read_text(source: Path | None, reference: Path | None, most: int) -> Text:
    """Lines of files; without any, of the embedded corpus."""
    if source is None and reference is not None:
        raise UsageError("--reference needs --source")
    if source is None:
        pairs = embedded_pairs("valid")[:most]
        return Text(lines=[source for source, _ in pairs], references=[target for _, target in pairs])
    references = list(islice(TextInput.open(reference), most)) if reference else None
    return Text(lines=list(islice(TextInput.open(source), most)), references=references)


def measure_ours(model: str, text: Text, engine: str, search: SearchConfig) -> Speed:
    translator = load(model, engine=engine)
    name = f"ours, {engine}, beam {search.beam}"

    def translate(lines: list[str]) -> list[str]:
        return [one.text for one in translator.stream(lines, search)]

    return _timed(name, translate, text, translator.config.data.target_lang)


def measure_ctranslate2(model: str, text: Text, search: SearchConfig, compute_type: str, batch_tokens: int) -> Speed:
    """CTranslate2 as its documentation shows it, with a worker for each core."""
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
        return [tokenizer.decode([ids[piece] for piece in one.hypotheses[0]]).strip() for one in results]

    name = f"CTranslate2 {compute_type}, {batch_tokens} tokens, beam {search.beam}"
    return _timed(name, translate, text, translator.config.data.target_lang)


def _ctranslate2(translator: Translator, model: str, compute_type: str, workers: int) -> Any:
    import ctranslate2

    folder = cached_export(ModelFolder.open(find_model(model)), compute_type)
    return ctranslate2.Translator(str(folder), compute_type=compute_type, inter_threads=workers, intra_threads=1)


def _ids_by_piece(tokenizer: SubwordTokenizer) -> dict[str, int]:
    return {piece: id for id, piece in enumerate(tokenizer.pieces())}  # as the export names them


def _timed(name: str, translate: Callable[[list[str]], list[str]], text: Text, language: str) -> Speed:
    translate(text.lines[:WARM_UP])
    began = time.perf_counter()
    translations = translate(text.lines)
    seconds = time.perf_counter() - began
    return Speed(
        name=name,
        sentences_per_second=len(text.lines) / seconds,
        peak_memory_mb=peak_memory_mb(),
        bleu=bleu(translations, text.references, language) if text.references else None,
    )


# One sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds for one sentence."""

    warm: float  # a call, the model loaded
    ctranslate2_warm: float
    cold: float  # from the shell to the text
    ctranslate2_cold: float


def measure_latency(model: str, line: str) -> Latency:
    return Latency(
        warm=run_in_subprocess(_warm, model, line),
        ctranslate2_warm=run_in_subprocess(_warm_ctranslate2, model, line),
        cold=_seconds([sys.executable, "-m", "multihead", "translate", model, line]),
        ctranslate2_cold=_seconds([sys.executable, "-c", _BY_HAND, str(_kept_export(model)), line]),
    )


_BY_HAND = """
import sys, ctranslate2, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
translator = ctranslate2.Translator(sys.argv[1], intra_threads=1)
result = translator.translate_batch([tokenizer.encode(sys.argv[2]).tokens], beam_size=4, length_penalty=0.6)
ids = [tokenizer.token_to_id(token) for token in result[0].hypotheses[0]]
print(tokenizer.decode(ids))
"""


def _kept_export(model: str) -> Path:
    return cached_export(ModelFolder.open(find_model(model)), "int8")


def _warm(model: str, line: str) -> float:
    translator = load(model)
    return _usual(lambda: translator.translate(line))


def _warm_ctranslate2(model: str, line: str) -> float:
    translator = load(model, engine="torch")
    engine, tokenizer = _ctranslate2(translator, model, "int8", workers=1), translator.tokenizer
    ids = _ids_by_piece(tokenizer)

    def translate() -> str:
        source = tokenizer.tokens(tokenizer.encode(line))
        result = engine.translate_batch([source], beam_size=4, length_penalty=0.6)[0]
        return tokenizer.decode([ids[piece] for piece in result.hypotheses[0]])

    return _usual(translate)


def _usual(call: Callable[[], object]) -> float:
    return statistics.median(_elapsed(call) for _ in range(CALLS))


def _elapsed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _seconds(command: list[str]) -> float:
    """The best of three, so that files are in memory."""
    return min(_elapsed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(3))


# The report


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationReport:
    ours: Speed
    theirs: Speed  # CTranslate2's best with int8
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
        one = self.latency
        return "\n".join(
            [
                *lines,
                f"{self.to_dict()['ratio']} times CTranslate2's best with int8",
                f"one sentence, model loaded: {1e3 * one.warm:.0f} ms, CTranslate2 {1e3 * one.ctranslate2_warm:.0f} ms",
                f"one sentence from the shell: {one.cold:.2f} s, CTranslate2 by hand {one.ctranslate2_cold:.2f} s",
            ]
        )


def bench_translation(model: str, text: Text, search: SearchConfig) -> TranslationReport:
    """Our fastest engine, CTranslate2 with its best batch size, and the engines that promise more."""
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
    """Speed and BLEU by beam, and speed by length, ours and CTranslate2's."""
    rows = [_both(model, text, beam, "all") for beam in (1, 2, 4, 8)]
    lines = sorted(text.lines, key=len)
    third = len(lines) // 3
    short, long = Text(lines=lines[:third]), Text(lines=lines[-third:])
    return [*rows, _both(model, short, 4, "short"), _both(model, long, 4, "long")]


def _both(model: str, text: Text, beam: int, which: str) -> dict[str, object]:
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
    """Speed against BLEU, a point for each beam."""
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
