"""Text to ids and back, on the `tokenizers` library: one vocabulary for both languages (§5.1), lossless for any text.

Text is split into words, each with the space before it, and words into pieces of bytes, so that
`decode(encode(s)) == s` for any text and no piece is unknown.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from multihead.errors import UsageError, UserError
from multihead.text.tokenizer_form import BETWEEN_SPACES, RESERVED, WORDS, check_tokenizer
from multihead.untrusted import parse_json, read_bytes

FILE, TARGET_FILE = "tokenizer.json", "tokenizer.target.json"
PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
SPECIAL_TOKENS = ["<pad>", "<unk>", "<s>", "</s>"]  # in the order of the ids above
NEVER_GENERATED = [PAD_ID, BOS_ID]  # UNK is allowed: imported Marian models generate it
# Marks pieces of the other language in a vocabulary whose source and target have different pieces.
OTHER_LANGUAGE_PREFIX = "\ue000"

SPACE = "Ġ"  # a space at the start of a piece in a byte-level vocabulary
SENTENCEPIECE_SPACE = "▁"  # the same in a SentencePiece vocabulary

OPEN, CLOSE = "\u2039", "\u203a"  # single angle quotation marks around the hexadecimal number of a byte


class SubwordTokenizer:
    """A subword vocabulary, learned by `learn` and stored as a `tokenizer.json` of the `tokenizers` library.

    An imported vocabulary splits the two languages differently: it has a second tokenizer with the same ids for text of
    the target language, stored as `tokenizer.target.json`.
    """

    def __init__(self, backend: Tokenizer, target: Tokenizer | None = None) -> None:
        for tokenizer in (backend, *([target] if target else [])):
            # Not stored in tokenizer.json: without it "</s>" in a user's text would become the end symbol.
            tokenizer.encode_special_tokens = True
            tokenizer.post_processor = None  # it could add an end symbol; ours is added when batches are made
        self._backend = backend
        self._is_byte_level = not isinstance(backend.model, models.Unigram)  # imported vocabularies are Unigram
        self._target = target

    @property
    def encodes_targets(self) -> bool:
        """Whether text of the target language is split as the model was trained on it; older imports cannot do it."""
        return self._is_byte_level or self._target is not None

    @property
    def vocab_size(self) -> int:
        """The number of pieces, special tokens included."""
        size: int = self._backend.get_vocab_size()
        return size

    @cached_property
    def reserved(self) -> dict[str, int]:
        """The ids of reserved pieces, such as ">>de<<", which have no text and which no text is split into.

        The language codes of an imported vocabulary are among them; as in OPUS-MT, text may contain those.
        """
        added = self._backend.get_added_tokens_decoder().items()
        return {
            token.content: id
            for id, token in sorted(added)
            if id >= len(SPECIAL_TOKENS) and (token.special or re.fullmatch(RESERVED, token.content))
        }

    def with_reserved(self, names: Iterable[str]) -> "SubwordTokenizer":
        """Return a vocabulary with further reserved pieces at its end; no other id and no text changes."""
        new = [name for name in dict.fromkeys(names) if name not in self.reserved]
        if not new:
            return self
        if wrong := [name for name in new if not re.fullmatch(RESERVED, name) or name in self.pieces()]:
            raise UserError(f"'{wrong[0]}' cannot be a reserved piece of this vocabulary")
        backends = [Tokenizer.from_str(one.to_str()) for one in (self._backend, self._target) if one]
        for backend in backends:
            # With `rstrip`, programs that read a reserved piece in text drop the space after it.
            backend.add_special_tokens([AddedToken(name, rstrip=True, normalized=False) for name in new])
        return SubwordTokenizer(*backends)

    def reserved_prefix(self, ids: Sequence[int]) -> list[int]:
        """Return the reserved pieces that ids begin with."""
        return list(takewhile(self._reserved_ids.__contains__, ids))

    @cached_property
    def _reserved_ids(self) -> frozenset[int]:
        return frozenset(self.reserved.values())

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text of the source language, without special tokens."""
        ids: list[int] = self._backend.encode(text).ids
        return ids

    def encode_target(self, text: str) -> list[int]:
        """Return the ids of a text of the target language, without special tokens."""
        ids: list[int] = self._target_backend.encode(text).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, computed on all cores."""
        return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts))]

    def encode_target_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text of the target language, computed on all cores."""
        return [encoding.ids for encoding in self._target_backend.encode_batch_fast(list(texts))]

    @cached_property
    def _target_backend(self) -> Tokenizer:
        if self._is_byte_level:
            return self._backend
        return self._target or _without_marks(self._backend)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without control symbols and reserved pieces."""
        visible = [id for id in ids if id >= len(SPECIAL_TOKENS) and id not in self._reserved_ids]
        text: str = self._backend.decode(visible, skip_special_tokens=False)
        return text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id as it is in the vocabulary."""
        return [(self._backend.id_to_token(id) or "").removeprefix(OTHER_LANGUAGE_PREFIX) for id in ids]

    def readable(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each piece; a piece that starts a word starts with a space.

        The bytes of a character that is split between pieces are shown as numbers.
        """
        return readable_pieces(self.tokens(ids), self._is_byte_level)

    def word_starts(self, ids: Sequence[int]) -> list[bool]:
        """Return for each id whether a space precedes it."""
        return [piece.startswith(" ") for piece in self.readable(ids)]

    def pieces(self) -> list[str]:
        """Return the vocabulary in the order of its ids, as in tokenizer.json."""
        return [self._backend.id_to_token(id) or "" for id in range(self.vocab_size)]

    def merges(self) -> list[tuple[str, str]]:
        """Return the merges of a BPE vocabulary in the order they were learned."""
        return [(left, right) for left, right in json.loads(self._backend.to_str())["model"]["merges"]]

    def to_json(self) -> str:
        """Return the content of tokenizer.json."""
        return self._backend.to_str(pretty=True)

    def files(self) -> dict[str, str]:
        """Return the files of the vocabulary by their names in a model folder."""
        target = {TARGET_FILE: self._target.to_str(pretty=True)} if self._target else {}
        return {FILE: self.to_json(), **target}

    def json_with_eos(self) -> str:
        """Return tokenizer.json for programs that do not add the end symbol to a source themselves."""
        copy = Tokenizer.from_str(self.to_json())
        end = SPECIAL_TOKENS[EOS_ID]
        copy.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, EOS_ID)])
        return copy.to_str(pretty=True)

    @classmethod
    def load(cls, path: Path) -> "SubwordTokenizer":
        """Read a tokenizer.json, and the tokenizer of the target language if there is one next to it.

        Raises UserError if it is missing, damaged or not one of ours.
        """
        backend, beside = _read(path), path.with_name(TARGET_FILE)
        target = _read(beside) if beside.exists() else None
        if target and target.get_vocab_size() != backend.get_vocab_size():
            raise UserError(f"{beside} has other pieces than {path.name}")
        return cls(backend, target)

    @classmethod
    def learn(
        cls, texts: Iterable[str], vocab_size: int, kind: str = "bpe", reserved: Sequence[str] = ()
    ) -> "SubwordTokenizer":
        """Learn at most `vocab_size` pieces, reserved ones included; a small text may yield fewer."""
        minimum = len(SPECIAL_TOKENS) + len(_ALPHABET) + len(reserved)
        if vocab_size < minimum:
            raise UserError(
                f"a vocabulary needs at least {minimum} entries (256 bytes, control symbols), got {vocab_size}"
            )
        model, trainer = _KINDS[kind](vocab_size - len(reserved))
        backend = _byte_level_backend(model, WORDS)
        backend.train_from_iterator(texts, trainer)
        return cls(backend).with_reserved(reserved)

    @classmethod
    def from_words(cls, words: Iterable[str], parts: Iterable[str] = ()) -> "SubwordTokenizer":
        """Return a vocabulary of words between spaces; other words are made of the longest words, parts and bytes."""
        pieces = {_byte_level(f" {word}") for word in words} | {_byte_level(part) for part in parts}
        vocabulary = [*SPECIAL_TOKENS, *_ALPHABET, *sorted(pieces - set(_ALPHABET))]
        model = models.WordPiece(
            vocab={piece: id for id, piece in enumerate(vocabulary)},
            unk_token="<unk>",
            continuing_subword_prefix="",
            max_input_chars_per_word=1_000_000,
        )
        backend = _byte_level_backend(model, BETWEEN_SPACES)
        backend.add_special_tokens(SPECIAL_TOKENS)
        return cls(backend)

    def is_piece(self, word: str) -> bool:
        """Return whether a word is one piece."""
        return len(self.encode(word)) == 1


def _read(path: Path) -> Tokenizer:
    content = read_bytes(path)
    check_tokenizer(parse_json(content, path), path, SPECIAL_TOKENS, _BYTE_OF)
    try:
        backend = Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises no narrower class
        raise UserError(f"cannot read the tokenizer {path}: {error}") from None
    if [backend.id_to_token(id) for id in range(len(SPECIAL_TOKENS))] != SPECIAL_TOKENS:
        raise UserError(f"{path} is not a Multihead tokenizer: its first pieces are not {SPECIAL_TOKENS}")
    return backend


_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())

# A byte-level vocabulary writes a byte as the character with the same number if that is printable, and other bytes as
# the characters from 256 on.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = sorted(set(range(0x100)) - set(_PRINTABLE))
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}
_CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}


def readable_pieces(pieces: Sequence[str], is_byte_level: bool) -> list[str]:
    """Return the text of each piece of a vocabulary, with its space."""
    if is_byte_level:
        return [show_bytes(bytes(_BYTE_OF[character] for character in piece)) for piece in pieces]
    return [piece.replace(SENTENCEPIECE_SPACE, " ") for piece in pieces]


def show_bytes(raw: bytes) -> str:
    """Decode UTF-8, with bytes that are not a complete character shown as numbers."""
    text = raw.decode("utf-8", "surrogateescape")  # marks such bytes by U+DC80 to U+DCFF
    return re.sub("[\udc80-\udcff]", lambda match: f"{OPEN}{ord(match[0]) - 0xDC00:02X}{CLOSE}", text)


def _byte_level(text: str) -> str:
    """Return a text as a byte-level vocabulary writes it."""
    return "".join(_CHARACTER_OF[byte] for byte in text.encode())


def _byte_level_backend(model: Any, words: str) -> Tokenizer:
    """Return a tokenizer that splits text into words by a pattern, and words into pieces of bytes."""
    backend = Tokenizer(model)
    # Every word starts with a space, even the first, so that a word has the same pieces everywhere.
    backend.normalizer = normalizers.Prepend(" ")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return backend


_LEARNING: dict[str, Any] = {
    "special_tokens": SPECIAL_TOKENS,
    "initial_alphabet": _ALPHABET,
    "min_frequency": 2,  # a piece that occurs once is not worth an entry
    "show_progress": False,
}


def _bpe(vocab_size: int) -> tuple[Any, Any]:
    return models.BPE(), trainers.BpeTrainer(vocab_size=vocab_size, **_LEARNING)


def _wordpiece(vocab_size: int) -> tuple[Any, Any]:
    # As in GNMT, the start of a word is marked (by its space) and what continues it is not.
    model = models.WordPiece(unk_token="<unk>", max_input_chars_per_word=1_000_000)
    return model, trainers.WordPieceTrainer(vocab_size=vocab_size, continuing_subword_prefix="", **_LEARNING)


_KINDS = {"bpe": _bpe, "wordpiece": _wordpiece}


def check_trainable(kind: str) -> None:
    """Refuse a kind of tokenizer that cannot be learned, before any text is read."""
    if kind not in _KINDS:
        raise UsageError(f"data.tokenizer={kind} is for imported models only; use {' or '.join(_KINDS)}")


def _without_marks(backend: Tokenizer) -> Tokenizer:
    """Return a tokenizer for targets of a vocabulary without one, in which the pieces of both languages compete."""
    document = json.loads(backend.to_str())
    for entry in document["model"]["vocab"]:
        entry[0] = entry[0].removeprefix(OTHER_LANGUAGE_PREFIX)
    unmarked = Tokenizer.from_str(json.dumps(document))
    unmarked.encode_special_tokens = True
    return unmarked
