"""Folders as OPUS-MT has them: a random MarianMTModel with SentencePiece vocabularies learned from a few sentences."""

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

SENTENCES = [
    "A man rides his bike to the station.",
    "Two dogs are playing in the snow.",
    "The woman reads a book, and the child sleeps.",
    "Where is the station?",
    "He doesn't know it yet!",
    "Three girls with hats sing a song.",
    "It rains.",
    "The old house at the lake is empty.",
    "Nobody saw the black cat under the table.",
    "I would like a cup of tea with milk.",
]
TRANSLATIONS = [
    "Ein Mann fährt mit dem Fahrrad zum Bahnhof.",
    "Zwei Hunde spielen im Schnee.",
    "Die Frau liest ein Buch, und das Kind schläft.",
    "Wo ist der Bahnhof?",
    "Er weiß es noch nicht!",
    "Drei Mädchen mit Hüten singen ein Lied.",
    "Es regnet.",
    "Das alte Haus am See ist leer.",
    "Niemand sah die schwarze Katze unter dem Tisch.",
    "Ich hätte gern eine Tasse Tee mit Milch.",
]


@dataclass(frozen=True)
class TheirModel:
    """A model of transformers, and the folder that it lies in."""

    model: Any
    tokenizer: Any
    folder: Path

    @property
    def eos_id(self) -> int:
        return int(self.model.config.eos_token_id)

    def places(self) -> dict[int, int]:
        """Their id of a source piece for each of ours."""
        return self._places(self.tokenizer.encoder)

    def target_places(self) -> dict[int, int]:
        """Their id of a target piece for each of ours; the same, unless the vocabularies are separate."""
        return self._places(self._target_vocabulary)

    def _places(self, vocabulary: dict[str, int]) -> dict[int, int]:
        """Pad, unk, start, which is pad, and end come first; then those of the source, then those of the target."""
        symbols = ["<pad>", "<unk>", "<pad>", "</s>"]
        both = [sorted(one, key=one.__getitem__) for one in (self.tokenizer.encoder, self._target_vocabulary)]
        others = [piece for piece in dict.fromkeys([*both[0], *both[1]]) if piece not in symbols]
        return {id: vocabulary[piece] for id, piece in enumerate([*symbols, *others]) if piece in vocabulary}

    @property
    def _target_vocabulary(self) -> dict[str, int]:
        found: dict[str, int] = getattr(self.tokenizer, "target_encoder", self.tokenizer.encoder)
        return found

    def translate(self, text: str, beam: int, limit: int) -> str:
        """With `limit` tokens at most, the end symbol counted."""
        options: dict[str, Any] = {"num_beams": beam, "max_new_tokens": limit, "forced_eos_token_id": None}
        options |= {"length_penalty": 0.0, "early_stopping": "never"} if beam > 1 else {}
        batch = self.tokenizer([text], return_tensors="pt")
        config = self.model.config
        never = [[id] for id in {config.pad_token_id, config.decoder_start_token_id}]
        ids = self.model.generate(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, bad_words_ids=never, **options
        )
        return str(self.tokenizer.decode(ids[0], skip_special_tokens=True))


def opus_folder(  # noqa: PLR0913  # what folders differ in
    folder: Path,
    *,
    codes: Iterable[str] = (),
    n_target: int = 0,
    dtype: torch.dtype = torch.float32,
    stored: Iterable[str] = (),
    change: Callable[[dict[str, Tensor]], object] = lambda tensors: None,
    **shape: Any,
) -> TheirModel:
    """`stored` tensors are written although transformers computes them, and `change` changes what is written.

    With `n_target`, the target has a vocabulary of its own, of so many pieces.
    """
    import transformers

    vocabulary = write_separate_vocabularies(folder, n_target) if n_target else write_vocabulary(folder, codes)
    size: dict[str, Any] = {"d_model": 16, "max_position_embeddings": 128, "scale_embedding": True}
    for stack in ("encoder", "decoder"):
        size |= {f"{stack}_layers": 2, f"{stack}_attention_heads": 2, f"{stack}_ffn_dim": 24}
    if n_target:
        size |= {"decoder_vocab_size": n_target, "share_encoder_decoder_embeddings": False}
    ids = {"vocab_size": len(vocabulary), "pad_token_id": vocabulary["<pad>"], "eos_token_id": 0}
    ids |= {"decoder_start_token_id": ids["pad_token_id"], "forced_eos_token_id": 0}
    torch.manual_seed(5)
    model: Any = transformers.MarianMTModel(transformers.MarianConfig(**size | ids | shape))
    model.eval()
    lively([parameter for parameter in model.parameters() if parameter.requires_grad])
    with torch.no_grad():
        model.final_logits_bias.normal_()
    model.to(dtype).save_pretrained(folder)
    tensors = model.state_dict()
    if stored:
        from safetensors.torch import load_file

        written = load_file(folder / "model.safetensors") | {name: tensors[name].clone() for name in stored}
        change(written)
        save_file(written, folder / "model.safetensors", {"format": "pt"})
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder, source_lang="en", target_lang="de")
    return TheirModel(model, tokenizer, folder)


def lively(parameters: Iterable[Tensor]) -> None:
    """Make a random model sure of what it says, so that no near tie is decided by the last digit."""
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.3 * torch.randn_like(parameter))


def write_vocabulary(folder: Path, codes: Iterable[str] = ()) -> dict[str, int]:
    """source.spm, target.spm, and vocab.json with the pieces of both between `</s>`, `<unk>` and `<pad>`."""
    folder.mkdir(parents=True)
    pieces: dict[str, None] = {}
    for name, texts in (("source", SENTENCES), ("target", TRANSLATIONS)):
        model = learn_spm(tuple(texts))
        (folder / f"{name}.spm").write_bytes(model)
        pieces |= dict.fromkeys(pieces_of(model))
    ordered = ["</s>", "<unk>", *codes, *(piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")), "<pad>"]
    vocabulary = {piece: id for id, piece in enumerate(ordered)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return vocabulary


def write_separate_vocabularies(folder: Path, n_target: int) -> dict[str, int]:
    """source.spm, target.spm, vocab.json and target_vocab.json; the control symbols have the same ids in both."""
    folder.mkdir(parents=True)
    symbols = ["</s>", "<unk>", "<pad>"]
    vocabularies = []
    for name, file, texts, size in (
        ("source", "vocab", SENTENCES, 80),
        ("target", "target_vocab", TRANSLATIONS, n_target),
    ):
        model = learn_spm(tuple(texts), size)  # of its control symbols, <s> is left out; <pad> is added
        (folder / f"{name}.spm").write_bytes(model)
        pieces = [*symbols, *(piece for piece in pieces_of(model) if piece not in ("<s>", *symbols))]
        vocabularies.append({piece: id for id, piece in enumerate(pieces)})
        (folder / f"{file}.json").write_text(json.dumps(vocabularies[-1]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"separate_vocabs": true}', encoding="utf-8")
    return vocabularies[0]


@functools.cache
def learn_spm(texts: tuple[str, ...], size: int = 80) -> bytes:
    import sentencepiece

    written = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=written, vocab_size=size, model_type="unigram", minloglevel=2
    )
    return written.getvalue()


def pieces_of(model: bytes) -> list[str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(id) for id in range(processor.get_piece_size())]
