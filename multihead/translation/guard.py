"""Check translations, and search faulty ones again with settings against the fault."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from multihead.config.schema import DataConfig, SearchConfig
from multihead.text.casing import is_in_title_case, sentence_case, title_case, upper
from multihead.text.numerals import is_spelled_out, numbers
from multihead.text.pieces import word_spans
from multihead.text.sentences import split_sentences
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.engine import Engine, Hypothesis, Segment

MAX_COPIED_WORDS = 3  # names and numbers are often copied; more words than this are an untranslated source
SHORT_RATIO = 0.4  # an output with a smaller share of the source's tokens probably misses text
SHORT_MIN_TOKENS = 12  # shorter sources are not checked for missing text
LOOP_REPEATS, LOOP_MAX_TOKENS = 4, 8


class Fault(StrEnum):
    """What is wrong with a translation; the value begins the warning."""

    EMPTY = "empty"
    LOOP = "loop"
    COPY = "copy"
    NUMBER = "number"


FAULT_MESSAGES = {
    Fault.EMPTY: "the model gave no translation",
    Fault.LOOP: "the translation repeats itself",
    Fault.COPY: "the translation is the source",
    Fault.NUMBER: "a number of the source is not in the translation",
}
RETRY_SETTINGS: dict[Fault, Callable[[SearchConfig], SearchConfig]] = {
    Fault.EMPTY: lambda config: replace(config, min_length=1),
    Fault.LOOP: lambda config: replace(config, no_repeat=3),
    Fault.COPY: lambda config: replace(config, n_best=max(2, config.n_best), beam=max(4, config.beam)),
    Fault.NUMBER: lambda config: replace(config, n_best=max(16, config.n_best), beam=max(16, config.beam)),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hypothesis and its text, which is decoded once."""

    hypothesis: Hypothesis
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A segment and its text."""

    segment: Segment
    text: str


@dataclass(frozen=True, slots=True)
class GuardedResult:
    """The translations of a segment, best first, and warnings about them."""

    segment: Segment  # that was searched at last
    candidates: list[Candidate]
    warnings: list[str] = field(default_factory=list)


class Guard:
    """An engine whose results are decoded, checked, and searched again if faulty."""

    def __init__(self, engine: Engine, tokenizer: SubwordTokenizer, data: DataConfig) -> None:
        self.engine, self._tokenizer, self._data = engine, tokenizer, data

    def search(self, segments: Sequence[Segment], config: SearchConfig, details: bool = False) -> list[GuardedResult]:
        """Return `config.n_best` translations of each segment; with `config.guard` faulty ones are searched again.

        With `details`, the hypotheses have attention and token scores.
        """
        sources = [self._source(segment) for segment in segments]
        results = [
            GuardedResult(source.segment, candidates)
            for source, candidates in zip(sources, self._search(sources, config, details), strict=True)
        ]
        if config.guard:
            self._retry_faulty(sources, results, config, details)
        for source, result in zip(sources, results, strict=True):
            if self._is_short(source, result.candidates[0]):
                result.warnings.append("short: the translation is much shorter than the text")
        return [self._in_case_of(source, result) for source, result in zip(sources, results, strict=True)]

    def _source(self, segment: Segment) -> Source:
        return Source(segment, self._tokenizer.decode(segment.ids).strip())

    def _in_case_of(self, source: Source, result: GuardedResult) -> GuardedResult:
        """Return a result in the case that its source had before it was read in lower case."""
        if source.segment.in_capitals:
            restore = upper
        elif result.segment is not source.segment:
            restore = title_case
        else:
            return result
        language = self._data.target_lang
        return replace(result, candidates=[replace(one, text=restore(one.text, language)) for one in result.candidates])

    def _search(self, sources: Sequence[Source], config: SearchConfig, details: bool) -> list[list[Candidate]]:
        found = self.engine.search([source.segment for source in sources], config, details)
        return [[self._decode(hypothesis) for hypothesis in result.best(config.n_best)] for result in found]

    def _decode(self, hypothesis: Hypothesis) -> Candidate:
        return Candidate(hypothesis, self._tokenizer.decode(hypothesis.tokens).replace("\n", " ").strip())

    def _retry_faulty(
        self, sources: list[Source], results: list[GuardedResult], config: SearchConfig, details: bool
    ) -> None:
        """Replace faulty results; the segments with the same fault are searched together."""
        faults = [self.check(source, result.candidates[0]) for source, result in zip(sources, results, strict=True)]
        for fault in Fault:
            places = [place for place, found in enumerate(faults) if found is fault]
            retried = [
                place for place in places if self._is_worth_a_retry(fault, sources[place], results[place], config)
            ]
            again = [self._retry_source(fault, sources[place]) for place in retried]
            found = dict(zip(retried, self._retry(again, fault, config, details), strict=True))
            for place, source in zip(retried, again, strict=True):
                results[place] = self._better(fault, source, results[place], found[place][: config.n_best])
            for place in set(places) - set(retried):
                results[place] = self._better(fault, sources[place], results[place], [])

    def _is_worth_a_retry(self, fault: Fault, source: Source, result: GuardedResult, config: SearchConfig) -> bool:
        """Return whether another search could help.

        A sample is not drawn again: the draws would no longer follow the model's distribution. If several numbers are
        missing, the model cannot copy the numbers of this text: a wider search takes four times as long, and found all
        of them in 3 of 45 sentences, but in two of three sentences that lacked one.
        """
        if config.sample:
            return False
        return fault is not Fault.NUMBER or len(self._missing_numbers(source.text, result.candidates[0].text)) == 1

    def _retry_source(self, fault: Fault, source: Source) -> Source:
        """Return what to search again: text in title case, which models know as names, in lower case."""
        if fault is Fault.COPY and source.segment.heads is None and is_in_title_case(source.text):
            ids = self._tokenizer.encode(sentence_case(source.text, self._data.source_lang))
            return self._source(Segment([*self._tokenizer.reserved_prefix(source.segment.ids), *ids]))
        return source

    def _retry(self, sources: list[Source], fault: Fault, config: SearchConfig, details: bool) -> list[list[Candidate]]:
        """Search again with settings against a fault; return the acceptable translations of each source.

        A translation whose only fault is a number mismatch is better than none.
        """
        if not sources:
            return []
        settings = RETRY_SETTINGS[fault](config)
        settings = replace(settings, n_best=max(settings.n_best, min(2, settings.beam)))
        acceptable = {None, Fault.NUMBER} - {fault}
        found = self._search(sources, settings, details)
        return [
            [candidate for candidate in candidates if self.check(source, candidate) in acceptable]
            for source, candidates in zip(sources, found, strict=True)
        ]

    def _better(
        self, fault: Fault, source: Source, faulty: GuardedResult, candidates: list[Candidate]
    ) -> GuardedResult:
        """Return the result of the retry, or the faulty one if there is none, with warnings."""
        if not candidates:
            return replace(faulty, warnings=[f"{fault}: {FAULT_MESSAGES[fault]}"])
        warnings = [f"{fault}: searched again"]
        if remaining := self.check(source, candidates[0]):
            warnings.append(f"{remaining}: {FAULT_MESSAGES[remaining]}")
        return GuardedResult(source.segment, candidates, warnings)

    def check(self, source: Source, candidate: Candidate) -> Fault | None:
        """Return the first fault of a translation, or None."""
        hypothesis, text = candidate.hypothesis, candidate.text
        if not text:
            return Fault.EMPTY
        if not hypothesis.finished or (has_loop(hypothesis.tokens) and not has_loop(source.segment.ids)):
            return Fault.LOOP
        source_lang, target_lang = self._data.source_lang, self._data.target_lang
        is_same_language = bool(source_lang) and source_lang == target_lang
        if text == source.text and len(word_spans(text)) > MAX_COPIED_WORDS and not is_same_language:
            return Fault.COPY
        return Fault.NUMBER if self._missing_numbers(source.text, text) else None

    def _missing_numbers(self, source: str, translation: str) -> list[str]:
        """Return the numbers of a source that are neither in its translation nor spelled out there."""
        missing = numbers(source) - numbers(translation)
        return [digits for digits in missing if not is_spelled_out(digits, translation, self._data.target_lang)]

    def _is_short(self, source: Source, candidate: Candidate) -> bool:
        """Return whether much of the source is probably missing, by the number of tokens or of sentences."""
        n_tokens = len(candidate.hypothesis.tokens)
        if len(source.segment.ids) < SHORT_MIN_TOKENS or not n_tokens:
            return False
        if n_tokens < SHORT_RATIO * len(source.segment.ids):
            return True
        n_sentences = len(split_sentences(source.text, self._data.source_lang)[0])
        return n_sentences > 2 and len(split_sentences(candidate.text, self._data.target_lang)[0]) <= n_sentences / 2


def has_loop(tokens: Sequence[int], repeats: int = LOOP_REPEATS, max_tokens: int = LOOP_MAX_TOKENS) -> bool:
    """Return whether a sequence of up to `max_tokens` tokens occurs `repeats` times in a row."""
    for size in range(1, max_tokens + 1):
        n_equal = 0  # consecutive tokens that equal the token `size` positions before
        for position in range(size, len(tokens)):
            n_equal = n_equal + 1 if tokens[position] == tokens[position - size] else 0
            if n_equal == size * (repeats - 1):
                return True
    return False
