"""A translation for each text, in order, the same whatever the other texts are."""

import itertools
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import multihead
from multihead.config.resolve import configure
from multihead.config.schema import ModelSearch, RunConfig, SearchConfig
from multihead.errors import UsageError, UserError
from multihead.model.transformer import Transformer
from multihead.text.lines import TextInput
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.engine import length_penalty
from multihead.translation.engines import ctranslate2_engine, torch_engine
from multihead.translation.engines.torch_engine import TorchEngine
from multihead.translation.translator import Alternative, Translation, Translator, as_line
from tests.conftest import copy_or_reverse

TEXTS = ["Ein Mann fährt mit dem Fahrrad zum Bahnhof.", "A man rides his bike to the station, doesn't he?"] * 5
TOKENIZER = SubwordTokenizer.learn(TEXTS, 400)
SHAPE = {"d_model": 16, "d_ff": 16, "n_heads": 2, "d_k": 8, "d_v": 8, "encoder_layers": 1, "decoder_layers": 1}


def random_translator(max_length: int = 64, **data: object) -> Translator:
    """Return a translator whose untrained model generates arbitrary output."""
    named = {f"model.{name}": value for name, value in SHAPE.items()} | {
        "model.vocab_size": TOKENIZER.vocab_size,
        "data.max_length": max_length,
        "data.source_lang": "en",
        "data.target_lang": "de",
        **{f"data.{name}": value for name, value in data.items()},
    }
    config: RunConfig = configure(named)
    torch.manual_seed(1)
    models = [Transformer(config.model).eval()]
    return Translator(TOKENIZER, config, "random", TorchEngine(models), lambda: models)


RANDOM = random_translator()
FAST: dict[str, Any] = {"beam": 1, "max_extra": 2}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lines=st.lists(st.text(max_size=30).filter(lambda line: "\n" not in line), max_size=8))
def test_every_line_gives_one_line(lines: list[str]) -> None:
    results = RANDOM.translate(lines, **FAST)
    assert len(results) == len(lines)
    for line, result in zip(lines, results, strict=True):
        assert "\n" not in as_line(result, as_json=False)
        assert "\n" not in as_line(result, as_json=True)
        if not line.strip():
            assert result.text == ""


HOSTILE = [
    "carriage\rreturn",
    "windows line\r",
    "line\u2028separator",
    "next\u0085line",
    "\ufeffmark",
    "nul\0byte",
    "tab\there",
    "",
    "   ",
    "\t\u00a0\u3000",
    "שלום עולם",
    "👩‍👩‍👧 family",
    "</s> <pad> <s>",
    "x" * 3000,
]


def test_hostile_files_keep_their_line_count(tmp_path: Path) -> None:
    content = "\n".join(HOSTILE).encode() + b"\nbroken \xff\xfe utf-8\nlast line without an end"
    (tmp_path / "hostile").write_bytes(content)
    lines = list(TextInput.open(tmp_path / "hostile"))
    assert len(lines) == len(HOSTILE) + 2
    results = list(RANDOM.stream(lines, SearchConfig(beam=1, max_extra=2)))
    assert len("".join(as_line(one, False) + "\n" for one in results).split("\n")) - 1 == len(lines)


def test_a_missing_file_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        TextInput.open(tmp_path / "nowhere")


# Independence of the batch


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_equals_its_sentences_alone(
    trained: Path, monkeypatch: pytest.MonkeyPatch, beam: int, engine: str
) -> None:
    """Batch sizes 1, 7 and 64, shuffled neighbors; half of the text is unlike the training text."""
    translator = multihead.load(trained, engine=engine)
    rng = random.Random(1)
    odd = [" ".join(rng.choices("abcxyz123", k=rng.randint(1, 12))) for _ in range(64)]
    lines = [source for source, _ in copy_or_reverse(64, seed=5)] + odd
    expected = {line: translator.translate(line, beam=beam).text for line in lines}
    for size in (1, 7, 64):
        monkeypatch.setattr(torch_engine, "BATCH_TOKENS", 33 * size)
        monkeypatch.setattr(ctranslate2_engine, "SHORTLIST_BATCH_TOKENS", 33 * size)
        for _ in range(2):
            rng.shuffle(lines)
            results = translator.translate(lines, beam=beam)
            assert [result.text for result in results] == [expected[line] for line in lines]


def test_lines_are_read_in_chunks() -> None:
    """The first translation comes before the last line is read."""
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for text in TEXTS:
            read += 1
            yield text

    stream = RANDOM.stream(lines(), SearchConfig(beam=1, max_extra=2), chunk_size=3)
    next(stream)
    assert read == 3
    assert len(list(stream)) == len(TEXTS) - 1


# Paragraphs


PARAGRAPH = "I have a dog. He is very old. We go to the park every day! Do you want to come with us? It would be nice."


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_a_paragraph_is_translated_sentence_by_sentence(engine: str) -> None:
    translator = multihead.load("en-de", engine=engine)
    sentences = re.split(r"(?<=[.!?]) ", PARAGRAPH)
    assert len(sentences) == 5
    assert translator.translate(PARAGRAPH).text == " ".join(one.text for one in translator.translate(sentences))


def test_line_breaks_inside_a_text_are_kept_and_a_line_stays_a_line() -> None:
    result = multihead.load("en-de", engine="torch").translate("Good morning.\n\nWhere is the station?")
    assert result.text == "Guten Morgen.\n\nWo ist der Bahnhof?"
    assert as_line(result, as_json=False) == "Guten Morgen. Wo ist der Bahnhof?"


def test_without_splitting_a_text_is_one_segment() -> None:
    whole = RANDOM.translate("A man rides. His bike.", split=False, **FAST)
    by_sentence = RANDOM.translate(["A man rides.", "His bike."], **FAST)
    assert whole.text != RANDOM.translate("A man rides. His bike.", **FAST).text
    assert RANDOM.translate("A man rides. His bike.", **FAST).text == " ".join(one.text for one in by_sentence)


def test_texts_for_a_model_of_documents_are_not_split_unless_requested() -> None:
    model = random_translator()
    text, whole = "A man rides. His bike.", {"split": False, **FAST}
    documents = Translator(
        TOKENIZER, model.config, "documents", model.engine, lambda: model.models, ModelSearch(split=False)
    )
    assert documents.translate(text, **FAST) == model.translate(text, **whole)
    assert documents.translate(text, split=True, **FAST) == model.translate(text, **FAST)


def test_the_alternatives_of_a_paragraph_are_those_of_its_sentences() -> None:
    translator = multihead.load("en-de", engine="torch")
    one, other = translator.translate(["Good morning.", "Where is the station?"], n_best=2)
    both = translator.translate("Good morning. Where is the station?", n_best=2)
    assert [version.text for version in both.alternatives] == [
        f"{one.alternatives[0].text} {other.alternatives[0].text}"
    ]


def test_the_alignment_of_a_paragraph_counts_words_over_all_sentences() -> None:
    translator = multihead.load("en-de", engine="torch")
    (result,) = translator.stream(["Good morning. Where is Tom?"], SearchConfig(), details=True)
    assert [target for _, target, _ in result.alignment] == list(range(len(result.text.split())))
    assert (4, 4) in [(source, target) for source, target, _ in result.alignment]  # Tom? -> Tom?


# Long sentences


def test_every_sentence_of_a_long_text_is_translated_as_it_is_alone(trained: Path) -> None:
    translator = multihead.load(trained)
    sentences = [source + "!" for source, _ in copy_or_reverse(6, seed=3)]
    translator.segmenter.max_tokens = max(len(translator.tokenizer.encode(sentence)) for sentence in sentences)
    joined = translator.translate(" ".join(sentences), beam=1)
    assert joined.text == " ".join(one.text for one in translator.translate(sentences, beam=1))


# The parts of a translation


def test_a_translation_has_all_its_parts(trained: Path) -> None:
    translator = multihead.load(trained)
    (result,) = translator.stream(["reverse a b c"], SearchConfig(n_best=3), details=True)
    assert result.text == "c b a"
    assert result.score < 0
    assert "".join(result.tokens).replace("Ġ", " ").strip() == "c b a"
    assert len(result.alternatives) == 2
    assert all(other.score <= result.score and other.text != result.text for other in result.alternatives)
    assert [target for _, target, _ in result.alignment] == [0, 1, 2]


def test_the_alignment_of_a_reversed_sentence_runs_backwards(trained: Path) -> None:
    """The soft alignment of a reversed sentence runs backwards."""
    translator = multihead.load(trained)
    (result,) = translator.stream(["reverse a b c d e"], SearchConfig(), details=True)
    sources = [source for source, _, _ in result.alignment]
    assert sum(one > other for one, other in itertools.pairwise(sources)) >= 3


@pytest.mark.parametrize(("engine", "tolerance"), [("torch", 1e-4), ("ctranslate2:float32", 1e-4), ("auto", 0.1)])
@pytest.mark.parametrize("alpha", [0.6, 1.5])
def test_token_scores_add_up_to_the_score_times_the_length_penalty(
    trained: Path, engine: str, tolerance: float, alpha: float
) -> None:
    """`auto` computes in int8, where another batch changes sums by hundredths of a nat."""
    texts = [source for source, _ in copy_or_reverse(20, seed=9)] + ["copy q r s", "a b a b a b"]
    for one in multihead.load(trained, engine=engine).translate(texts, alpha=alpha):
        assert len(one.token_scores) == len(one.tokens) + 1
        assert max(one.token_scores) <= 0
        penalty = length_penalty(len(one.token_scores), alpha)
        assert sum(one.token_scores) == pytest.approx(one.score * penalty, abs=tolerance)


def test_alignments_of_both_engines_agree(trained: Path) -> None:
    """In float32 to the fifth digit; in int8 the same words, and weights to the second."""
    texts = [source for source, _ in copy_or_reverse(40, seed=9)]
    expected = multihead.load(trained, engine="torch").translate(texts)
    for engine, tolerance in (("ctranslate2:float32", 1e-5), ("auto", 0.05)):
        found = multihead.load(trained, engine=engine).translate(texts)
        same = [(one, other) for one, other in zip(found, expected, strict=True) if one.text == other.text]
        assert len(same) >= 38
        links = [pair for one, other in same for pair in zip(one.alignment, other.alignment, strict=True)]
        assert sum(link[:2] == twin[:2] for link, twin in links) >= 0.99 * len(links)
        for one, other in same:
            np.testing.assert_allclose(one.word_weights[0], other.word_weights[0], atol=tolerance)


def test_the_token_scores_of_a_paragraph_are_those_of_its_sentences() -> None:
    translator = multihead.load("en-de")
    sentences = translator.translate(["Good morning.", "Where is Tom?"])
    paragraph = translator.translate("Good morning. Where is Tom?")
    assert paragraph.token_scores == [score for one in sentences for score in one.token_scores]
    assert len(paragraph.token_scores) == len(paragraph.tokens) + 2


def test_details_are_left_out_where_nobody_asks_for_them(trained: Path) -> None:
    (result,) = multihead.load(trained).stream(["copy a b"], SearchConfig())
    assert (result.alignment, result.token_scores, result.word_weights) == ([], [], [])


def test_json_has_these_keys(trained: Path) -> None:
    result = multihead.load(trained).translate("reverse a b c", n_best=2)
    line = json.loads(as_line(result, as_json=True))
    assert set(line) == {
        *("text", "score", "confidence", "tokens", "token_scores", "source_tokens", "alternatives", "alignment"),
        "warnings",
    }
    assert [set(other) for other in line["alternatives"]] == [{"text", "score"}]
    assert line["token_scores"] == result.token_scores
    assert [tuple(link) for link in line["alignment"]] == result.alignment


def test_attention_has_every_layer_and_head(trained: Path) -> None:
    maps = multihead.load(trained).attention("copy a b")
    assert maps.cross.shape[:2] == maps.encoder.shape[:2] == maps.decoder.shape[:2] == (2, 4)


def test_lines_with_alternatives_are_separated_by_tabs() -> None:
    one = Translation(text="a\tb", alternatives=[Alternative(text="c", score=-1.0)])
    assert as_line(one, as_json=False) == "a b\tc"
    assert as_line(Translation(text="a\tb"), as_json=False) == "a\tb"


def test_the_models_of_an_ensemble_need_the_same_vocabulary(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "other", ignore=shutil.ignore_patterns("checkpoints", "data"))
    same = multihead.load(trained, tmp_path / "other")
    assert same.translate("copy a b").text == "a b"
    tokenizer = tmp_path / "other" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text(encoding="utf-8").replace('"Ġa"', '"Ġq"', 1), encoding="utf-8")
    with pytest.raises(UserError):
        multihead.load(trained, tmp_path / "other")


def test_the_error_for_an_unknown_option_names_it() -> None:
    with pytest.raises(UsageError, match="beems"):
        RANDOM.translate("text", beems=4)


def test_the_error_for_an_unknown_model_names_the_bundled_ones() -> None:
    with pytest.raises(UserError, match=r"there is no model 'nowhere': .*hf:owner/name.*\(.*en-de.*\)"):
        multihead.load("nowhere")


def test_at_least_one_thread_is_needed() -> None:
    with pytest.raises(UsageError, match="threads=0 must be at least 1"):
        multihead.load("en-de", threads=0)


def test_text_in_capitals_comes_back_in_capitals_as_the_text_in_small_letters_does() -> None:
    translator = multihead.load("en-de", threads=1)
    small, capitals = translator.translate(["Tom is at home. NATO.", "TOM IS AT HOME. NATO."])
    assert capitals.text == small.text.upper()
    assert capitals.warnings == ["capitals: the text was read in lower case"]
    assert [link[:2] for link in capitals.alignment] == [link[:2] for link in small.alignment]
