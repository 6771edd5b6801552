"""A corpus file of any format, by the ending of its name."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from multihead.data.readers import jsonl, moses_zip, parquet, po, tables, tmx, xliff
from multihead.data.readers.language_codes import base_codes, find_languages
from multihead.data.readers.opening import TextPair
from multihead.errors import UsageError, UserError
from multihead.text.file_formats import recognize, recognize_binary
from multihead.text.language import is_known
from multihead.text.lines import STANDARD_INPUT, file_size


@dataclass(frozen=True, slots=True)
class CorpusFormat:
    """How the files of a format are read."""

    read_pairs: Callable[[Path, Sequence[str]], Iterator[TextPair]]
    languages_of: Callable[[Path], list[str]]


_TMX = CorpusFormat(tmx.read_pairs, tmx.languages_of)
_XLIFF = CorpusFormat(xliff.read_pairs, xliff.languages_of)
_PO = CorpusFormat(po.read_pairs, po.languages_of)
_TSV = CorpusFormat(tables.read_pairs, tables.languages_of)
_CSV = CorpusFormat(partial(tables.read_pairs, is_csv=True), partial(tables.languages_of, is_csv=True))
_JSONL = CorpusFormat(jsonl.read_pairs, jsonl.languages_of)
_PARQUET = CorpusFormat(parquet.read_pairs, parquet.languages_of)
_ZIP = CorpusFormat(moses_zip.read_pairs, moses_zip.languages_of)

FORMATS: dict[str, CorpusFormat] = {
    **{"tmx": _TMX, "xliff": _XLIFF, "xlf": _XLIFF, "sdlxliff": _XLIFF, "mqxliff": _XLIFF, "mxliff": _XLIFF},
    **{"po": _PO, "tsv": _TSV, "txt": _TSV, "csv": _CSV},
    **{"jsonl": _JSONL, "ndjson": _JSONL, "json": _JSONL, "parquet": _PARQUET, "zip": _ZIP},
}
COMPRESSIONS = (".gz", ".xz")


def format_of(path: Path) -> CorpusFormat:
    """Return the format that the name of a corpus file ends in, apart from .gz or .xz, or else that of its content."""
    if str(path) == STANDARD_INPUT:
        raise UsageError("--corpus takes a file, whose name tells its format; standard input has none")
    file_size(path)
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    ending = name.suffix.lower().removeprefix(".")
    if ending not in FORMATS or ending == "txt":
        content = recognize_binary(path) or recognize(path)
        ending = content.ending if content and content.ending else ending
    found = FORMATS.get(ending)
    if found is None:
        raise UsageError(
            f"--corpus reads files whose names end in {', '.join(FORMATS)}, also with .gz or .xz; {path} does not. "
            "Two files of plain text are --source and --target"
        )
    return found


def read_pairs(path: Path, languages: Sequence[str]) -> Iterator[TextPair]:
    """Yield the pairs of a corpus file in two languages."""
    return format_of(path).read_pairs(path, languages)


def find_pair_languages(path: Path, known: Sequence[str] = ("", "")) -> list[str]:
    """Return the source and target language of a corpus file, of which the user may have named one or both."""
    if all(known):
        return list(known)
    codes = list(dict.fromkeys(format_of(path).languages_of(path)))
    named = [code for code in known if code]
    others = [code for code in codes if not find_languages((code,), tuple(named))]
    bases = base_codes(others)
    if len(bases) + len(named) != len(known) and not named:
        bases = languages_in_name(path) or bases
    if len(bases) + len(named) != len(known):
        present = f"it has {', '.join(codes)}" if codes else "the file does not name them"
        raise UserError(f"give the languages of {path} with --source-lang and --target-lang: {present}")
    return [code or bases.pop(0) for code in known]


def languages_in_name(path: Path) -> list[str]:
    """Return the languages that the name of a file has side by side: en and de of europarl.en-de.tsv.gz."""
    for one, other in re.findall(r"(?<![^\W_])([a-z]{2,3})[-_]([a-z]{2,3})(?![^\W_])", path.name):
        if one != other and is_known(one) and is_known(other):
            return [one, other]
    return []


def count_pairs(path: Path, languages: Sequence[str]) -> int:
    """Return the number of pairs, for which all formats but Parquet have to be read once."""
    return parquet.count_rows(path) if format_of(path) is _PARQUET else sum(1 for _ in read_pairs(path, languages))
