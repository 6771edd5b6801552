"""A tokenizer.json is accepted in the forms that Multihead writes, and in no other."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multihead.errors import UserError
from multihead.storage.files import BUNDLED
from multihead.text.tokenizer import SubwordTokenizer
from multihead.text.tokenizer_form import is_valid_charsmap

TEXTS = ["some words that are repeated " * 3] * 3


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_what_is_learned_is_accepted_and_stays_the_same(tmp_path: Path, kind: str) -> None:
    learned = SubwordTokenizer.learn(TEXTS, 280, kind)
    for content in (learned.to_json(), learned.json_with_eos()):
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
        assert SubwordTokenizer.load(tmp_path / "tokenizer.json").to_json() == learned.to_json()


@pytest.mark.parametrize("name", ["en-de", "lesson"])
def test_bundled_tokenizers_are_accepted(name: str) -> None:
    assert SubwordTokenizer.load(BUNDLED / name / "tokenizer.json").vocab_size


REPLACE = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 10}
FIXED = {"strategy": {"Fixed": 10**7}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(normalizer={"type": "Sequence", "normalizers": [REPLACE] * 9}),
        lambda document: document.update(decoder={"type": "Sequence", "decoders": [REPLACE] * 9}),
        lambda document: document.update(padding=FIXED),
        lambda document: document.update(added_tokens=[]),
        lambda document: document.update(more=1),
        lambda document: document["normalizer"].update(prepend="x" * 1000),
        lambda document: document["model"].update(type="WordLevel"),
        lambda document: document["model"].update(dropout=0.5),
        lambda document: document["model"]["vocab"].update(extra=10**9),
        lambda document: document["model"]["vocab"].update(漢=len(document["model"]["vocab"])),
        lambda document: document["model"].pop("vocab"),
    ],
)
def test_any_other_form_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(SubwordTokenizer.learn(TEXTS, 280).to_json())
    change(document)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match="is not a Multihead tokenizer"):
        SubwordTokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("change", [{"content": "word"}, {"id": 10}, {"special": False}, {"lstrip": True}])
def test_reserved_pieces_have_one_form(tmp_path: Path, change: dict[str, object]) -> None:
    document = json.loads(SubwordTokenizer.learn(TEXTS, 280, reserved=[">>de<<"]).to_json())
    document["added_tokens"][-1].update(change)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match="is not a Multihead tokenizer"):
        SubwordTokenizer.load(tmp_path / "tokenizer.json")


def charsmap(units: list[int], replacements: bytes = b"a\0") -> bytes:
    trie = struct.pack("<256I", *units, *[0] * (256 - len(units)))
    return struct.pack("<I", len(trie)) + trie + replacements


def test_a_character_map_that_leads_outside_of_itself_is_refused() -> None:
    assert is_valid_charsmap(charsmap([0]))
    assert not is_valid_charsmap(b"")
    assert not is_valid_charsmap(struct.pack("<I", 2**32 - 4) + bytes(1024) + b"\0")
    assert not is_valid_charsmap(charsmap([256 << 10]))  # to a unit after the last one
    assert not is_valid_charsmap(charsmap([1 << 31 | 5]))  # to a replacement after the last one
    assert not is_valid_charsmap(charsmap([0], b"a" * 2000 + b"\0"))
    assert not is_valid_charsmap(charsmap([1 << 31 | 1], "ü\0".encode()))  # into the middle of a character
