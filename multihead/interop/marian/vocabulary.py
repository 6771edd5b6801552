"""The vocabulary of a Marian folder, two SentencePiece models and the lists of their pieces, as one tokenizer.

source.spm and target.spm split text of their languages, and vocab.json numbers the pieces of both, or only those of the
source if target_vocab.json has those of the target. Ours are two Unigram models of all pieces with the same ids, one
per language; the pieces of the other language alone are marked by a prefix, so that no text is split into them.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from multihead.errors import UserError, require
from multihead.interop.marian.folder import MarianFolder
from multihead.text.tokenizer import (
    OTHER_LANGUAGE_PREFIX,
    SENTENCEPIECE_SPACE,
    SPECIAL_TOKENS,
    UNK_ID,
    SubwordTokenizer,
)
from multihead.text.tokenizer_form import is_valid_charsmap

UNIGRAM = 1  # SentencePiece's enum of model types
NORMAL, USER_DEFINED, BYTE = 1, 4, 6  # and of piece types
UNKNOWN_PENALTY = 10.0  # SentencePiece scores an unknown character this far below the least likely piece
UNKNOWN = "<unk>"
SOURCE_PIECES, TARGET_PIECES = "vocab.json", "target_vocab.json"
PIECE_TAG = b"\n"  # the byte that begins a piece, and its text, in the file
MAX_PIECE_TAGS = 2_000_000  # such bytes in a file, of which a vocabulary of 250,000 pieces has 500,000


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The pieces of each language in the order of their ids, and the models that split text into them."""

    source_pieces: list[str]
    target_pieces: list[str]  # the same list, unless the vocabularies are separate
    source: Any = None  # ModelProto of source.spm
    target: Any = None  # ModelProto of target.spm
    native: SubwordTokenizer | None = None  # of a folder that Multihead exported

    @property
    def is_native(self) -> bool:
        return self.native is not None

    def tokenizer(self, pieces: list[str]) -> SubwordTokenizer:
        """Return a tokenizer that numbers these pieces from 0; the first are pad, unk, start and end."""
        if self.native:
            return self.native
        of_source, of_target = set(self.source_pieces), set(self.target_pieces)
        return SubwordTokenizer(
            _backend(self.source, self.target, pieces, of_source), _backend(self.target, self.source, pieces, of_target)
        )


def read_vocabulary(folder: MarianFolder, with_models: bool = True) -> Vocabulary:
    """Read the pieces and, unless they are enough, the models that split text into them."""
    if not folder.has("source.spm") and folder.has("tokenizer.json"):
        folder.read("tokenizer.json")  # checks the size
        native = SubwordTokenizer.load(folder.file("tokenizer.json"))
        pieces = native.pieces()
        return Vocabulary(pieces, pieces, native=native)
    source_pieces = _read_pieces(folder, SOURCE_PIECES)
    target_pieces = _read_pieces(folder, TARGET_PIECES) if folder.has_separate_vocabularies() else source_pieces
    if not with_models:
        return Vocabulary(source_pieces, target_pieces)
    source, target = (_read_spm(folder, name) for name in ("source.spm", "target.spm"))
    return Vocabulary(source_pieces, target_pieces, source, target)


def _read_pieces(folder: MarianFolder, name: str) -> list[str]:
    """Return the pieces of vocab.json or target_vocab.json; their ids must be 0 … V-1."""
    ids = folder.json(name)
    if not all(type(id) is int for id in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise UserError(f"{folder.path / name} does not number its {len(ids)} pieces from 0")
    if UNKNOWN not in ids:
        raise UserError(f"{folder.path / name} has no {UNKNOWN}")
    return sorted(ids, key=ids.__getitem__)


def _read_spm(folder: MarianFolder, name: str) -> Any:
    """Parse a SentencePiece model, which is data and contains no code."""
    messages: Any = require("sentencepiece.sentencepiece_model_pb2", extra="interop", purpose="a Marian model")
    decode_error: type[Exception] = require(
        "google.protobuf.message", extra="interop", purpose="a Marian model"
    ).DecodeError
    proto, content = messages.ModelProto(), folder.read(name)
    if content.count(PIECE_TAG) > MAX_PIECE_TAGS:  # an empty piece has two bytes, and takes many times that in memory
        raise UserError(f"{folder.path / name} is not a SentencePiece model of OPUS-MT: it has too many pieces")
    try:
        proto.ParseFromString(content)
    except decode_error as error:
        raise UserError(f"{folder.path / name} is not a SentencePiece model: {error}") from None
    if not proto.pieces:
        raise UserError(f"{folder.path / name} is not a SentencePiece model: it has no pieces")
    charsmap = proto.normalizer_spec.precompiled_charsmap
    if charsmap and not is_valid_charsmap(charsmap):
        raise UserError(f"{folder.path / name} is damaged: its character map leads outside of itself")
    if proto.trainer_spec.model_type != UNIGRAM or any(piece.type == BYTE for piece in proto.pieces):
        raise UserError(f"{folder.path / name} is not a SentencePiece model of OPUS-MT: unigram, without bytes")
    return proto


def _scores(proto: Any) -> dict[str, float]:
    return {piece.piece: _rounded(piece.score) for piece in proto.pieces if piece.type in (NORMAL, USER_DEFINED)}


def _rounded(score: float) -> float:
    """Return a score with the digits of its 32 bits: the tokenizers library reads longer numbers inexactly."""
    return float(f"{score:.9g}")


def _backend(model: Any, other: Any, pieces: list[str], own: Collection[str]) -> Tokenizer:
    """Return a tokenizer that splits text as `model` does, into pieces of its own vocabulary.

    `other` is the model of the other language.
    """
    scores, other_scores = _scores(model), _scores(other)
    least = min(scores.values(), default=0.0)
    unsplit = {piece.piece for piece in model.pieces if piece.type == USER_DEFINED}
    unsplit |= {piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")}  # language codes
    unsplit &= set(own)
    names = SPECIAL_TOKENS + [piece if piece not in SPECIAL_TOKENS else f"{piece}'" for piece in pieces[4:]]
    vocabulary = []
    for id, piece in enumerate(names):
        is_own = pieces[id] in own
        if id < len(SPECIAL_TOKENS) or piece in unsplit or (is_own and piece in scores):
            vocabulary.append((piece, scores.get(piece, least)))
        elif is_own and len(piece) == 1:  # SentencePiece returns unknown characters, which vocab.json may have
            vocabulary.append((piece, _rounded(least - UNKNOWN_PENALTY)))
        else:
            # Not below the least score of the model, which determines the score of unknown characters.
            vocabulary.append((OTHER_LANGUAGE_PREFIX + piece, max(least, other_scores.get(piece, least))))
    backend = Tokenizer(_from_spm(lambda: models.Unigram(vocabulary, unk_id=UNK_ID, byte_fallback=False)))
    backend.normalizer = _normalizer(model.normalizer_spec)
    prefix = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(SENTENCEPIECE_SPACE, prefix),
            # A special token that occurs in text is split, so that it stays text.
            pre_tokenizers.Split(Regex(r"<(?=(?:pad|unk|/?s)>)"), "isolated"),
        ]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace(OTHER_LANGUAGE_PREFIX, ""), decoders.Metaspace(SENTENCEPIECE_SPACE, prefix)]
    )
    backend.add_tokens([AddedToken(piece, normalized=False, special=False) for piece in names if piece in unsplit])
    return backend


def _normalizer(spec: Any) -> Any:
    charsmap = spec.precompiled_charsmap
    steps: list[Any] = [_from_spm(lambda: normalizers.Precompiled(charsmap))] if charsmap else []
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(steps)


def _from_spm(make: Callable[[], Any]) -> Any:
    """Call the tokenizers library with content of a SentencePiece model, which it may reject."""
    try:
        return make()
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"a SentencePiece model cannot be read: {error}") from None
