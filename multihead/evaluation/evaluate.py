"""Score a model on a test set, alone or compared with a second model."""

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from multihead.config.schema import SearchConfig
from multihead.data.parallel_text import guess_language
from multihead.errors import UsageError, UserError
from multihead.evaluation.accuracy import score_parser
from multihead.evaluation.by_length import LengthGroup, bleu_by_length
from multihead.evaluation.calibration import calibrate, calibration_error
from multihead.evaluation.metrics import Comparison, Score, compare, scores
from multihead.interop.hub import find_model
from multihead.storage.model_folder import ModelFolder, store_search
from multihead.text.constituency_trees import read_trees
from multihead.text.file_formats import check_is_text
from multihead.text.language import name_of
from multihead.text.lines import TextInput, file_size
from multihead.translation.confidence import confidence
from multihead.translation.translator import Translation, Translator, load

SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """The scores of a model; `multihead evaluate` prints them."""

    model: str
    sentences: int
    sentences_per_second: float
    scores: list[Score]
    compared_with: str | None = None
    comparison: list[Comparison] = field(default_factory=list)
    by_length: list[LengthGroup] = field(default_factory=list)
    calibration_error: float | None = None  # of the model's confidence in its translations

    def as_json(self) -> str:
        fields = asdict(self)
        if not self.by_length:
            del fields["by_length"]
        return json.dumps(fields, indent=2, ensure_ascii=False)

    def as_text(self) -> str:
        lines = [f"{score.name}  {score.value:.2f}  {score.signature}" for score in self.scores]
        lines.append(f"{self.sentences:,} sentences, {self.sentences_per_second:.1f} per second")
        if self.calibration_error is not None:
            lines.append(f"confidence: expected calibration error {self.calibration_error:.3f}")
        for metric in self.comparison:
            verdict = "significant" if metric.p_value < SIGNIFICANCE_LEVEL else "not significant"
            lines.append(
                f"{metric.name}: {self.model} {metric.value:.2f}, {self.compared_with} {metric.other_value:.2f}, "
                f"p = {metric.p_value:.4f}: the difference is {verdict}"
            )
        lines += [self._length_line(group) for group in self.by_length]
        return "\n".join(lines)

    def _length_line(self, group: LengthGroup) -> str:
        scores = f"BLEU {group.bleu:.2f}"
        if group.other_bleu is not None:
            scores = f"BLEU: {self.model} {group.bleu:.2f}, {self.compared_with} {group.other_bleu:.2f}"
        return f"{group.lengths} source words, {group.sentences:,} sentences: {scores}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSet:
    """A text with reference translations, and whether to add the lower-cased BLEU of the Multi30k literature."""

    source: Path
    reference: Path
    to: str | None = None  # the language to translate into, for a model of several
    lowercase_tokenized: bool = False
    by_length: bool = False  # also BLEU by the length of the source
    calibrate: bool = False  # calibrate the model's confidence on this text, which then is no test set


def evaluate(
    model: str, test: TestSet, search: SearchConfig, other: str | None = None, engine: str = "auto"
) -> EvaluationReport:
    """Translate a test set with a model and score the output; with `other`, compare it with a second model."""
    source, reference = test.source, test.reference
    for path, option in ((source, "--source"), (reference, "--reference")):
        if file_size(path):
            check_is_text(path, option)
    sources, references = list(TextInput.open(source)), list(TextInput.open(reference))
    if len(sources) != len(references):
        raise UserError(
            f"{source} has {len(sources):,} lines and {reference} has {len(references):,}; line n of the "
            "reference must be the translation of line n of the source"
        )
    if not sources:
        raise UserError(f"{source} is empty; there is nothing to translate and score")
    if ModelFolder.open(find_model(model)).config.data.task == "parse":
        if other or test.calibrate or test.by_length:
            raise UsageError(f"{model} is a parser: --compare, --calibrate and --by-length are for translations")
        return _evaluate_parser(load(model, engine=engine), test, sources, references, search)
    output = _translate(model, sources, search, engine, test)
    hypotheses, target_lang = output.texts, output.target_lang
    if test.calibrate:
        output = _calibrated(output, references)
    comparison: list[Comparison] = []
    others = None
    if other:
        others = _translate(other, sources, search, engine, test).texts
        comparison = compare(hypotheses, others, references, target_lang)
    return EvaluationReport(
        model=model,
        sentences=len(sources),
        sentences_per_second=len(sources) / output.seconds,
        scores=scores(hypotheses, references, target_lang, test.lowercase_tokenized),
        compared_with=other,
        comparison=comparison,
        by_length=bleu_by_length(sources, hypotheses, references, target_lang, others) if test.by_length else [],
        calibration_error=output.calibration_error(references),
    )


def _evaluate_parser(
    parser: Translator, test: TestSet, sources: list[str], references: list[str], search: SearchConfig
) -> EvaluationReport:
    """Score the trees that a parser finds for words, given as text with spaces between the words."""
    trees = list(read_trees(references, name=f"{test.reference}, line"))
    for number, (source, tree) in enumerate(zip(sources, trees, strict=True), start=1):
        if source.split() != tree.words:
            raise UserError(
                f"{test.source}, line {number}: the words are not those of the tree in {test.reference}; write them "
                f"with spaces: '{' '.join(tree.words)[:60]}'"
            )
    began = time.perf_counter()
    counts = score_parser(parser, trees, search.of_model(parser.search))
    seconds = time.perf_counter() - began
    figures = {"F1": counts.f1, "precision": counts.precision, "recall": counts.recall, "exact": counts.exact_match}
    return EvaluationReport(
        model=parser.name,
        sentences=len(trees),
        sentences_per_second=len(trees) / seconds,
        scores=[
            Score(name=name, value=value, signature="labeled brackets, as EVALB") for name, value in figures.items()
        ],
    )


@dataclass(frozen=True, slots=True)
class _Output:
    """The translations of a test set by a model."""

    model: Translator
    translations: list[Translation]
    seconds: float  # without loading

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.translations]

    @property
    def target_lang(self) -> str:
        return self.model.config.data.target_lang

    def calibration_error(self, references: list[str]) -> float | None:
        confidences = [one.confidence for one in self.translations if one.confidence is not None]
        return calibration_error(confidences, self.texts, references) if confidences else None


def _calibrated(output: _Output, references: list[str]) -> _Output:
    """Store the confidence that the translations of a text suggest in the model; return them with it."""
    folder = output.model.folder
    assert folder  # `load` sets it
    levels, shares = calibrate([one.mean_log_prob for one in output.translations], output.texts, references)
    search = replace(folder.search, confidence_levels=levels, confidence=shares)
    store_search(folder.path, search)
    translations = [replace(one, confidence=confidence(search, one.mean_log_prob)) for one in output.translations]
    return replace(output, translations=translations)


def _translate(model: str, sources: list[str], search: SearchConfig, engine: str, test: TestSet) -> _Output:
    translator = load(model, engine=engine).into(test.to)
    data = translator.config.data
    expected = translator.segmenter.sources or [data.source_lang]
    named = guess_language(test.source), guess_language(test.reference)
    is_named_so = named[0] == data.target_lang and named[1] in expected and named[0] not in ("", named[1])
    if is_named_so or translator.segmenter.are_reversed(sources):
        what = (
            f"{test.source} is {name_of(named[0])} by its name"
            if is_named_so
            else (f"the text to translate looks like {name_of(data.target_lang)}")
        )
        raise UserError(
            f"{what}, but {model} translates from {' or '.join(map(name_of, expected))}: --source and --reference "
            f"{'are' if is_named_so else 'may be'} swapped"
        )
    began = time.perf_counter()
    translations = list(translator.stream(sources, search))
    return _Output(translator, translations, time.perf_counter() - began)
