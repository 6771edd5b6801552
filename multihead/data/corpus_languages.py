"""The languages of each corpus that a user names, by options, file names and headers."""

from collections.abc import Sequence
from pathlib import Path

from multihead.config.directions import Languages
from multihead.data.parallel_text import guess_language
from multihead.data.readers.corpus import find_pair_languages
from multihead.errors import UserError
from multihead.text.language import find_code


def corpus_languages(
    sources: Sequence[Path], targets: Sequence[Path], files: Sequence[Path], given: Sequence[Languages]
) -> list[Languages]:
    """Return the languages of each pair of files, then of each file with both sides.

    `given` has one pair for all corpora, or one for each, with empty texts where the user named none. What is not
    known is as in the first corpus. A file with both sides is read in the direction of an earlier corpus.
    """
    n_corpora = len(sources) + len(files)
    named = list(given) if len(given) == n_corpora else [given[0] if given else ("", "")] * n_corpora
    found: list[Languages] = [
        (known[0] or guess_language(source), known[1] or guess_language(target))
        for source, target, known in zip(sources, targets, named, strict=False)
    ]
    for file, known in zip(files, named[len(sources) :], strict=True):
        languages = _of_file(file, known, is_first=not found)
        found.append(languages[::-1] if languages[::-1] in found and not all(known) else languages)
    return [_completed(languages, found[0]) for languages in found]


def _of_file(file: Path, known: Languages, is_first: bool) -> Languages:
    try:
        source, target = find_pair_languages(file, known)
    except UserError:
        if is_first:
            raise
        return known
    return source, target


def _completed(languages: Languages, first: Languages) -> Languages:
    return languages if all(languages) else first


def among(languages: Languages, directions: Sequence[Languages]) -> Languages | None:
    """Return which of some directions means these languages."""
    source, target = (find_code(code, [pair[side] for pair in directions]) for side, code in enumerate(languages))
    return (source, target) if source and target and (source, target) in directions else None
