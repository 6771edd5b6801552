"""A folder from the network may be anything: it is refused in words, nothing of it is run, and no memory is taken."""

import json
import os
import pickle
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multihead.errors import UserError
from multihead.interop.marian.folder import MAX_BYTES
from multihead.interop.marian.importer import import_marian
from tests.marian import opus_folder

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

MOST_MEMORY = 300_000_000  # bytes that a refusal may take on top of what the process has


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return opus_folder(tmp_path / "opus-mt-en-de").folder


def refuse(folder: Path, words: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = folder.with_name("model")
    with pytest.raises(UserError, match=words):
        import_marian(folder, output)
    assert not output.exists()
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_MEMORY


def change_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.trace,)


def test_a_pickle_is_not_read_and_the_remedy_is_said(folder: Path, tmp_path: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    (folder / "model.safetensors").unlink()
    refuse(folder, r"pytorch_model.bin is not read, since reading it can run code.*save_pretrained")
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    refuse(folder, "cannot read")
    (folder / "source.spm").write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    refuse(folder, "not a SentencePiece model")
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:4],
        lambda data: data[:100],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: struct.pack("<Q", 2**62) + data[8:],
        lambda data: struct.pack("<Q", 2**31) + data[8:],
        lambda data: data[:8] + b"[" * (len(data) - 8),
    ],
    ids=["empty", "four-bytes", "header", "a-byte-less", "a-byte-more", "huge-header", "2-GB-header", "no-json"],
)
def test_damaged_weights_are_refused(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refuse(folder, "cannot read")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"d_model": 32}, "a different shape"),
        ({"encoder_layers": 3}, "is missing"),
        ({"encoder_layers": 1}, "is unexpected"),
        ({"encoder_layers": 10**9}, "encoder_layers"),
        ({"d_model": 10**9}, "d_model"),
        ({"encoder_ffn_dim": 999_999, "decoder_ffn_dim": 999_999}, "a different shape"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings"),
        ({"encoder_ffn_dim": 25}, "a different shape"),
        ({"decoder_ffn_dim": 999_999}, "differ by more than 16 times"),
        ({"d_model": 64, "encoder_attention_heads": 64, "decoder_attention_heads": 1}, "differ by more than 16 times"),
        ({"decoder_attention_heads": 3}, "not a multiple"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "not a multiple"),
        ({"vocab_size": 999_999, "decoder_vocab_size": None}, "pieces, but config.json says"),
        ({"vocab_size": 7, "decoder_vocab_size": 7}, "pieces, but config.json says"),
        ({"decoder_vocab_size": 7}, "cannot share their embeddings"),
        (
            {"decoder_vocab_size": 7, "share_encoder_decoder_embeddings": False},
            "says decoder_vocab_size 7; with target_vocab.json, tokenizer_config.json says separate_vocabs true",
        ),
        ({"pad_token_id": 10**6}, "cannot be"),
        ({"eos_token_id": -1}, "eos_token_id"),
        ({"eos_token_id": [0, 1]}, "eos_token_id"),
        ({"decoder_start_token_id": 0}, "cannot be"),
        ({"activation_function": "mish"}, "activation is mish"),
        ({"model_type": "bart"}, "is not a Marian model of Hugging Face: it is of type bart"),
        ({"normalize_before": True}, "LayerNorm precedes"),
        ({"normalize_embedding": True}, "embeddings have a LayerNorm"),
        ({"dropout": 7.0}, "dropout is 7"),
        ({"d_model": None}, "d_model"),
    ],
    ids=repr,
)
def test_a_config_that_contradicts_the_weights_is_refused(folder: Path, fields: dict[str, Any], words: str) -> None:
    change_config(folder, **fields)
    refuse(folder, words)


NO_CONFIGS = ["", "[]", "{", "null", "[" * 100_000, '{"model_type": "marian"}']


@pytest.mark.parametrize("text", NO_CONFIGS, ids=lambda text: text[:9])
def test_a_config_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refuse(folder, "config.json")


@pytest.mark.parametrize(
    ("vocabulary", "words"),
    [
        ({"</s>": 0, "<unk>": 1, "a": 2}, "pieces, but config.json says"),
        ({"</s>": 0, "<unk>": 1, "a": 1}, "does not number"),
        ({"</s>": 0, "<unk>": 5}, "does not number"),
        ({"</s>": 0, "<unk>": "1"}, "does not number"),
        ({"</s>": 0, "a": 1}, "has no <unk>"),
        ([], "not a JSON object"),
    ],
    ids=repr,
)
def test_a_vocabulary_of_the_wrong_size_is_refused(folder: Path, vocabulary: Any, words: str) -> None:
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    refuse(folder, words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda ids: ids.popitem(), "69 pieces of the target language, but config.json says decoder_vocab_size 70"),
        (lambda ids: ids.update(a=0), "does not number its"),
        (lambda ids: ids.update({"<unk>": "1"}), "does not number its"),
        (lambda ids: ids.update({"<unk>": 10**12}), "does not number its"),
        (lambda ids: ids.update({"new": ids.pop("<unk>")}), "has no <unk>"),
        (lambda ids: ids.update({"</s>": ids["<pad>"], "<pad>": ids["</s>"]}), "different pieces in vocab.json and"),
        (lambda ids: [ids.pop(piece) for piece in list(ids)[2:]], "says decoder_vocab_size 70"),
    ],
    ids=["a-piece-less", "twice", "text", "huge", "no-unk", "other-controls", "two-pieces"],
)
def test_a_wrong_target_vocabulary_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    folder = opus_folder(tmp_path / "opus", n_target=70).folder
    path = folder / "target_vocab.json"
    ids = json.loads(path.read_text())
    change(ids)
    path.write_text(json.dumps(ids))
    refuse(folder, words)


def test_a_target_vocabulary_that_is_missing_or_huge_is_refused(tmp_path: Path) -> None:
    folder = opus_folder(tmp_path / "opus", n_target=70).folder
    os.truncate(folder / "target_vocab.json", MAX_BYTES + 1)
    refuse(folder, "at most")
    (folder / "target_vocab.json").unlink()
    refuse(folder, "has no file target_vocab.json")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"decoder_vocab_size": 999_999}, "decoder_vocab_size 999999"),
        ({"decoder_vocab_size": 10**9}, "decoder_vocab_size"),
        ({"share_encoder_decoder_embeddings": True}, "80 source pieces and 70 target pieces cannot share"),
        ({"vocab_size": 70}, "80 pieces, but config.json says vocab_size 70"),
        ({"pad_token_id": 75, "decoder_start_token_id": 75}, "cannot be"),
    ],
    ids=repr,
)
def test_a_config_that_contradicts_separate_vocabularies_is_refused(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    folder = opus_folder(tmp_path / "opus", n_target=70).folder
    change_config(folder, **fields)
    refuse(folder, words)


def test_a_field_that_is_missing_is_named(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "marian", "vocab_size": 9}')
    refuse(folder, "d_model is missing$")


def test_a_huge_file_is_not_read(folder: Path) -> None:
    for name in ("vocab.json", "source.spm"):
        os.truncate(folder / name, MAX_BYTES + 1)  # a hole, which takes no room
        refuse(folder, "at most")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.json", "source.spm"])
def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(Path("..") / name)
    refuse(folder, "a link to a file outside")


def test_links_into_the_cache_of_the_hub_are_followed(folder: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "cache" / "blobs", tmp_path / "cache" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in folder.iterdir():
        file.rename(blobs / file.name)
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", file.name))
    import_marian(snapshot, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_a_file_that_is_missing_is_named(folder: Path) -> None:
    for name in ("vocab.json", "source.spm", "target.spm"):
        (folder / name).rename(folder / "aside")
        refuse(folder, name)
        (folder / "aside").rename(folder / name)


def test_what_is_there_already_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a").touch()
    with pytest.raises(UserError, match="is not an imported model"):
        import_marian(folder, tmp_path / "letters")
    for _ in range(2):
        import_marian(folder, tmp_path / "model")


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        import_marian(tmp_path / "nothing", tmp_path / "model")
    with pytest.raises(UserError, match="the folder is empty"):
        import_marian(tmp_path, tmp_path / "model")
