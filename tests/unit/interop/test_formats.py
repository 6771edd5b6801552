"""What can be exported is said before, and the rest is refused."""

from pathlib import Path

import pytest

from multihead.config.schema import ModelConfig
from multihead.errors import UsageError, UserError
from multihead.interop.formats import describe_export_support, export
from multihead.model.build import build_model
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import store_model, tiny_shape

TOKENIZER = SubwordTokenizer.learn(["a b c"], 300)


def test_the_support_of_a_shape_is_described_in_one_line() -> None:
    assert describe_export_support(ModelConfig()) == "export formats: ctranslate2, marian, onnx"
    pre_norm = describe_export_support(ModelConfig(norm="pre"))
    assert pre_norm == "export formats: ctranslate2, onnx (not marian: requires model.norm=post)"
    recurrent = describe_export_support(ModelConfig(encoder_mixer="lstm"))
    assert recurrent.startswith(
        "export formats: none (not ctranslate2: CTranslate2 does not support model.encoder_mixer"
    )


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
