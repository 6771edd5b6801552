"""Every preset and every variant, as a user meets them: trained, saved, loaded, translated, looked at."""

import dataclasses
from pathlib import Path

import pytest

from multihead import load
from multihead.config.presets import PRESETS
from multihead.config.schema import Settings
from multihead.errors import UserError
from multihead.interop.formats import export
from multihead.model.build import MIXERS
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from tests.conftest import QUICK

SMALL = ("tiny", "rnn-attention", "convs2s", "bytenet")
FEW_STEPS: Settings = {"train.steps": 2, "train.bleu_sentences": 2, "data.max_length": 32}
VARIANTS: list[Settings] = [
    {"model.attention_score": "additive"},
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


def test_what_no_other_engine_has_is_refused_in_words(quick_request: TrainingRequest, tmp_path: Path) -> None:
    request = dataclasses.replace(quick_request, settings={**QUICK, "model.encoder_mixer": "lstm"})
    run = train(request)
    for format in ("ctranslate2", "marian", "onnx"):
        with pytest.raises(UserError, match=r"model\.encoder_mixer=lstm"):
            export(run, format, tmp_path / format)
        assert not (tmp_path / format).exists()
