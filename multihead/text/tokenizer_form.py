"""The forms of tokenizer.json that Multihead writes. Any other one is refused before the library sees it.

The format of the `tokenizers` library is a small language: its regular expressions, replacements and padding can take
any amount of time and memory. A file of ours has only a few forms, and its vocabulary.
"""

import base64
import binascii
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multihead.errors import UserError

MAX_PIECE = 10_000  # characters; more would let a few tokens fill the memory
MAX_PIECES = 1_000_000
MAX_NORMALIZED = 1000  # bytes that SentencePiece replaces a character by; Unicode has at most 33

# A word keeps its accents, vowel signs and inner apostrophes (\p{M} matters in Hindi, Thai, Arabic, ...) and the
# zero-width joiners of Sinhala, Malayalam and Persian; digits are words, so that numbers are copied digit by digit,
# and punctuation is separate from words.
_LETTERS = r"[\p{L}\p{M}][\p{L}\p{M}\u200c\u200d]*"
_LETTERS_BEFORE_0_2 = r"[\p{L}\p{M}]+"


def _words(letters: str) -> str:
    return rf" ?{letters}(?:['\u2019]{letters})*| ?\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+|\s+(?!\S)|\s+"


WORDS = _words(_LETTERS)
# Words of tasks and treebanks, where all spaces are written; cut before < so that no text is taken for a special token.
BETWEEN_SPACES = r" ?[^\s<]+| ?<|\s+(?!\S)|\s+"

# Names of reserved pieces: languages to translate into, as in OPUS-MT, and marks such as <bt>.
RESERVED = r">>[A-Za-z0-9_-]{1,40}<<|<[a-z][a-z0-9_-]{0,39}>"

Form = Mapping[str, Any]  # values that the entries of an object may have; an entry that is not listed is refused

_ADDED: Form = {"single_word": [False], "lstrip": [False], "rstrip": [False], "normalized": [False]}


def _byte_level_form(special_tokens: Sequence[str]) -> Form:
    """Return the form of a vocabulary that Multihead learned."""
    end, end_id = special_tokens[-1], len(special_tokens) - 1
    with_end = {  # in an export to Marian
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": end, "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {end: {"id": end, "ids": [end_id], "tokens": [end]}},
    }
    bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    splits = [
        {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
        for words in (WORDS, _words(_LETTERS_BEFORE_0_2), BETWEEN_SPACES)
    ]
    text_of = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {
        "normalizer": [{"type": "Prepend", "prepend": " "}],
        "pre_tokenizer": [{"type": "Sequence", "pretokenizers": [split, bytes_of]} for split in splits],
        "post_processor": [None, with_end],
        "decoder": [{"type": "Sequence", "decoders": [text_of, strip]}],
    }


def _unigram_form(charsmap: str | None) -> Form:
    """Return the form of a SentencePiece vocabulary that Multihead imported."""
    spaces = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    mapped = [] if charsmap is None else [{"type": "Precompiled", "precompiled_charsmap": charsmap}]
    metaspaces = [
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": True}
        for scheme in ("always", "never")
    ]
    special = {"Regex": "<(?=(?:pad|unk|/?s)>)"}
    split = {"type": "Split", "pattern": special, "behavior": "Isolated", "invert": False}
    unmark = {"type": "Replace", "pattern": {"String": "\ue000"}, "content": ""}
    return {
        "normalizer": [{"type": "Sequence", "normalizers": mapped + rest} for rest in ([], spaces)],
        "pre_tokenizer": [{"type": "Sequence", "pretokenizers": [space, split]} for space in metaspaces],
        "post_processor": [None],
        "decoder": [{"type": "Sequence", "decoders": [unmark, space]} for space in metaspaces],
    }


_MODELS: Mapping[str, Form] = {
    "BPE": {
        **{name: (None,) for name in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")},
        **{name: (False,) for name in ("fuse_unk", "byte_fallback", "ignore_merges")},
    },
    "WordPiece": {
        "unk_token": ["<unk>"],
        "continuing_subword_prefix": [""],
        "max_input_chars_per_word": [1_000_000],
    },
    "Unigram": {"unk_id": [1], "byte_fallback": [False]},
}


def check_tokenizer(document: Any, path: Path, special_tokens: Sequence[str], alphabet: Iterable[str]) -> None:
    """Raise UserError unless a parsed tokenizer.json has the form that Multihead writes.

    `alphabet` has the characters that stand for bytes in a vocabulary that Multihead learned.
    """
    try:
        problem = _problem(document, special_tokens, alphabet)
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        raise UserError(f"{path} is not a Multihead tokenizer: {problem}")


def _problem(document: Any, special_tokens: Sequence[str], alphabet: Iterable[str]) -> str | None:
    model, added = document["model"], document["added_tokens"]
    kind = model["type"]
    if kind not in _MODELS:
        return f"its model is of type {kind}"
    is_unigram = kind == "Unigram"
    pieces = [piece for piece, _ in model["vocab"]] if is_unigram else list(model["vocab"])
    model_pieces = set(pieces)
    if not is_unigram and sorted(model["vocab"].values()) != list(range(len(pieces))):
        return f"its {len(pieces):,} pieces are not numbered from 0"
    if problem := _problem_of_pieces(pieces, None if is_unigram else alphabet):
        return problem
    if is_unigram and not all(type(score) in (int, float) and math.isfinite(score) for _, score in model["vocab"]):
        return "a piece has a score that is not finite"
    charsmap = _charsmap(document) if is_unigram else None
    form: Form = _unigram_form(charsmap) if is_unigram else _byte_level_form(special_tokens)
    sizes = {"type": [kind], "vocab": [model["vocab"]], "merges": [model.get("merges")]}
    tokens_form = {**_ADDED, "special": [not is_unigram], "content": pieces, "id": range(len(pieces))}
    own = [token for token in added if token["content"] in model_pieces]
    if not is_unigram and [token["content"] for token in own] != list(special_tokens):
        return f"its special tokens are not {list(special_tokens)}"
    if problem := _problem_of_reserved([token for token in added if token["content"] not in model_pieces], len(pieces)):
        return problem
    whole: Form = {**form, "version": ["1.0"], "truncation": [None], "padding": [None], "model": [model]}
    return (
        _difference(model, {**_MODELS[kind], **sizes}, "model.")
        or _difference(document, {**whole, "added_tokens": [added]})
        or next((found for token in own if (found := _difference(token, tokens_form, "added_tokens."))), None)
        or (charsmap and _problem_of_charsmap(base64.b64decode(charsmap, validate=True)))
    )


def _difference(found: Mapping[str, Any], form: Form, prefix: str = "") -> str | None:
    """Return what an object has that its form does not allow; entries may be missing in files of older libraries."""
    for name, value in found.items():
        if not any(type(value) is type(allowed) and value == allowed for allowed in form.get(name, ())):
            return f"{prefix}{name} is not as Multihead writes it"
    return None


def _problem_of_pieces(pieces: Sequence[str], alphabet: Iterable[str] | None) -> str | None:
    if len(pieces) > MAX_PIECES:
        return f"it has {len(pieces):,} pieces"
    if max(map(len, pieces), default=0) > MAX_PIECE:
        return f"a piece is longer than {MAX_PIECE:,} characters"
    if alphabet is not None and not set("".join(pieces)) <= set(alphabet):
        return "its pieces are not bytes"
    return None


def _problem_of_reserved(tokens: Sequence[Mapping[str, Any]], n_pieces: int) -> str | None:
    """Return what is wrong with the pieces that are not part of the model; their ids follow those of its pieces."""
    form: Form = {**_ADDED, "rstrip": [True], "special": [True]}
    for id, token in enumerate(tokens, n_pieces):
        if not re.fullmatch(RESERVED, token["content"]):
            return f"'{token['content']}' is not the name of a reserved piece"
        if problem := _difference(token, {**form, "content": [token["content"]], "id": [id]}, "added_tokens."):
            return problem
    if n_pieces + len(tokens) > MAX_PIECES:
        return f"it has {n_pieces + len(tokens):,} pieces"
    return None


# The character map of SentencePiece


def _charsmap(document: Mapping[str, Any]) -> str | None:
    steps = document["normalizer"]["normalizers"]
    first = steps[0] if steps else {}
    return first["precompiled_charsmap"] if first.get("type") == "Precompiled" else None


def _problem_of_charsmap(charsmap: bytes) -> str | None:
    return None if is_valid_charsmap(charsmap) else "its character map is damaged"


def is_valid_charsmap(charsmap: bytes) -> bool:
    """Return whether no text can lead outside of a character map: a size, a trie of that size, and the replacements.

    The trie is a double array. A unit leads to the units whose number differs in the last byte, or holds the place of a
    replacement, which ends with a zero.
    """
    size = int.from_bytes(charsmap[:4], "little")
    trie, replacements = charsmap[4 : 4 + size], charsmap[4 + size :]
    if not size or size % 1024 or len(trie) < size or not replacements.endswith(b"\0"):
        return False
    if max(map(len, replacements.split(b"\0"))) > MAX_NORMALIZED:
        return False
    try:
        replacements.decode()
    except UnicodeDecodeError:
        return False
    units = np.frombuffer(trie, "<u4").astype(np.int64)
    is_value = (units >> 31).astype(bool)
    shifts = (units & 0x200) >> 6  # of the offset, 0 or 8 bits
    targets = np.arange(len(units)) ^ ((units >> 10) << shifts)
    values = (units & 0x7FFFFFFF)[is_value]
    starts = np.frombuffer(replacements, np.uint8)
    in_range = (targets[~is_value] < len(units)).all() and (values < len(starts)).all()
    return bool(in_range and ((starts[values] & 0xC0) != 0x80).all())  # not inside of a character
