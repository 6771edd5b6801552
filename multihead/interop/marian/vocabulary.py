"""The vocabulary of a Marian folder: two SentencePiece models over one list of pieces, as one tokenizer of ours.

Text is read with the pieces of source.spm and written with those of target.spm; vocab.json numbers the pieces of both.
One Unigram model has all of them. Pieces of target.spm alone are marked, so that no source is cut into them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from multihead.errors import UserError
from multihead.interop.marian.folder import MarianFolder
from multihead.text.tokenizer import SENTENCEPIECE_SPACE, SPECIAL_TOKENS, TARGET_ONLY_PREFIX, SubwordTokenizer

UNIGRAM = 1  # SentencePiece's number of the kind of model that OPUS-MT has
NORMAL, USER_DEFINED, BYTE = 1, 4, 6  # its numbers of kinds of pieces
UNKNOWN_PENALTY = 10.0  # how far an unknown character is below the unlikeliest piece, in SentencePiece
UNKNOWN = "<unk>"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Pieces in the order of their ids, and how text is cut into them."""

    pieces: list[str]
    unk_id: int
    source: Any = None  # the ModelProto of source.spm
    target: Any = None  # and of target.spm
    ours: SubwordTokenizer | None = None  # a folder that Multihead wrote has its tokenizer

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def is_own(self) -> bool:
        return self.ours is not None

    def tokenizer(self, order: Sequence[int]) -> SubwordTokenizer:
        """A tokenizer whose ids stand for these of theirs; the first are pad, unk, start and end."""
        return self.ours or _make_tokenizer(self.source, self.target, [self.pieces[id] for id in order])


def read_vocabulary(folder: MarianFolder) -> Vocabulary:
    if not folder.has("source.spm") and folder.has("tokenizer.json"):
        folder.read("tokenizer.json")  # its size is checked
        ours = SubwordTokenizer.load(folder.file("tokenizer.json"))
        return Vocabulary(ours.pieces(), SPECIAL_TOKENS.index(UNKNOWN), ours=ours)
    pieces = _read_pieces(folder)
    source, target = (_read_spm(folder, name) for name in ("source.spm", "target.spm"))
    return Vocabulary(pieces, pieces.index(UNKNOWN), source, target)


def _read_pieces(folder: MarianFolder) -> list[str]:
    """vocab.json as a list; its ids have to be all of 0 … V-1."""
    ids = folder.json("vocab.json")
    if not all(type(id) is int for id in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise UserError(f"{folder.path}/vocab.json does not number its {len(ids)} pieces from 0 on")
    if UNKNOWN not in ids:
        raise UserError(f"{folder.path}/vocab.json has no {UNKNOWN}")
    return sorted(ids, key=ids.__getitem__)


def _read_spm(folder: MarianFolder, name: str) -> Any:
    """A SentencePiece model, parsed and checked; it is data, and nothing of it is run."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise UserError("SentencePiece is not installed: pip install 'multihead[interop]'") from None
    proto = getattr(sentencepiece_model_pb2, "ModelProto")()  # noqa: B009  # made at run time, unknown to mypy
    try:
        proto.ParseFromString(folder.read(name))
    except Exception as error:  # the library's own, whose name depends on how it was built
        raise UserError(f"{folder.path / name} is no SentencePiece model: {error}") from None
    if not proto.pieces:
        raise UserError(f"{folder.path / name} is no SentencePiece model: it has no pieces")
    if proto.trainer_spec.model_type != UNIGRAM or any(piece.type == BYTE for piece in proto.pieces):
        raise UserError(f"{folder.path / name} is not of the kind that OPUS-MT has: unigram, without bytes")
    return proto


def _scores(proto: Any) -> dict[str, float]:
    return {piece.piece: piece.score for piece in proto.pieces if piece.type in (NORMAL, USER_DEFINED)}


def _make_tokenizer(source: Any, target: Any, pieces: list[str]) -> SubwordTokenizer:
    scores, target_scores = _scores(source), _scores(target)
    least = min(scores.values(), default=0.0)
    whole = {piece.piece for piece in source.pieces if piece.type == USER_DEFINED}
    whole |= {piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")}  # codes of languages
    named = SPECIAL_TOKENS + [piece if piece not in SPECIAL_TOKENS else f"{piece}'" for piece in pieces[4:]]
    vocabulary = []
    for id, piece in enumerate(named):
        if piece in scores or piece in whole or id < len(SPECIAL_TOKENS):
            vocabulary.append((piece, scores.get(piece, least)))
        elif len(piece) == 1:  # SentencePiece gives back what it does not know, and vocab.json may know it
            vocabulary.append((piece, least - UNKNOWN_PENALTY))
        else:
            # Not below the least of the source: that decides how unlikely an unknown character is.
            vocabulary.append((TARGET_ONLY_PREFIX + piece, max(least, target_scores.get(piece, least))))
    try:
        backend = Tokenizer(models.Unigram(vocabulary, unk_id=SPECIAL_TOKENS.index(UNKNOWN), byte_fallback=False))
        backend.normalizer = _normalizer(source.normalizer_spec)
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"source.spm cannot be read: {error}") from None
    prefix = "always" if source.normalizer_spec.add_dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(SENTENCEPIECE_SPACE, prefix),
            # A control symbol that stands in a text is cut in two, and so stays text.
            pre_tokenizers.Split(Regex(r"<(?=(?:pad|unk|/?s)>)"), "isolated"),
        ]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace(TARGET_ONLY_PREFIX, ""), decoders.Metaspace(SENTENCEPIECE_SPACE, prefix)]
    )
    backend.add_tokens([AddedToken(piece, normalized=False, special=False) for piece in named if piece in whole])
    return SubwordTokenizer(backend)


def _normalizer(spec: Any) -> Any:
    steps: list[Any] = [normalizers.Precompiled(spec.precompiled_charsmap)] if spec.precompiled_charsmap else []
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(steps)
