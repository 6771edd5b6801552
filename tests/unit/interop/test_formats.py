"""What can be exported is said before, and the rest is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from multihead.config.schema import ModelConfig
from multihead.errors import UsageError, UserError
from multihead.interop.formats import UNSUPPORTED, describe_export_support, export
from multihead.model.build import build_model
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import store_model, tiny_shape

TOKENIZER = SubwordTokenizer.learn(["a b c"], 300)
NOT_CAUSAL = {("decoder_mixer", "linformer"), ("decoder_mixer", "bigbird")}  # which no decoder has


def test_the_support_of_a_shape_is_described_in_one_line() -> None:
    assert describe_export_support(ModelConfig()) == "export formats: ctranslate2, marian, onnx"
    pre_norm = describe_export_support(ModelConfig(norm="pre"))
    assert pre_norm == "export formats: ctranslate2, onnx (not marian: requires model.norm=post)"
    recurrent = describe_export_support(ModelConfig(encoder_mixer="lstm"))
    assert recurrent.startswith(
        "export formats: none (not ctranslate2: CTranslate2 does not support model.encoder_mixer"
    )


def every_variant() -> Iterator[tuple[str, str]]:
    """Every value of the settings that replace a part of the paper's model."""
    hints = get_type_hints(ModelConfig)
    for name in ("attention_score", "system", "cross", "encoder_mixer", "decoder_mixer", "positions"):
        usual = getattr(ModelConfig(), name)
        absolute = ("learned", "none") if name == "positions" else ()  # a table of positions is no layer
        values = set(get_args(hints[name])) - {usual, *absolute}
        yield from ((name, value) for value in sorted(values) if (name, value) not in NOT_CAUSAL)


@pytest.mark.parametrize(("name", "value"), list(every_variant()))
def test_every_variant_is_supported_or_refused_by_name(name: str, value: str) -> None:
    one_head = {"n_heads": 1, "d_k": 512, "d_v": 512} if value == "convs2s" else {}
    config = ModelConfig(**{name: value, **one_head})  # type: ignore[arg-type]  # the values are those of the setting
    for format, unsupported in UNSUPPORTED.items():
        reason = unsupported(config)
        if (format, value) == ("ctranslate2", "relative"):
            assert reason is None
        else:
            assert reason and f"model.{name}={value}" in reason, format


def test_a_wrong_format_or_quantization_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown format 'tflite'; valid names: ctranslate2, marian, onnx"):
        export(tmp_path, "tflite", tmp_path / "export")
    with pytest.raises(UsageError, match="--quantization int8 requires ctranslate2"):
        export(tmp_path, "marian", tmp_path / "export", "int8")


def test_a_shape_that_a_format_cannot_express_is_refused(tmp_path: Path) -> None:
    config = tiny_shape(vocab_size=TOKENIZER.vocab_size, encoder_mixer="gru")
    store_model(tmp_path / "model", build_model(config), TOKENIZER)
    for name in ("ctranslate2", "marian", "onnx"):
        with pytest.raises(UserError, match=f"cannot be exported to {name}: .*gru"):
            export(tmp_path / "model", name, tmp_path / "export")
    assert not (tmp_path / "export").exists()
