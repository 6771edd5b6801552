"""Text to ids and back, without a loss and without surprises."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.data.bpe_dropout import BpeDropout
from multihead.errors import UserError
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, SubwordTokenizer

TEXTS = [
    "Ein Mann fährt mit dem Fahrrad zum Bahnhof.",
    "A man rides his bike to the station, doesn't he?",
    "L'homme qui marche n'a pas 1234 amis.",
    "हिन्दी में लिखा हुआ वाक्य",
] * 5
KINDS = ["bpe", "wordpiece"]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> SubwordTokenizer:
    return SubwordTokenizer.learn(TEXTS, 400, request.param)


@given(text=st.text())
def test_any_text_survives_the_round_trip(tokenizer: SubwordTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    "text", ["", " ", "  two  ", "\x00", "\u2028\u0085\r", "\ufeffx", "👩‍👩‍👧", "\u202eabc", "a\tb\n"]
)
def test_awkward_text_survives_the_round_trip(tokenizer: SubwordTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text(), special=st.sampled_from(SPECIAL_TOKENS))
def test_control_symbols_in_a_users_text_are_plain_text(tokenizer: SubwordTokenizer, text: str, special: str) -> None:
    ids = tokenizer.encode(text + special + text)
    assert min(ids) >= len(SPECIAL_TOKENS)
    assert tokenizer.decode(ids) == text + special + text


def test_control_symbols_are_safe_after_loading_too(tokenizer: SubwordTokenizer, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    loaded = SubwordTokenizer.load(tmp_path / "tokenizer.json")
    for text in [*TEXTS, "</s> <pad>"]:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert min(loaded.encode(text)) >= len(SPECIAL_TOKENS)


def test_control_symbols_have_no_text(tokenizer: SubwordTokenizer) -> None:
    assert tokenizer.decode([BOS_ID, *tokenizer.encode("Ein Mann"), EOS_ID, PAD_ID]) == "Ein Mann"


def test_a_batch_equals_its_texts_alone(tokenizer: SubwordTokenizer) -> None:
    assert tokenizer.encode_batch(TEXTS) == [tokenizer.encode(text) for text in TEXTS]


def test_a_word_has_one_form_wherever_it_stands(tokenizer: SubwordTokenizer) -> None:
    (first, *_), (*_, last) = tokenizer.encode("Mann x"), tokenizer.encode("x Mann")
    assert first == last


def test_a_word_keeps_its_vowel_signs_together() -> None:
    """Marks are part of words: otherwise no Indic word could become one piece."""
    tokenizer = SubwordTokenizer.learn(["हिन्दी"] * 10, 400)
    assert len(tokenizer.encode("हिन्दी")) == 1


@pytest.mark.parametrize("word", ["ශ්\u200dරී", "می\u200cخواهم", "അവന്\u200d", "नहीं", "don\u2019t"])  # noqa: RUF001
def test_a_word_keeps_its_zero_width_joiners(word: str) -> None:
    tokenizer = SubwordTokenizer.learn([f"{word} {word}."] * 10, 400)
    assert len(tokenizer.encode(word)) == 1


@given(text=st.text("aශ්රී می\u200c\u200d1.'\u2019👩\ufe0f"))
def test_text_with_zero_width_joiners_survives_the_round_trip(tokenizer: SubwordTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_an_emoji_of_several_people_is_not_cut_at_its_joiners() -> None:
    family = "👩\u200d👩\u200d👧"
    assert len(SubwordTokenizer.learn([family] * 10, 400).encode(family)) == 1


def test_digits_stand_alone(tokenizer: SubwordTokenizer) -> None:
    pieces = tokenizer.tokens(tokenizer.encode("1234"))
    assert [piece.replace("Ġ", "") for piece in pieces if piece != "Ġ"] == ["1", "2", "3", "4"]


def test_learning_is_deterministic() -> None:
    assert len({SubwordTokenizer.learn(TEXTS, 350).to_json() for _ in range(3)}) == 1


def test_a_vocabulary_has_at_most_the_size_asked_for() -> None:
    assert SubwordTokenizer.learn(TEXTS, 300).vocab_size == 300
    assert SubwordTokenizer.learn(["a"], 30_000).vocab_size < 300


def test_a_vocabulary_smaller_than_the_bytes_is_refused_in_words() -> None:
    with pytest.raises(UserError, match="at least 260 entries"):
        SubwordTokenizer.learn(TEXTS, 100)


@given(text=st.sampled_from(TEXTS), dropout=st.floats(0.0, 0.9), seed=st.integers(0, 1000))
def test_bpe_dropout_keeps_the_text(text: str, dropout: float, seed: int) -> None:
    recut = BpeDropout(BPE)(BPE.encode(text), dropout, random.Random(seed))
    assert BPE.decode(recut) == text


def test_bpe_dropout_is_a_function_of_its_generator() -> None:
    ids = BPE.encode(TEXTS[0])
    cuts = [BpeDropout(BPE)(ids, 0.5, random.Random(seed)) for seed in (1, 1, 2)]
    assert cuts[0] == cuts[1] != cuts[2]


def test_bpe_dropout_of_0_is_plain_bpe() -> None:
    for text in TEXTS:
        assert BpeDropout(BPE)(BPE.encode(text), 0.0, random.Random(1)) == BPE.encode(text)


def test_bpe_dropout_gives_more_pieces() -> None:
    ids = BPE.encode(" ".join(TEXTS))
    assert len(BpeDropout(BPE)(ids, 0.3, random.Random(1))) > 1.2 * len(ids)


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"version": "1.0"}'])
def test_a_broken_tokenizer_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        SubwordTokenizer.load(tmp_path / "tokenizer.json")


def test_a_foreign_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    foreign = BPE.to_json().replace("<pad>", "<x>")
    (tmp_path / "tokenizer.json").write_text(foreign, encoding="utf-8")
    with pytest.raises(UserError, match="not a Multihead tokenizer"):
        SubwordTokenizer.load(tmp_path / "tokenizer.json")


BPE = SubwordTokenizer.learn(TEXTS, 400)


def test_a_vocabulary_of_words_is_stored_and_lossless(tmp_path: Path) -> None:
    made = SubwordTokenizer.from_words(["cat", "(NP*DT", "</s>x"], [")", "))", "*NN"])
    (tmp_path / "tokenizer.json").write_text(made.to_json(), encoding="utf-8")
    stored = SubwordTokenizer.load(tmp_path / "tokenizer.json")
    for text in ("cat (NP*DT cat))", " cat  dög\n", "</s> <unk>", ""):
        assert stored.encode(text) == made.encode(text)
        assert stored.decode(stored.encode(text)) == text
    assert [made.is_piece(word) for word in ("cat", "(NP*DT", "dog", "")] == [True, True, False, False]
    assert made.tokens(made.encode("(NP*DT))")) == ["\u0120(NP*DT", "))"]


RESERVED = [">>de<<", ">>fr<<", "<bt>"]


@given(text=st.text(), piece=st.sampled_from(RESERVED))
def test_reserved_pieces_split_no_text_differently(tokenizer: SubwordTokenizer, text: str, piece: str) -> None:
    reserved = tokenizer.with_reserved(RESERVED)
    assert reserved.encode(text + piece + text) == tokenizer.encode(text + piece + text)


def test_reserved_pieces_follow_all_others_and_have_no_text(tokenizer: SubwordTokenizer) -> None:
    reserved = tokenizer.with_reserved(RESERVED)
    ids = [reserved.reserved[name] for name in RESERVED]
    assert ids == [tokenizer.vocab_size, tokenizer.vocab_size + 1, tokenizer.vocab_size + 2]
    assert reserved.decode([ids[0], ids[2], *reserved.encode("Ein Mann")]) == "Ein Mann"
    assert reserved.tokens(ids) == reserved.readable(ids) == RESERVED
    assert reserved.reserved_prefix([ids[0], ids[2], *reserved.encode("Ein"), ids[1]]) == [ids[0], ids[2]]


def test_reserved_pieces_are_added_once(tokenizer: SubwordTokenizer) -> None:
    once = tokenizer.with_reserved([">>de<<", ">>de<<"])
    assert once.with_reserved([">>de<<"]) is once
    assert tokenizer.with_reserved([]) is tokenizer
    assert once.with_reserved(["<bt>"]).reserved == {**once.reserved, "<bt>": once.vocab_size}


def test_reserved_pieces_survive_saving(tokenizer: SubwordTokenizer, tmp_path: Path) -> None:
    reserved = tokenizer.with_reserved(RESERVED)
    (tmp_path / "tokenizer.json").write_text(reserved.to_json(), encoding="utf-8")
    loaded = SubwordTokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.reserved == reserved.reserved
    assert loaded.files() == reserved.files()
    assert [loaded.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_reserved_pieces_count_to_the_size_of_a_vocabulary() -> None:
    assert SubwordTokenizer.learn(TEXTS, 300, reserved=RESERVED).vocab_size == 300


@pytest.mark.parametrize("name", ["de", ">>d e<<", "<BT>", "<pad>", "</s>"])
def test_other_names_cannot_be_reserved(tokenizer: SubwordTokenizer, name: str) -> None:
    with pytest.raises(UserError, match=r"cannot be a reserved piece"):
        tokenizer.with_reserved([name])


def test_bpe_dropout_keeps_reserved_pieces() -> None:
    tokenizer = SubwordTokenizer.learn(TEXTS, 400, reserved=RESERVED)
    first, text = tokenizer.reserved[">>fr<<"], tokenizer.encode(TEXTS[0])
    dropped = BpeDropout(tokenizer)([first, *text], 0.5, random.Random(1))
    assert dropped[0] == first
    assert dropped[1:] != text
    assert tokenizer.decode(dropped) == TEXTS[0]
