"""Every preset and every variant, as a user meets them: trained, saved, loaded, translated, looked at."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from multihead import load
from multihead.config.presets import PRESETS
from multihead.config.schema import Settings
from multihead.errors import UserError
from multihead.interop.formats import export
from multihead.model.build import MIXERS
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.tasks.questions import make_question
from tests.conftest import QUICK

SMALL = ("tiny", "rnn-attention", "convs2s", "bytenet", "neural-gpu", "memory-network")
FEW_STEPS: Settings = {"train.steps": 2, "train.bleu_sentences": 2, "data.max_length": 32}
VARIANTS: list[Settings] = [
    {"model.attention_score": "additive"},
    {"model.attention_score": "local-p"},
    {"model.cross": "last"},
    {"model.system": "neural-gpu"},
    {"model.system": "memory-network"},
    {"model.positions": "relative"},
    *({"model.encoder_mixer": name, "model.window": 4} for name in sorted(MIXERS)),
    *({"model.decoder_mixer": name, "model.window": 4} for name in sorted(set(MIXERS) - {"linformer", "bigbird"})),
]


@pytest.mark.parametrize(
    "name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in set(PRESETS) - set(SMALL))]
)
def test_a_preset_trains_and_translates(name: str, toy_text: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = toy_text
    settings = {**FEW_STEPS, "data.batch_tokens": 100}
    run = train(TrainingRequest(output=tmp_path / "run", source=source, target=target, preset=name, settings=settings))
    assert load(run).translate("copy a b", max_extra=5).tokens is not None
    if name == "neural-gpu":
        with pytest.raises(UserError, match="a Neural GPU has no attention"):
            load(run).attention("copy a b", translation="a b")
    else:
        assert load(run).attention("copy a b", translation="a b").cross.shape[2:] == (3, 4)


@pytest.mark.parametrize("choice", VARIANTS, ids=lambda choice: " ".join(map(str, choice.values())))
def test_a_variant_learns_and_survives_its_files(
    choice: Settings, quick_request: TrainingRequest, tmp_path: Path
) -> None:
    request = dataclasses.replace(
        quick_request, settings={**QUICK, **choice, "train.bleu_sentences": 0, "train.steps": 6}
    )
    run = train(request)
    one, other = load(run, engine="torch"), load(run, engine="torch")
    assert one.translate("reverse a b c") == other.translate("reverse a b c")
    texts = ["copy a", "reverse a b c d e f", "copy b c"]
    assert [one.translate(text).text for text in texts] == [found.text for found in one.translate(texts)]


@pytest.mark.parametrize("choice", ["model.encoder_mixer=lstm", "model.cross=mean", "model.system=memory-network"])
def test_what_no_other_engine_has_is_refused_in_words(
    choice: str, quick_request: TrainingRequest, tmp_path: Path
) -> None:
    name, _, value = choice.partition("=")
    request = dataclasses.replace(quick_request, settings={**QUICK, name: value, "train.steps": 2})
    run = train(request)
    for format in ("ctranslate2", "marian", "onnx"):
        with pytest.raises(UserError, match=re.escape(choice)):
            export(run, format, tmp_path / format)
        assert not (tmp_path / format).exists()


def test_a_model_without_attention_aligns_no_words(quick_request: TrainingRequest) -> None:
    settings = {**QUICK, "model.cross": "mean", "train.steps": 2, "train.bleu_sentences": 0}
    run = train(dataclasses.replace(quick_request, settings=settings))
    translation = load(run).translate("copy a b", max_extra=3)
    assert translation.alignment == []
    assert len(translation.token_scores) >= len(translation.tokens)


def test_a_memory_network_knows_where_a_fact_ends_and_shows_every_hop(tmp_path: Path) -> None:
    found = [make_question(seed, 3) for seed in range(60)]
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("".join(f"{one.text}\n" for one in found))
    target.write_text("".join(f"{one.answer}\n" for one in found))
    settings = {**FEW_STEPS, "data.max_length": 100, "data.batch_tokens": 400, "data.clean": False}
    request = TrainingRequest(
        output=tmp_path / "run", source=source, target=target, preset="memory-network", settings=settings
    )
    model = load(train(request))
    text = "anna went to the park . ben took the ball . where is anna ?"
    stop = model.tokenizer.encode(text)[model.tokenizer.readable(model.tokenizer.encode(text)).index(" .")]
    assert model.config.model.fact_end_id == stop
    hops = model.attention(text, translation="park").encoder
    assert hops.shape[:2] == (3, 1)
    np.testing.assert_allclose(hops.sum(axis=-1), 1, atol=1e-5)
    question = model.attention(text, translation="park").source_tokens.index(" where")
    assert not hops[..., question:].any()
