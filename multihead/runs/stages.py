"""Runs on text that a model translates first: back-translation (`--monolingual`) and distillation (`--teacher`).

A stage ends with a file in the folder of the run, which is one more corpus of the run itself. The same command
continues where it was interrupted:

    backtranslation/reverse              a model of the opposite direction, trained on the same pairs
    backtranslation/synthetic.tsv.gz     text in the target language, with its translations as sources
    distillation/synthetic.tsv.gz        text in the source language, with a teacher's translations
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from multihead.config.directions import Languages
from multihead.config.resolve import value_of
from multihead.config.schema import DataConfig
from multihead.console import Log, duration, is_quiet, log_to
from multihead.data.marks import BACK_TRANSLATED, DISTILLED, take_off_marks
from multihead.data.parallel_text import as_list, guess_language
from multihead.distributed.process_group import under_torchrun
from multihead.errors import UsageError
from multihead.interop.hub import find_model
from multihead.runs.base_model import is_same_model
from multihead.runs.request import LANGUAGES, TrainingRequest
from multihead.runs.reverse import MINUTES, REVERSE_SHARE, find_reverse, reverse_request
from multihead.runs.setup import has_run
from multihead.runs.synthetic import SyntheticText, lines_of, write_pairs
from multihead.runs.train import train
from multihead.storage.files import content_sum, exclusive, write_text_atomic
from multihead.storage.model_folder import ModelFolder
from multihead.text.file_formats import check_is_text
from multihead.text.language import find_code, name_of
from multihead.text.lines import STANDARD_INPUT, file_size

TRANSLATION_SHARE = 0.25  # of the minutes of a run, at most; text that is left then is left out
GREEDY, TEACHER_BEAM = 1, 4
BACK_TRANSLATION, DISTILLATION = "backtranslation", "distillation"  # folders in that of the run
PAIRS, DONE = "synthetic.tsv.gz", "synthetic.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreText:
    """What a run learns from besides its pairs."""

    monolingual: Sequence[Path] = ()  # in the target language; with a teacher in the source language
    reverse: str | None = None  # a model that translates back
    teacher: str | None = None

    def __post_init__(self) -> None:
        if self.reverse and self.teacher:
            raise UsageError(
                "--reverse is for text in the target language and --teacher for text in the source language: make the "
                "pairs of one with `multihead backtranslate`, and give them with --corpus"
            )
        if self.reverse and not self.monolingual:
            raise UsageError("--reverse translates text in the target language: add --monolingual F")

    def __bool__(self) -> bool:
        return bool(self.monolingual or self.teacher)

    def check_files(self, languages: Languages) -> None:
        """Refuse files that are missing, no text, or in the wrong language by their names."""
        needed, other = languages if self.teacher else languages[::-1]
        for file in self.monolingual:
            if str(file) == STANDARD_INPUT:
                raise UsageError("--monolingual takes files: to resume, they are read again")
            file_size(file)
            check_is_text(file, "--monolingual")
            code = guess_language(file)
            if code and all(languages) and find_code(code, [other]) and not find_code(code, [needed]):
                reason = "--teacher translates text" if self.teacher else "back-translation starts with text"
                raise UsageError(
                    f"{file} is {name_of(other)} by its name, but {reason} in {name_of(needed)} ({needed})"
                )


def train_in_stages(request: TrainingRequest, more: MoreText, console: Console | None = None) -> Path:
    """Train into `request.output` as `runs.train.train` does, after the stages that the run needs."""
    if not more:
        return train(request, console)
    _check(request)
    stage = _distillation(request, more) if more.teacher else _back_translation(request, more)
    with exclusive(request.output):
        used = stage.minutes_used()
        if used is None:
            used = stage.run(log_to(console or Console(stderr=True, quiet=is_quiet())), console)
    return train(_with_pairs(request, stage, used), console)


def refuse_to_plan(more: MoreText) -> None:
    """Refuse to estimate a run whose text does not exist yet."""
    if more:
        raise UsageError(
            "`plan` estimates a run on text that exists: leave out --monolingual and --teacher, or make the pairs with "
            "`multihead backtranslate` and give them with --corpus"
        )


def _check(request: TrainingRequest) -> None:
    """Refuse what cannot be done in stages."""
    if under_torchrun():
        raise UsageError(
            "--monolingual and --teacher work in a single process: make the pairs with `multihead backtranslate` "
            "first, and give them with --corpus"
        )
    if request.data or request.task:
        raise UsageError(
            "--monolingual and --teacher add to text that is prepared afterwards, which --data and --task exclude: use "
            "--source and --target, or --corpus"
        )
    if STANDARD_INPUT in map(str, [*as_list(request.source), *as_list(request.target)]):
        raise UsageError("with --monolingual or --teacher text is read several times: give files, not standard input")


def _with_pairs(request: TrainingRequest, stage: "Stage", minutes_used: float) -> TrainingRequest:
    """Return the request with the pairs of a stage as one more corpus, and with the time that is left."""
    limit = _minutes(request)
    return replace(
        request,
        corpora=[*request.corpora, stage.pairs],
        weights=[*request.weights, 1.0] if request.weights else (),
        languages=[*request.languages, stage.text.languages] if request.languages else (),
        options={**request.options, MINUTES: limit - minutes_used} if limit else request.options,
    )


def _minutes(request: TrainingRequest) -> float:
    """Return the time limit of a run; 0 for none."""
    minutes = value_of(request.layers, MINUTES) or 0.0
    assert isinstance(minutes, float)
    return minutes


# Stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Text that is translated before a run."""

    request: TrainingRequest
    folder: Path
    text: SyntheticText
    user_model: str | None  # that the user named
    provide_model: Callable[[Console | None], tuple[str, float]]  # returns the model, and the minutes that it cost

    @property
    def pairs(self) -> Path:
        """The corpus that the stage makes."""
        return self.folder / PAIRS

    def minutes_used(self) -> float | None:
        """Return how much of the run's time the stage took; None if it is not complete, or its text was another one."""
        try:
            done = json.loads((self.folder / DONE).read_text(encoding="utf-8"))
            minutes, model = float(done.pop("minutes")), done.pop("model")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        is_same = model == self.user_model or is_same_model(model or "", self.user_model or "")
        return minutes if is_same and done == self._identity() and self.pairs.exists() else None

    def run(self, log: Log, console: Console | None) -> float:
        """Make the pairs, and return how many minutes of the run's time that took."""
        if has_run(self.request):
            raise UsageError(
                f"the run in {self.request.output} was started on other text than this, or {self.pairs} was removed; "
                "choose another --output"
            )
        model, minutes = self.provide_model(console)
        log(f"Translating text for the run with {model}.")
        seconds = write_pairs(self.text, model, self.pairs, log, 60 * TRANSLATION_SHARE * _minutes(self.request))
        log(f"translated in {duration(seconds)} into {self.pairs}")
        minutes = round(minutes + seconds / 60, 4)
        done = {**self._identity(), "model": self.user_model, "minutes": minutes}
        write_text_atomic(self.folder / DONE, json.dumps(done) + "\n")
        return minutes

    def _identity(self) -> dict[str, object]:
        pairs = self.request.text().sums if self.request.has_text else []
        return {**self.text.identity(), "pairs": pairs}


def _back_translation(request: TrainingRequest, more: MoreText) -> Stage:
    if not request.has_text:
        raise UsageError("--monolingual adds to pairs of sentences: add --source and --target, or --corpus")
    languages, folder = _languages_of(request), request.output / BACK_TRANSLATION
    more.check_files(languages)
    text = SyntheticText(
        lines=lines_of(more.monolingual),
        sums=[content_sum(file) for file in more.monolingual],
        mark=BACK_TRANSLATED,
        languages=languages,
        beam=GREEDY,
    )

    def model_that_translates_back(console: Console | None) -> tuple[str, float]:
        if known := more.reverse or find_reverse(request, languages):
            return known, 0.0
        reverse = reverse_request(request, folder / "reverse", languages)
        try:
            train(reverse, console)
        except UsageError as error:
            raise UsageError(f"the model that translates back, in {reverse.output}: {error}") from None
        return str(reverse.output), REVERSE_SHARE * _minutes(request)

    return Stage(
        request=request, folder=folder, text=text, user_model=more.reverse, provide_model=model_that_translates_back
    )


def _distillation(request: TrainingRequest, more: MoreText) -> Stage:
    assert more.teacher
    teacher = more.teacher
    if not request.has_text and not more.monolingual:
        raise UsageError("--teacher needs text to translate: add --source and --target, or --monolingual F")
    languages = _languages_of(request) if request.has_text else _languages_of_teacher(request, teacher)
    more.check_files(languages)
    extra = lines_of(more.monolingual)

    def sources() -> Iterator[str]:
        if request.has_text:
            for pairs, _ in request.text(_data(languages)).corpora():
                yield from (source.decode(errors="replace") for source, _ in pairs)
        yield from extra()

    text = SyntheticText(
        lines=sources,
        sums=[content_sum(file) for file in more.monolingual],
        mark=DISTILLED,
        languages=languages,
        beam=TEACHER_BEAM,
    )
    return Stage(
        request=request,
        folder=request.output / DISTILLATION,
        text=text,
        user_model=teacher,
        provide_model=lambda console: (teacher, 0.0),
    )


# Languages


def _languages_of(request: TrainingRequest) -> Languages:
    """Return the languages of the pairs, which must be the same in all corpora."""
    languages, *others = dict.fromkeys(request.corpus_languages())
    if others:
        raise UsageError(
            "--monolingual and --teacher are for text in one pair of languages. For several, make the pairs of each "
            "with `multihead backtranslate`, and give them with --corpus"
        )
    if request.corpora and not all(languages):
        raise UsageError("give the languages of the text with --source-lang and --target-lang")
    if any(corpus.mark for corpus in take_off_marks(request.text(_data(languages)).corpora())):
        raise UsageError("a --corpus has translations of a model already: leave it out, or --monolingual and --teacher")
    return languages


def _data(languages: Languages) -> DataConfig:
    return DataConfig(source_lang=languages[0], target_lang=languages[1])


def _languages_of_teacher(request: TrainingRequest, teacher: str) -> Languages:
    """Return the languages that the user named, or those of a teacher that has one pair of them."""
    source, target = (str(value_of(request.layers, name) or "") for name in LANGUAGES)
    if source and target:
        return source, target
    data = ModelFolder.open(find_model(teacher)).config.data
    if len(data.pairs) > 1:
        raise UsageError(f"{teacher} translates several languages: add --source-lang and --target-lang")
    return data.pairs[0]
