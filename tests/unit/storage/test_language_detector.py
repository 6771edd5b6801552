"""languages.safetensors: what is saved is loaded, and anything else is refused."""

from pathlib import Path

import numpy as np
import pytest

from multihead.errors import UserError
from multihead.storage.arrays import write_arrays
from multihead.storage.language_detector import FILE, load_detector, save_detector
from multihead.text.detector import LanguageDetector


def test_a_saved_detector_is_the_same_when_loaded(tmp_path: Path) -> None:
    detector = LanguageDetector.learn(["en", "pt-BR"], [["good morning"], ["bom dia"]]).calibrated([["good"], ["dia"]])
    save_detector(detector, tmp_path)
    loaded = load_detector(tmp_path)
    assert loaded is not None
    assert (sorted(loaded.languages), loaded.threshold) == (["en", "pt-BR"], detector.threshold)
    assert loaded.rank("bom dia") == detector.rank("bom dia")
    assert (tmp_path / FILE).stat().st_size < 2 * 65_536 + 1000


def test_a_folder_without_the_file_has_no_detector(tmp_path: Path) -> None:
    assert load_detector(tmp_path) is None


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no arrays")
    with pytest.raises(UserError, match="cannot read"):
        load_detector(tmp_path)
    write_arrays(tmp_path / FILE, {"en": np.zeros(3, dtype=np.float16)})
    with pytest.raises(UserError, match="not the language detector"):
        load_detector(tmp_path)
