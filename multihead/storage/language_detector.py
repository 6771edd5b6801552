"""The language detector of a model or a prepared corpus: languages.safetensors, 64 KB for each language."""

from pathlib import Path

import numpy as np

from multihead.errors import UserError
from multihead.storage.arrays import read_arrays, write_arrays
from multihead.storage.files import atomic_file
from multihead.text.detector import N_BUCKETS, LanguageDetector

FILE = "languages.safetensors"
THRESHOLD = ".threshold"  # name of the array with the threshold; no language is called that


def save_detector(detector: LanguageDetector, folder: Path) -> None:
    tables = dict(zip(detector.languages, detector.table(), strict=True))
    with atomic_file(folder / FILE) as temporary:
        write_arrays(temporary, {**tables, THRESHOLD: np.array([detector.threshold], dtype=np.float32)})


def load_detector(folder: Path) -> LanguageDetector | None:
    """Return the detector of a folder, or None if it has none."""
    path = folder / FILE
    if not path.exists():
        return None
    arrays = read_arrays(path)
    threshold = arrays.pop(THRESHOLD, None)
    shapes = {array.shape for array in arrays.values()}
    if threshold is None or threshold.shape != (1,) or shapes != {(N_BUCKETS,)} or len(arrays) < 2:
        raise UserError(f"cannot read {path}: it is not the language detector of a model")
    table = np.stack(list(arrays.values())).astype(np.float16)
    return LanguageDetector.from_table(list(arrays), table, float(threshold[0]))
