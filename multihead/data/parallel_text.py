"""Raw parallel text: pairs of files whose lines correspond, several corpora with weights, and their languages."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from multihead.config.directions import Languages, direction_of
from multihead.config.schema import Settings
from multihead.data.readers import corpus as corpus_files
from multihead.errors import UsageError, UserError
from multihead.storage.files import content_sum
from multihead.text.file_formats import check_is_text
from multihead.text.language import mostly_looks_like, name_of
from multihead.text.lines import STANDARD_INPUT, file_size, read_lines

Pair = tuple[str, str]
RawPair = tuple[bytes, bytes]
Files = Path | Sequence[Path]  # one corpus, or several

NON_LANGUAGE_SUFFIXES = frozenset("gz xz txt tsv csv raw src tgt ref tok bpe".split())
LANGUAGE_SAMPLE = 500  # lines from which the language of a file is recognized


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralLanguages:
    """The languages of the text of a model of several directions."""

    corpora: Sequence[Languages]  # of each corpus
    both_ways: bool = False
    valid: Sequence[Languages] = ()  # of each pair of validation files


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelText:
    """Raw text to prepare; without `valid`, a part of the training text is held out."""

    train: Iterable[RawPair]
    weight: float = 1.0  # how often its pairs come in an epoch
    extra_corpora: Sequence[tuple[Iterable[RawPair], float]] = ()  # each with its weight
    valid: Iterable[RawPair] | None = None
    sizes: list[int] = field(default_factory=list)  # of the files
    sums: list[str] = field(default_factory=list)  # of the files, so that a run cannot resume with other text
    description: str = ""
    # Of a model of several directions:
    languages: Sequence[Languages] = ()  # of each corpus
    both_ways: bool = False  # train each corpus in the other direction as well
    is_weighted: bool = False  # by the user; otherwise directions are balanced
    valid_corpora: Sequence[tuple[Iterable[RawPair], Languages]] = ()  # in place of `valid`

    @property
    def directions(self) -> list[str]:
        """The direction of each way in which a corpus is trained; none in a model of one pair of languages."""
        backward = [pair[::-1] for pair in self.languages] if self.both_ways else []
        return [direction_of(pair) for pair in [*self.languages, *backward]]

    @property
    def has_valid(self) -> bool:
        """Whether the user gave validation text."""
        return self.valid is not None or bool(self.valid_corpora)

    def corpora(self) -> list[tuple[Iterable[RawPair], float]]:
        """Return all training corpora with their weights."""
        return [(self.train, self.weight), *self.extra_corpora]


def from_files(  # noqa: PLR0913 - what a user names
    source: Files | None = None,
    target: Files | None = None,
    valid: tuple[Files, Files] | None = None,
    weights: Sequence[float] = (),
    corpora: Sequence[Path] = (),
    languages: Sequence[str] = (),
    several: SeveralLanguages | None = None,
) -> ParallelText:
    """Return the text of files named on the command line; a missing file is refused before anything is read.

    Files of `corpora` contain both sides, which are chosen by their languages. They follow the pairs of files, also
    among the weights. `languages` are those of all corpora, unless `several` has those of each.
    """
    sources, targets = as_list(source), as_list(target)
    valid_sources, valid_targets = map(as_list, valid or (None, None))
    if len(valid_sources) != len(valid_targets):
        raise UsageError("every --valid-source needs a --valid-target")
    if len(valid_sources) > 1 and not several:
        raise UsageError("several --valid-source are for a model of several languages, one for each direction")
    n_corpora = len(sources) + len(corpora)
    if len(sources) != len(targets) or len(weights) not in (0, n_corpora):
        raise UsageError("every --source needs a --target, and every --source and --corpus a --weight if any has one")
    if not all(weight > 0 for weight in weights):
        raise UsageError("--weight must be larger than 0; for example 3 for pairs that come three times in an epoch")
    valid_files = [file for pair in zip(valid_sources, valid_targets, strict=True) for file in pair]
    files = [*sources, *targets, *valid_files, *corpora]
    if [str(file) for file in files].count(STANDARD_INPUT) > 1:
        raise UserError("standard input (-) can be used for one file only")
    sizes = [file_size(file) for file in files]
    options = ["--source"] * len(sources) + ["--target"] * len(targets)
    options += ["--valid-source", "--valid-target"] * len(valid_sources)
    for file, size, option in zip(files, sizes, options, strict=False):
        _check_file(file, size, option)
    for file in corpora:
        corpus_files.format_of(file)
    _check_different(zip([*sources, *valid_sources], [*targets, *valid_targets], strict=True))
    sides = several.corpora[len(sources) :] if several else [languages] * len(corpora)
    texts = [*map(read_pairs, sources, targets), *map(corpus_files.read_pairs, corpora, sides)]
    valid_texts = list(map(read_pairs, valid_sources, valid_targets))
    (train, weight), *extra_corpora = zip(texts, weights or [1.0] * n_corpora, strict=True)
    return ParallelText(
        train=train,
        weight=weight,
        extra_corpora=extra_corpora,
        valid=valid_texts[0] if valid_texts and not several else None,
        sizes=sizes,
        sums=[_sum(file) for file in files],
        languages=several.corpora if several else (),
        both_ways=bool(several and several.both_ways),
        is_weighted=bool(weights),
        valid_corpora=list(zip(valid_texts, several.valid, strict=True)) if several else (),
    )


def _check_different(pairs: Iterable[tuple[Path, Path]]) -> None:
    for one, other in pairs:
        if one == other:
            raise UsageError(f"{one} is given both as the source and as its translation")


def _check_file(file: Path, size: int, option: str) -> None:
    """Refuse an empty file, one that cannot be read, and one of another format."""
    if str(file) == STANDARD_INPUT:
        return
    if not size:
        raise UserError(f"{file} is empty; {option} takes text with one sentence per line")
    check_is_text(file, option, corpus_option="" if option.startswith("--valid") else "--corpus")


def _sum(file: Path) -> str:
    """Identify a file by its bytes on disk, so that a .gz file that was compressed again is a different one.

    Standard input cannot be read twice, so only its name identifies it.
    """
    try:
        return STANDARD_INPUT if str(file) == STANDARD_INPUT else content_sum(file)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from None


def as_list(files: Files | None) -> list[Path]:
    return [files] if isinstance(files, Path) else list(files or ())


def read_pairs(source: Path, target: Path) -> Iterator[RawPair]:
    """Yield line n of both files; files of unequal length are refused when the shorter one ends."""
    sources, targets = read_lines(source), read_lines(target)
    n_pairs = 0
    for line in sources:
        other = next(targets, None)
        if other is None:
            raise _unequal(source, target, n_pairs + 1 + _count(sources), n_pairs)
        n_pairs += 1
        yield line, other
    if n_more := _count(targets):
        raise _unequal(source, target, n_pairs, n_pairs + n_more)


def _unequal(source: Path, target: Path, n_source: int, n_target: int) -> UserError:
    return UserError(
        f"{source} has {n_source:,} lines and {target} has {n_target:,}; line n of one must be the translation of "
        "line n of the other"
    )


def _count(lines: Iterator[bytes]) -> int:
    return sum(1 for _ in lines)


def guess_languages(source: Files, target: Files) -> Settings:
    """Return the languages that the names of the (first) files end in: a.en.gz is English."""
    codes = [guess_language(as_list(files)[0]) for files in (source, target)]
    return {"data.source_lang": codes[0], "data.target_lang": codes[1]}


def guess_language(file: Path) -> str:
    """Return the language that the name of a file ends in; empty if it ends in none."""
    match = re.search(r"\.([a-z]{2,3})(?:\.gz)?$", file.name)
    return match[1] if match and match[1] not in NON_LANGUAGE_SUFFIXES else ""


def check_not_swapped(source: Path, target: Path, source_lang: str, target_lang: str) -> None:
    """Refuse files that are in each other's language, by their names or by their text."""
    if not source_lang or not target_lang or source_lang == target_lang:
        return
    names = guess_language(source), guess_language(target)
    by_name = names == (target_lang, source_lang)
    if by_name or (_is_mostly(source, target_lang, source_lang) and _is_mostly(target, source_lang, target_lang)):
        evidence = "by their names" if by_name else "by their text"
        raise UsageError(
            f"source and target are swapped: {source} is {name_of(target_lang)} and {target} is "
            f"{name_of(source_lang)} {evidence}, but the model is to translate from {name_of(source_lang)} "
            f"({source_lang}) to {name_of(target_lang)} ({target_lang}). Swap the two files, or the languages "
            f"(--source-lang {target_lang} --target-lang {source_lang}). For a model of both directions: --both-ways"
        )


def check_corpus_not_swapped(file: Path, languages: Sequence[str]) -> None:
    """Refuse a corpus file whose sides are in each other's language, by their text."""
    if len(set(languages)) < len(languages) or not all(languages):
        return
    pairs = list(islice(corpus_files.read_pairs(file, languages), LANGUAGE_SAMPLE))
    sides = [[side.decode(errors="replace") for side in side_of_all] for side_of_all in zip(*pairs, strict=True)]
    source, target = languages
    if sides and mostly_looks_like(sides[0], target, source) and mostly_looks_like(sides[1], source, target):
        raise UsageError(
            f"the sides of {file} are swapped: its first one is {name_of(target)} by its text, but the model is to "
            f"translate from {name_of(source)} ({source}) to {name_of(target)} ({target}). Swap its columns, or the "
            f"languages (--source-lang {target} --target-lang {source})"
        )


def _is_mostly(file: Path, language: str, rather_than: str) -> bool:
    if str(file) == STANDARD_INPUT:
        return False
    lines = (line.decode(errors="replace") for line in islice(read_lines(file), LANGUAGE_SAMPLE))
    return mostly_looks_like(lines, language, rather_than)


def in_several_directions(text: ParallelText, several: SeveralLanguages | None) -> ParallelText:
    """Return a text of one corpus as that of a model of several directions."""
    if not several:
        return text
    valid = [(text.valid, several.corpora[0])] if text.valid is not None else []
    return replace(text, valid=None, languages=several.corpora, both_ways=several.both_ways, valid_corpora=valid)
