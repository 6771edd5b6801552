"""Split a text into segments of token ids that fit the model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from multihead.config.schema import DataConfig
from multihead.text.casing import is_in_capitals, sentence_case
from multihead.text.dependency_trees import encode_with_heads
from multihead.text.detector import LanguageDetector
from multihead.text.encoding import normalize
from multihead.text.language import looks_like, mostly_looks_like, name_of
from multihead.text.lines import MAX_CHARACTERS
from multihead.text.sentences import LINE_BREAKS, as_one_sentence, split_sentences, split_to_fit
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.engine import Segment

MAX_PIECE_CHARACTERS = 50  # no vocabulary has longer pieces
MAX_DETECTED = 1000  # characters from which the language of a text is recognized
DIRECTION = "direction"  # the warning about a text in the target language begins with it
# An imported model with several target languages expects the language code at the start of each sentence.
LANGUAGE_CODE = re.compile(r"\s*>>[\w-]+<<\s*")
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ufeff]")  # but not white space


@dataclass(slots=True)
class SourceLine:
    """A text as segments, the white space before each of them, and warnings about what was changed."""

    segments: list[Segment] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, segment: Segment, gap: str) -> None:
        if segment.ids:
            self.segments.append(segment)
            self.gaps.append(gap)


@dataclass(slots=True)
class Segmenter:
    """Turns texts into segments of at most `max_tokens` tokens."""

    tokenizer: SubwordTokenizer
    data: DataConfig
    max_tokens: int
    detector: LanguageDetector | None = None  # of the model's languages, if it has one
    prefix: list[int] = field(default_factory=list)  # ids at the start of each segment: the language to translate into
    sources: list[str] = field(default_factory=list)  # languages of the text, if there are several directions
    expects_code: bool = False  # the user types the language to translate into: >>por<<

    def read(self, text: str, split: bool) -> SourceLine:
        """Return the segments of a text: its sentences, or with `split=False` the whole text as one."""
        line = SourceLine()
        if len(text) > MAX_CHARACTERS:
            line.warnings.append(f"cut: the text has {len(text):,} characters; the first {MAX_CHARACTERS:,} were read")
            text = text[:MAX_CHARACTERS]
        text = self.clean(text)
        if other := self.other_language(text):
            expected = " or ".join(map(name_of, self.sources or [self.data.source_lang]))
            line.warnings.append(
                f"{DIRECTION}: the text looks like {name_of(other)}, but this model translates from {expected}"
            )
        code = LANGUAGE_CODE.match(text) if self.data.tokenizer == "unigram" else None
        prefix = code[0] if code else ""
        if self.expects_code and not code and text.strip():
            line.warnings.append("target: the text does not begin with a language such as >>por<<, and --to names none")
        sentences, gaps = self.sentences(text[len(prefix) :], split)
        for sentence, gap in zip(sentences, gaps, strict=False):
            self._add(line, prefix + sentence, gap)
        return line

    def other_language(self, text: str) -> str | None:
        """Return the language of a text if it is clearly not one that is translated: usually the target."""
        text, target = text[:MAX_DETECTED], self.data.target_lang
        if self.sources and self.detector:
            return self.detector.language_other_than(self.sources, text)
        looks = self.detector.looks_like if self.detector else looks_like
        sources = self.sources or [self.data.source_lang]
        return target if all(looks(text, target, source) for source in sources) else None

    def are_reversed(self, texts: Sequence[str]) -> bool:
        """Return whether most of some texts are in the target language."""
        if not self.detector:
            sources = self.sources or [self.data.source_lang]
            return all(mostly_looks_like(texts, self.data.target_lang, source) for source in sources)
        return sum(self.other_language(text) is not None for text in texts) > len(texts) / 2

    def clean(self, text: str) -> str:
        """Return the text in the Unicode form of the training text, without control characters and lone surrogates."""
        return normalize(CONTROL_CHARACTERS.sub(" ", text.encode(errors="replace").decode()), self.data.unicode)

    def sentences(self, text: str, split: bool) -> tuple[list[str], list[str]]:
        """Return the sentences of a text and the gaps around them; a line with a dependency tree is never split."""
        if split and not self.data.tree:
            return split_sentences(text, self.data.source_lang)
        return as_one_sentence(text)

    def encode(self, text: str) -> Segment:
        if self.data.tree:
            return Segment(*encode_with_heads(self.tokenizer, [text])[0])
        ids = self.tokenizer.encode(LINE_BREAKS.sub(" ", text))
        return Segment([*self.prefix, *ids] if ids else [])

    def encode_sentence(self, text: str) -> Segment:
        """Return the beginning of a text as the one segment that the model reads."""
        text, in_capitals = self.clean(text), self._is_in_capitals(text)
        segment = self.encode(sentence_case(text, self.data.source_lang) if in_capitals else text)
        return replace(segment.shortened(self.max_tokens), in_capitals=in_capitals)

    def _is_in_capitals(self, sentence: str) -> bool:
        """Return whether to read a sentence in lower case: models have seen little text in capitals, if any."""
        return not self.data.tree and is_in_capitals(sentence)

    def _add(self, line: SourceLine, sentence: str, gap: str) -> None:
        """Add a sentence, in several parts if it is too long for the model."""
        in_capitals = self._is_in_capitals(sentence)
        if in_capitals:
            line.warnings.append("capitals: the text was read in lower case")
            sentence = sentence_case(sentence, self.data.source_lang)
        segment = self.encode(sentence) if len(sentence) <= MAX_PIECE_CHARACTERS * self.max_tokens else Segment([])
        segment = replace(segment, in_capitals=in_capitals)
        n_tokens = len(segment.ids)
        if 0 < n_tokens <= self.max_tokens:
            line.add(segment, gap)
        elif self.data.tree:  # part of a tree is not a tree
            line.warnings.append(f"cut: a sentence of {n_tokens} tokens was cut to {self.max_tokens}")
            line.add(segment.shortened(self.max_tokens), gap)
        else:
            parts = list(split_to_fit(sentence, self._size, self.max_tokens, self.data.source_lang))
            line.warnings.append(
                f"split: a sentence longer than {self.max_tokens} tokens was translated in {len(parts)} parts"
            )
            for part in parts:
                line.add(replace(self.encode(part.strip()), in_capitals=in_capitals), gap)
                gap = part[len(part.rstrip()) :]

    def _size(self, text: str) -> int:
        """Return the number of tokens, or a lower bound for a text so long that encoding it could take seconds."""
        if len(text) <= MAX_PIECE_CHARACTERS * self.max_tokens:
            return len(self.encode(text).ids)
        return len(text) // MAX_PIECE_CHARACTERS + 1
