"""The same weights in CTranslate2 give the same numbers, and its search, once put right, the same translations."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from multihead.config.schema import ModelConfig, ModelSearch, SearchConfig
from multihead.errors import UserError
from multihead.interop import ctranslate2_export, export_cache
from multihead.interop.ctranslate2_export import _names, export_ctranslate2, quantize, unsupported_by_ctranslate2
from multihead.interop.export_cache import FINGERPRINT_FILE, cached_export
from multihead.model.build import build_model
from multihead.model.transformer import Transformer
from multihead.model.weights import load_model, weights_of
from multihead.storage.arrays import read_arrays, write_arrays
from multihead.storage.checksums import update_checksum
from multihead.storage.files import sha256
from multihead.storage.model_folder import WEIGHTS, ModelFolder
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import BOS_ID, EOS_ID, NEVER_GENERATED, PAD_ID, SPECIAL_TOKENS, SubwordTokenizer
from multihead.translation.engine import EMPTY_HYPOTHESIS, Hypothesis, SearchResult, length_penalty
from multihead.translation.engines.ctranslate2_engine import CTranslate2Engine, worker_options
from multihead.translation.engines.torch_engine import TorchEngine
from multihead.translation.search.beam import search
from tests.conftest import copy_or_reverse, segments_of, store_model, tiny_shape

TEXTS = ["Ein Mann fährt mit dem Fahrrad zum Bahnhof.", "A man rides his bike to the station, doesn't he?"] * 5
TOKENIZER = SubwordTokenizer.learn(TEXTS, 300)
N_LIVELY = 14  # pieces that a random model says; the others have next to no probability

Segments = list[list[int]]


def random_model(**changes: object) -> Transformer:
    """An untrained model that is sure of what it says, so that no near tie is decided by the last digit."""
    torch.manual_seed(2)
    model = build_model(tiny_shape(vocab_size=TOKENIZER.vocab_size, **changes)).eval()
    is_pre, top = model.config.norm == "pre", len(model.decoder) - 1
    last = model.get_submodule("decoder_norm" if is_pre else f"decoder.{top}.residual_3.norm")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))  # biases and norms too, which begin at 0 and 1
        for weight in (model.target_embedding.weight, model.output.weight):
            weight[NEVER_GENERATED] = weight[N_LIVELY:] = 0.0
        for parameter in last.parameters():
            parameter.mul_(4)
    return model


def random_segments(n: int, longest: int, seed: int = 1) -> Segments:
    rng = random.Random(seed)
    return [rng.choices(range(len(SPECIAL_TOKENS), N_LIVELY), k=rng.randint(1, longest)) for _ in range(n)]


def stored(model: Transformer, export: Path) -> ModelFolder:
    """A model folder next to an export."""
    return store_model(export.with_name(f"{export.name}-model"), model, TOKENIZER)


def engine_of(model: Transformer, folder: Path, quantization: str = "float32") -> CTranslate2Engine:
    export_ctranslate2(stored(model, folder), folder, quantization)
    return CTranslate2Engine(folder, model.config, n_threads=1)


def search_with_torch(model: Transformer, segments: Segments, config: SearchConfig) -> list[SearchResult]:
    longest = max(map(len, segments)) + 1
    padded = [[*ids, EOS_ID] + [PAD_ID] * (longest - 1 - len(ids)) for ids in segments]
    return search([model], torch.tensor(padded), config)


@torch.inference_mode()
def forced(model: Transformer, segment: list[int], hypothesis: Hypothesis) -> float:
    """The log-probability of a hypothesis, token by token after what comes before."""
    said = [*hypothesis.tokens, EOS_ID] if hypothesis.finished else hypothesis.tokens
    logits = model(torch.tensor([[*segment, EOS_ID]]), torch.tensor([[BOS_ID, *said[:-1]]]))
    return float(logits.log_softmax(dim=-1)[0, range(len(said)), said].sum())


def best_tokens(found: Sequence[SearchResult]) -> Segments:
    return [one.best(1)[0].tokens for one in found]


def best_scores(found: Sequence[SearchResult]) -> list[float]:
    return [one.best(1)[0].score for one in found]


# Shapes

SHAPES: list[dict[str, object]] = [
    {},  # the paper's: post-norm, all tied, sinusoids, no biases; with heads of unequal width
    {"norm": "pre"},
    {"tie_embeddings": "target"},
    {"tie_embeddings": "none", "output_bias": True},
    {"positions": "learned"},
    {"attention_bias": True},
    {"activation": "gelu"},
    {"activation": "swish", "norm": "pre", "attention_bias": True},
    {"encoder_layers": 6, "decoder_layers": 1},
    {"d_k": 4, "d_v": 4},  # as wide as d_model, which most models are
    {"d_k": 4, "d_v": 2},
    {"d_k": 2, "d_v": 4, "attention_bias": True},
    {"positions": "none"},
    {"positions": "relative", "relative_distance": 3},
    {"positions": "relative", "d_k": 4, "d_v": 4, "norm": "pre"},
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())) or "paper")
def test_every_shape_gives_the_same_numbers(shape: dict[str, object], tmp_path: Path) -> None:
    model, segments = random_model(**shape), random_segments(8, longest=9)
    engine = engine_of(model, tmp_path / "export")
    greedy = SearchConfig(beam=1, max_extra=8)
    expected, found = search_with_torch(model, segments, greedy), engine.search(segments_of(segments), greedy)
    assert best_tokens(found) == best_tokens(expected)
    assert best_scores(found) == pytest.approx(best_scores(expected), abs=1e-4)
    for segment, one in zip(segments, engine.search(segments_of(segments), SearchConfig(max_extra=8)), strict=True):
        for hypothesis in one.finished + one.truncated:
            log_prob = forced(model, segment, hypothesis)
            penalty = length_penalty(len(hypothesis.tokens) + hypothesis.finished, alpha=0.6)
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-4)
            assert hypothesis.score == pytest.approx(log_prob / penalty, abs=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())) or "paper")
def test_every_weight_has_its_place(shape: dict[str, object]) -> None:
    model = random_model(**shape)
    placed = {f"{name}.{kind}" for _, ours in _names(model.config) for name in ours for kind in ("weight", "bias")}
    relative = {name for name in weights_of(model) if name.endswith((".score.keys", ".score.values"))}
    assert weights_of(model).keys() - placed - relative <= {"positions"}


def test_int8_is_rounded_as_torch_rounds() -> None:
    weight = torch.randn(300, 64, generator=torch.Generator().manual_seed(5)) * torch.logspace(-40, 3, 300)[:, None]
    weight[7] = 0.0
    weight[8] = torch.arange(64) / 2  # half of the products lie between two integers
    weight[8, 0] = 96.0
    scale = 96 / weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny * 96)
    expected = (weight * scale.unsqueeze(1)).round().to(torch.int8)
    found, found_scale = quantize(weight.numpy())
    assert np.array_equal(found, expected.numpy())
    assert np.array_equal(found_scale, scale.numpy())


def test_weights_that_do_not_fit_the_configuration_are_refused_by_name(tmp_path: Path) -> None:
    """CTranslate2 itself does not compare shapes."""
    name = "encoder.0.feed_forward.w_1.weight"
    model = stored(random_model(), tmp_path / "export")
    weights = read_arrays(model.path / WEIGHTS)
    extra = np.zeros(1, np.float32)
    for wrong in (
        {**weights, name: extra},
        {**weights, "extra": extra},
        {k: v for k, v in weights.items() if k != name},
    ):
        write_arrays(model.path / WEIGHTS, wrong)
        update_checksum(model.path, WEIGHTS)
        with pytest.raises(UserError, match="do not fit its config"):
            export_ctranslate2(model, tmp_path / "export")


# The search, on a model that has learned something


@dataclass(frozen=True)
class Learned:
    """A trained model in both engines, and text that half of it knows nothing about."""

    model: Transformer
    tokenizer: SubwordTokenizer
    folder: Path
    engine: CTranslate2Engine
    segments: Segments


@pytest.fixture(scope="module")
def learned(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    model, tokenizer, config = load_model(trained)
    folder = tmp_path_factory.mktemp("ctranslate2") / "float32"
    export_ctranslate2(store_model(folder.with_name("model"), model, tokenizer), folder)  # without its shortlist
    rng = random.Random(1)
    odd = [" ".join(rng.choices("abcxyz123", k=rng.randint(1, 12))) for _ in range(32)]
    segments = tokenizer.encode_batch([source for source, _ in copy_or_reverse(32, seed=5)] + odd)
    return Learned(model, tokenizer, folder, CTranslate2Engine(folder, config.model, n_threads=2), segments)


def test_alone_no_neighbour_and_no_number_of_workers_changes_a_sentence(learned: Learned, trained: Path) -> None:
    """With int8 and a shortlist, as `auto` searches."""
    folder = learned.folder.with_name("int8")
    export_ctranslate2(ModelFolder.open(trained), folder, "int8")
    engines = [
        CTranslate2Engine(folder, learned.model.config, n_threads, one_sentence_per_batch=True) for n_threads in (1, 2)
    ]
    expected = [
        best_tokens(engines[0].search(segments_of([segment]), SearchConfig()))[0] for segment in learned.segments
    ]
    order = random.Random(2).sample(range(len(learned.segments)), len(learned.segments))
    for engine in engines:
        found = best_tokens(engine.search(segments_of([learned.segments[at] for at in order]), SearchConfig()))
        assert found == [expected[at] for at in order]


def test_a_shortlist_bars_words(learned: Learned) -> None:
    """With nothing on it but the end symbol and a word, only that word is said, unless the list is left aside."""
    folder, word = learned.folder.with_name("short"), learned.segments[0][0]
    nothing = np.full((learned.model.config.vocab_size, 1), EOS_ID)
    shortlist = Shortlist(nothing, np.array([word]))
    model = store_model(folder.with_name("short-model"), learned.model, learned.tokenizer, shortlist)
    export_ctranslate2(model, folder)
    engine = CTranslate2Engine(folder, learned.model.config)
    for segment in learned.segments[:8]:
        said = best_tokens(engine.search(segments_of([segment]), SearchConfig(max_extra=2)))[0]
        assert set(said) <= {*segment, word}
    full = SearchConfig(shortlist=False)
    assert best_tokens(engine.search(segments_of(learned.segments), full)) == best_tokens(
        learned.engine.search(segments_of(learned.segments), full)
    )


@pytest.mark.parametrize("config", [SearchConfig(beam=1), SearchConfig(), SearchConfig(alpha=0.0)], ids=repr)
def test_the_search_finds_what_ours_finds(learned: Learned, config: SearchConfig) -> None:
    expected = search_with_torch(learned.model, learned.segments, config)
    found = learned.engine.search(segments_of(learned.segments), config)
    assert best_tokens(found) == best_tokens(expected)
    assert best_scores(found) == pytest.approx(best_scores(expected), abs=1e-4)
    assert [one.best(1)[0].finished for one in found] == [one.best(1)[0].finished for one in expected]


def test_hypotheses_come_best_first_by_the_papers_penalty(learned: Learned) -> None:
    config = SearchConfig(n_best=4, alpha=1.0)
    for one in learned.engine.search(segments_of(learned.segments), config):
        scores = [hypothesis.score for hypothesis in one.finished]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
        for hypothesis in one.finished:
            assert hypothesis.score == hypothesis.log_prob / ((5 + len(hypothesis.tokens) + 1) / 6)


@pytest.mark.parametrize("config", [SearchConfig(beam=1, min_length=9), SearchConfig(beam=1, no_repeat=1)], ids=repr)
def test_what_is_forbidden_takes_nothing_from_the_score(learned: Learned, config: SearchConfig) -> None:
    expected = search_with_torch(learned.model, learned.segments, config)
    found = learned.engine.search(segments_of(learned.segments), config)
    assert best_tokens(found) == best_tokens(expected)
    for one, other in zip(found, expected, strict=True):
        assert [hypothesis.score for hypothesis in one.finished] == pytest.approx(
            [hypothesis.score for hypothesis in other.finished], abs=1e-4
        )


def test_a_sentence_has_the_same_translation_alone(learned: Learned) -> None:
    together = learned.engine.search(segments_of(learned.segments), SearchConfig())
    alone = [learned.engine.search(segments_of([segment]), SearchConfig())[0] for segment in learned.segments]
    assert best_tokens(together) == best_tokens(alone)


def test_control_symbols_in_a_text_are_text(learned: Learned) -> None:
    texts = ["copy </s> a b", "<pad> <unk> <s> </s>", "reverse a b</s> c", "</s>"]
    segments = learned.tokenizer.encode_batch(texts)
    assert not any(id < len(SPECIAL_TOKENS) for segment in segments for id in segment)
    expected = search_with_torch(learned.model, segments, SearchConfig(beam=1))
    assert best_tokens(learned.engine.search(segments_of(segments), SearchConfig(beam=1))) == best_tokens(expected)


def test_the_folder_is_enough_for_ctranslate2_itself(learned: Learned) -> None:
    """What a program without Multihead has to write."""
    import ctranslate2

    tokenizer = Tokenizer.from_file(str(learned.folder / "tokenizer.json"))
    translator = ctranslate2.Translator(str(learned.folder))
    result = translator.translate_batch([tokenizer.encode("reverse a b c").tokens], beam_size=4)[0]
    assert tokenizer.decoder.decode(result.hypotheses[0]) == "c b a"


def test_the_threads_of_torch_stay_as_they_are(learned: Learned) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    CTranslate2Engine(learned.folder, learned.model.config, n_threads=1).search(
        segments_of(learned.segments), SearchConfig(beam=1)
    )
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


def test_int8_translates_too(learned: Learned, tmp_path: Path) -> None:
    model = store_model(tmp_path / "model", learned.model, learned.tokenizer)
    export_ctranslate2(model, tmp_path / "int8", "int8")
    engine = CTranslate2Engine(tmp_path / "int8", learned.model.config)
    pairs = copy_or_reverse(32, seed=5)
    found = engine.search(segments_of(learned.tokenizer.encode_batch([source for source, _ in pairs])), SearchConfig())
    texts = [learned.tokenizer.decode(tokens) for tokens in best_tokens(found)]
    assert sum(text == target for text, (_, target) in zip(texts, pairs, strict=True)) >= 28
    assert (tmp_path / "int8" / "model.bin").stat().st_size < (learned.folder / "model.bin").stat().st_size / 2


@pytest.fixture(scope="module")
def five_hundred(learned: Learned) -> Segments:
    return learned.tokenizer.encode_batch([source for source, _ in copy_or_reverse(500, seed=6)])


def test_float32_says_the_same_on_500_sentences(learned: Learned, five_hundred: Segments) -> None:
    expected = search_with_torch(learned.model, five_hundred, SearchConfig())
    found = learned.engine.search(segments_of(five_hundred), SearchConfig())
    assert best_tokens(found) == best_tokens(expected)
    logs = [[one.best(1)[0].log_prob for one in both] for both in (found, expected)]
    assert logs[0] == pytest.approx(logs[1], abs=1e-4)


def test_int8_says_nearly_always_the_same(learned: Learned, five_hundred: Segments, tmp_path: Path) -> None:
    model = store_model(tmp_path / "model", learned.model, learned.tokenizer)
    export_ctranslate2(model, tmp_path / "int8", "int8")
    engine = CTranslate2Engine(tmp_path / "int8", learned.model.config)
    found = best_tokens(engine.search(segments_of(five_hundred), SearchConfig()))
    same = [
        one == other
        for one, other in zip(
            found, best_tokens(learned.engine.search(segments_of(five_hundred), SearchConfig())), strict=True
        )
    ]
    assert sum(same) >= 0.97 * len(same)


# Details: the attention of the alignment layer, and token scores

DETAILED = [
    SearchConfig(),
    SearchConfig(beam=1),
    SearchConfig(n_best=4),
    SearchConfig(max_extra=0),  # many are truncated
    SearchConfig(beam=1, no_repeat=1),  # CTranslate2 renormalizes
    SearchConfig(beam=1, min_length=3),
    SearchConfig(shortlist=False),
]
TOLERANCE = 1e-4  # in float32, of a weight and of a sum of log-probabilities
INT8_TOLERANCE = 0.1  # nats; 0.04 was measured on 500 sentences in batches, 0.02 one by one


def compare_details(
    found: Sequence[SearchResult], expected: Sequence[SearchResult], n_best: int, tolerance: float = TOLERANCE
) -> int:
    """Compare the details of hypotheses that both engines found; return how many they are."""
    n_compared = 0
    for one, other in zip(found, expected, strict=True):
        by_tokens = {tuple(hypothesis.tokens): hypothesis for hypothesis in other.best(n_best)}
        for hypothesis in one.best(n_best):
            assert len(hypothesis.token_scores) == hypothesis.length
            assert sum(hypothesis.token_scores) == pytest.approx(hypothesis.log_prob, abs=TOLERANCE)
            if twin := by_tokens.get(tuple(hypothesis.tokens)):
                assert hypothesis.attention is not None
                assert twin.attention is not None
                np.testing.assert_allclose(hypothesis.attention, twin.attention, atol=TOLERANCE)
                np.testing.assert_allclose(hypothesis.token_scores, twin.token_scores, atol=tolerance)
                n_compared += 1
    return n_compared


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("config", DETAILED, ids=repr)
def test_attention_and_token_scores_are_those_of_torch(learned: Learned, config: SearchConfig, alone: bool) -> None:
    engine = CTranslate2Engine(learned.folder, learned.model.config, n_threads=2, one_sentence_per_batch=alone)
    segments = segments_of(learned.segments)
    expected = TorchEngine([learned.model]).search(segments, config, details=True)
    found = engine.search(segments, config, details=True)
    assert compare_details(found, expected, config.n_best) >= 0.9 * len(segments)


@pytest.mark.parametrize("layer", [0, 1, None])
def test_the_attention_is_that_of_the_layer_in_config_json(learned: Learned, tmp_path: Path, layer: int | None) -> None:
    model = store_model(tmp_path / "model", learned.model, learned.tokenizer)
    model = replace(model, search=ModelSearch(alignment_layer=layer))
    export_ctranslate2(model, tmp_path / "export")
    engine = CTranslate2Engine(tmp_path / "export", learned.model.config)
    segments = segments_of(learned.segments[:8])
    expected = TorchEngine([learned.model], alignment_layer=model.alignment_layer)
    assert compare_details(
        engine.search(segments, SearchConfig(), details=True), expected.search(segments, SearchConfig(), True), 1
    )
    other = TorchEngine([learned.model], alignment_layer=1 - model.alignment_layer)
    with pytest.raises(AssertionError):
        compare_details(
            engine.search(segments, SearchConfig(), details=True), other.search(segments, SearchConfig(), True), 1
        )


@pytest.mark.parametrize("alone", [True, False])
def test_token_scores_with_a_shortlist_are_those_of_the_search(learned: Learned, tmp_path: Path, alone: bool) -> None:
    """In a batch, the shortlists of its sentences are united, so that only single sentences equal ours."""
    candidates = np.random.default_rng(1).integers(
        4, learned.model.config.vocab_size, (learned.model.config.vocab_size, 2)
    )
    shortlist = Shortlist(candidates, np.arange(4, 12))
    export_ctranslate2(
        store_model(tmp_path / "model", learned.model, learned.tokenizer, shortlist), tmp_path / "export"
    )
    engine = CTranslate2Engine(tmp_path / "export", learned.model.config, one_sentence_per_batch=alone)
    segments = segments_of(learned.segments)
    found = engine.search(segments, SearchConfig(), details=True)
    expected = TorchEngine([learned.model], shortlist).search(segments, SearchConfig(), details=True)
    if alone:  # of text like the training text; elsewhere <unk> is probable, which only CTranslate2 allows
        assert compare_details(found[:32], expected[:32], 1, tolerance=10 * TOLERANCE) >= 30
    full = engine.search(segments, SearchConfig(shortlist=False), details=True)
    assert any(
        abs(one.best(1)[0].log_prob - other.best(1)[0].log_prob) > 100 * TOLERANCE
        for one, other in zip(found, full, strict=True)
    )  # the shortlist matters
    for one in found:
        best = one.best(1)[0]
        assert sum(best.token_scores) == pytest.approx(best.log_prob, abs=TOLERANCE)


@pytest.mark.parametrize("shape", [{}, {"norm": "pre", "d_k": 4, "d_v": 2}, {"positions": "relative"}], ids=repr)
def test_details_of_every_kind_of_layer(shape: dict[str, object], tmp_path: Path) -> None:
    model, segments = random_model(**shape), segments_of([*random_segments(8, longest=9), []])
    config = SearchConfig(max_extra=4)
    found = engine_of(model, tmp_path / "export").search(segments, config, details=True)
    expected = TorchEngine([model]).search(segments, config, details=True)
    assert compare_details(found[:-1], expected[:-1], 1) >= 6


def test_details_change_no_translation(learned: Learned, trained: Path, tmp_path: Path) -> None:
    export_ctranslate2(ModelFolder.open(trained), tmp_path / "int8", "int8")
    for alone in (True, False):
        engine = CTranslate2Engine(tmp_path / "int8", learned.model.config, one_sentence_per_batch=alone)
        plain, detailed = (
            engine.search(segments_of(learned.segments), SearchConfig(), details) for details in (False, True)
        )
        assert best_tokens(detailed) == best_tokens(plain)
        assert best_scores(detailed) == best_scores(plain)
        for one in detailed:
            best = one.best(1)[0]
            assert sum(best.token_scores) == pytest.approx(best.log_prob, abs=INT8_TOLERANCE)
        assert all(not one.best(1)[0].token_scores and one.best(1)[0].attention is None for one in plain)


# Limits


@pytest.mark.parametrize("beam", [1, 4])
def test_no_output_is_longer_than_its_own_sentence_allows(tmp_path: Path, beam: int) -> None:
    model, segments = random_model(), random_segments(24, longest=20)
    config = SearchConfig(beam=beam, max_extra=1)
    found = engine_of(model, tmp_path / "export").search(segments_of(segments), config)
    for segment, one in zip(segments, found, strict=True):
        lengths = [len(hypothesis.tokens) + hypothesis.finished for hypothesis in one.finished + one.truncated]
        assert 0 < max(lengths) <= len(segment) + 2
        assert all(len(hypothesis.tokens) == min(len(segment) + 2, 24) for hypothesis in one.truncated)
    assert best_tokens(found) == best_tokens(search_with_torch(model, segments, config))


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_what_has_ended_is_not_pushed_out_by_what_was_cut(tmp_path: Path, alpha: float) -> None:
    """At the limit CTranslate2 counts what is live as ended, and gives back what is likeliest of all."""
    model, segments = random_model(output_bias=True), random_segments(16, longest=9)
    with torch.no_grad():
        model.output.bias[EOS_ID] = 0.0
    config = SearchConfig(max_extra=3, alpha=alpha)
    expected = [bool(one.finished) for one in search_with_torch(model, segments, config)]
    assert {*expected} == {True, False}
    assert [
        bool(one.finished) for one in engine_of(model, tmp_path / "export").search(segments_of(segments), config)
    ] == expected


def test_positions_are_used_to_the_last(tmp_path: Path) -> None:
    model = random_model(max_len=12)
    segments = [[4] * 11, [5], [6] * 5]
    engine = engine_of(model, tmp_path / "export")
    config = SearchConfig(beam=1)
    assert best_tokens(engine.search(segments_of(segments), config)) == best_tokens(
        search_with_torch(model, segments, config)
    )
    with pytest.raises(ValueError, match="13 tokens are more than the 12 positions"):
        engine.search(segments_of([[5], [4] * 12]), config)


def test_sentences_beyond_the_default_length_of_ctranslate2_are_not_cut(tmp_path: Path) -> None:
    """It cuts a source after 1024 tokens, and an output after 256."""
    model = random_model(max_len=1400, encoder_layers=1, decoder_layers=1)
    segments = [[*[4] * 1100, last] for last in (5, 6)]
    config = SearchConfig(beam=1, min_length=300, max_extra=0)
    engine = engine_of(model, tmp_path / "export")
    (found,) = engine.search(segments_of([[4] * 300]), config)
    assert len(found.best(1)[0].tokens) >= 300
    scores = best_scores(engine.search(segments_of(segments), SearchConfig(beam=1)))
    assert scores[0] != scores[1]  # the last token was read


def test_no_sentences_give_no_translations(tmp_path: Path) -> None:
    assert engine_of(random_model(), tmp_path / "export").search([], SearchConfig()) == []


def test_an_empty_sentence_is_nothing_and_harms_nothing(tmp_path: Path) -> None:
    empty, other = engine_of(random_model(), tmp_path / "export").search(
        segments_of([[], [4, 5]]), SearchConfig(max_extra=2)
    )
    assert empty.best(1)[0].tokens == []
    assert other.best(1)[0].tokens


@pytest.mark.parametrize("beam", [1, 4])
def test_control_symbols_are_never_said(tmp_path: Path, beam: int) -> None:
    model, segments = random_model(output_bias=True), random_segments(8, longest=9)
    with torch.no_grad():
        model.output.bias[NEVER_GENERATED] = 30.0
    config = SearchConfig(beam=beam, max_extra=4)
    found = engine_of(model, tmp_path / "export").search(segments_of(segments), config)
    assert not any(
        id in NEVER_GENERATED for one in found for said in one.finished + one.truncated for id in said.tokens
    )
    for segment, one in zip(segments, found, strict=True):
        for hypothesis in one.finished:
            assert hypothesis.log_prob == pytest.approx(forced(model, segment, hypothesis), rel=1e-5)
    if beam == 1:
        assert best_tokens(found) == best_tokens(search_with_torch(model, segments, config))


def test_a_model_without_numbers_says_nothing(tmp_path: Path) -> None:
    """Its weights are finite, or it would be refused; its scores are not."""
    model = random_model()
    with torch.no_grad():
        model.output.weight.fill_(3e38)
    found = engine_of(model, tmp_path / "export").search(segments_of([[4, 5], [6]]), SearchConfig(max_extra=2))
    assert [one.best(1) for one in found] == [[EMPTY_HYPOTHESIS], [EMPTY_HYPOTHESIS]]


# Refusals, in words


def test_sampling_is_refused(tmp_path: Path) -> None:
    engine = engine_of(random_model(), tmp_path / "export")
    assert engine.unsupported_reason(SearchConfig()) is None
    assert "samples" in (engine.unsupported_reason(SearchConfig(sample=True)) or "")
    with pytest.raises(UserError, match="samples"):
        engine.search(segments_of([[4]]), SearchConfig(sample=True))


def test_a_matrix_over_4_gb_is_refused() -> None:
    assert unsupported_by_ctranslate2(ModelConfig()) is None
    reason = unsupported_by_ctranslate2(ModelConfig(vocab_size=1_000_000, d_model=1100))
    assert reason and "1,000,000 x 1,100 numbers" in reason


def refuse_to_export(model: Transformer, folder: Path, quantization: str, words: str) -> None:
    source = stored(model, folder)
    there = sorted(folder.parent.rglob("*"))
    with pytest.raises(UserError, match=words):
        export_ctranslate2(source, folder, quantization)
    assert sorted(folder.parent.rglob("*")) == there


def test_what_cannot_be_exported_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    model, folder = random_model(), tmp_path / "export"
    refuse_to_export(model, folder, "int4", "no quantization 'int4': use one of int8")
    other = Transformer(replace(model.config, vocab_size=TOKENIZER.vocab_size - 1))
    refuse_to_export(other, folder, "float32", "pieces, but model.vocab_size")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ctranslate2_export, "_ACTIVATIONS", {"gelu": "GELU"})
        refuse_to_export(model, folder, "float32", "does not support model.activation=relu")


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a").touch()
    refuse_to_export(random_model(), tmp_path / "letters", "float32", "is not a CTranslate2 export")
    refuse_to_export(random_model(), tmp_path / "letters" / "a", "float32", "is not a CTranslate2 export")


def test_an_export_is_replaced(tmp_path: Path) -> None:
    sizes: list[int] = []
    for quantization in ("float32", "int8"):
        export_ctranslate2(stored(random_model(), tmp_path / "export"), tmp_path / "export", quantization)
        sizes.append((tmp_path / "export" / "model.bin").stat().st_size)
    assert sizes[1] < sizes[0]


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="CTranslate2 cannot load"):
        CTranslate2Engine(tmp_path, ModelConfig())


# Exports that are kept


def made(export: Path) -> int:
    return (export / "model.bin").stat().st_mtime_ns


def flip_last_byte(path: Path) -> None:
    """The times stay, as those of a failing disk do."""
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=times)


def store(folder: Path, model: Transformer | None = None) -> ModelFolder:
    return store_model(folder, model or random_model(), TOKENIZER)


def test_an_export_is_made_once_and_kept_in_the_users_cache(tmp_path: Path, cache: Path) -> None:
    export = cached_export(store(tmp_path), "int8")
    assert export.is_relative_to(cache / "multihead")
    assert not (tmp_path / "ctranslate2").exists()
    before = made(export)
    assert cached_export(ModelFolder.open(tmp_path), "int8") == export
    assert made(export) == before


def test_an_export_of_other_weights_is_made_again(tmp_path: Path) -> None:
    model = random_model()
    export = cached_export(store(tmp_path, model), "float32")
    with torch.no_grad():
        model.output.weight[20, 3] += 1e-3
    before = made(export)
    assert cached_export(store(tmp_path, model), "float32") == export
    assert made(export) > before


def test_an_export_with_another_alignment_layer_is_made_again(tmp_path: Path) -> None:
    model = stored(random_model(), tmp_path / "export")
    first = cached_export(model, "float32")
    before = sha256(first / "model.bin")
    assert cached_export(replace(model, search=ModelSearch(alignment_layer=0)), "float32") == first
    assert sha256(first / "model.bin") != before


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": 1}'])
def test_an_export_of_unknown_origin_is_made_again(tmp_path: Path, content: str) -> None:
    export = cached_export(store(tmp_path), "float32")
    (export / FINGERPRINT_FILE).write_text(content)
    before = made(export)
    cached_export(ModelFolder.open(tmp_path), "float32")
    assert made(export) > before


def test_weights_are_read_again_only_if_size_or_time_of_a_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = store(tmp_path)
    export = cached_export(model, "float32")
    before, summed = made(export), list[str]()

    def recorded_sha256(path: Path) -> str:
        summed.append(path.name)
        return sha256(path)

    monkeypatch.setattr(export_cache, "sha256", recorded_sha256)
    cached_export(model, "float32")
    of_the_export = ["config.json", "model.bin", "shared_vocabulary.json", "tokenizer.json"]
    assert summed == of_the_export
    summed.clear()
    os.utime(tmp_path / WEIGHTS, ns=(1, 1))
    for _ in range(2):  # the new time is recorded
        cached_export(model, "float32")
    assert [name for name in summed if name not in of_the_export[:3]].count(WEIGHTS) == 1
    assert made(export) == before


def test_a_checkpoint_shares_the_exports_of_its_run(tmp_path: Path) -> None:
    """Checkpoints come and go."""
    model = store(tmp_path / "checkpoints" / "step-5")
    other = replace(store(tmp_path / "checkpoints" / "step-6"), root=tmp_path)
    assert cached_export(replace(model, root=tmp_path), "float32") == cached_export(other, "float32")


def test_an_export_in_a_model_folder_is_never_used(tmp_path: Path) -> None:
    """Somebody else could have put another model there."""
    foreign = cached_export(store(tmp_path / "foreign"), "float32")
    shutil.copytree(foreign, tmp_path / "model" / "ctranslate2" / "float32")
    export = cached_export(store(tmp_path / "model"), "float32")
    assert not export.is_relative_to(tmp_path / "model")


@pytest.mark.parametrize("name", ["model.bin", "shared_vocabulary.json", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), flip_last_byte, Path.unlink])
def test_a_damaged_export_is_made_again(tmp_path: Path, name: str, damage: Callable[[Path], object]) -> None:
    model = store(tmp_path)
    export = cached_export(model, "float32")
    whole = (export / name).read_bytes()
    damage(export / name)
    assert cached_export(model, "float32") == export
    assert (export / name).read_bytes() == whole


def test_the_exports_of_a_model_that_was_deleted_are_removed(tmp_path: Path) -> None:
    export = cached_export(store(tmp_path / "first"), "float32")
    shutil.rmtree(tmp_path / "first")
    cached_export(store(tmp_path / "second"), "float32")
    assert not export.exists()


def test_without_any_cache_an_export_lasts_as_long_as_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file is where the cache would be, so that not even root can write there."""
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    export = cached_export(store(tmp_path / "model"), "float32")
    assert export.is_relative_to(tmp_path)
    assert (export / "model.bin").exists()
    assert "cannot be kept" in capsys.readouterr().err


def test_concurrent_requests_make_one_export(tmp_path: Path) -> None:
    model = store(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        exports = list(pool.map(lambda _: cached_export(model, "float32"), range(4)))
    assert len(set(exports)) == 1
    assert [path.name for path in exports[0].parent.iterdir() if not path.name.endswith(".lock")] == ["float32"]


def test_an_export_does_not_load_torch_into_the_process_that_asks_for_it(tmp_path: Path) -> None:
    """A script without a main guard, which the child process must not run again."""
    store(tmp_path / "model")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "from multihead.interop.export_cache import cached_export\n"
        "from multihead.storage.model_folder import ModelFolder\n"
        "print(cached_export(ModelFolder.open(Path(sys.argv[1])), 'int8').name, 'torch' in sys.modules)\n"
    )
    command: list[str | Path] = [sys.executable, script, tmp_path / "model"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "int8 False\n"


def test_a_gpu_searches_if_there_is_one() -> None:
    assert worker_options(n_gpus=1, n_threads=8) == {"device": "cuda"}
    assert worker_options(n_gpus=0, n_threads=8) == {"device": "cpu", "inter_threads": 8, "intra_threads": 1}
