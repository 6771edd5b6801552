"""Model folders: config.json, tokenizer.json, model.safetensors, SHA256SUMS, and a shortlist if one was learned."""

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from multihead.config.fields import convert
from multihead.config.schema import ModelConfig, ModelSearch, RunConfig
from multihead.config.serialization import from_json, search_from_json, to_json
from multihead.console import Log
from multihead.errors import UsageError, UserError
from multihead.storage.arrays import Arrays, check_finite, open_arrays, write_arrays
from multihead.storage.checkpoints import latest_valid, saved_steps
from multihead.storage.checksums import CHECKSUM_FILE, check_loaded, checksums, update_checksum, verify_all
from multihead.storage.files import atomic_file, write_text_atomic
from multihead.storage.language_detector import FILE as LANGUAGES
from multihead.storage.language_detector import load_detector
from multihead.storage.shortlist import FILE as SHORTLIST
from multihead.storage.shortlist import Shortlist, check_shortlist, load_shortlist
from multihead.text.detector import LanguageDetector
from multihead.text.tokenizer import FILE, TARGET_FILE, SubwordTokenizer
from multihead.untrusted import MAX_JSON_BYTES, check_file, read_bytes, read_json

WEIGHTS = "model.safetensors"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedScore:
    """A score on a test set, as the model card lists it."""

    set: str
    name: str
    value: float
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a model was made. Models of older versions, averages and imports leave fields unset."""

    steps: int | None = None
    published: str | None = None  # which weights: an average, or one step
    started_from: str | None = None  # base model of fine-tuning
    imported_from: str | None = None
    imported_commit: str | None = None  # of a model of the hub
    architecture: str | None = None  # of the imported model
    weights_sha256: str | None = None  # of the imported file
    corpus_sha256: str | None = None
    parameters: int | None = None
    target_tokens: int | None = None
    seconds: float | None = None
    minutes: float | None = None  # the limit of the run, if it had one
    matmul_flops: float | None = None  # measured capacity of the machine, FLOP/s
    flops_by_time: float | None = None  # time by capacity, as the paper counts (§6.1)
    flops_counted: float | None = None  # counted from the operations of the model
    validation: dict[str, float] = field(default_factory=dict)  # loss, perplexity
    scores: tuple[PublishedScore, ...] = ()
    other: dict[str, Any] = field(default_factory=dict)  # fields of other versions, kept as they are

    @classmethod
    def from_json(cls, document: object) -> "Provenance":
        """Read the section of config.json; what does not have the expected type is kept in `other`."""
        known: dict[str, Any] = {}
        other: dict[str, Any] = {}
        for name, value in document.items() if isinstance(document, dict) else ():
            try:
                known[name] = convert(name, _provenance_fields()[name], value)
            except (KeyError, UsageError):
                other[name] = value
        return cls(**known, other=other)

    def to_json(self) -> dict[str, Any]:
        """Return the section of config.json: the fields that are set."""
        document = {
            name: value for name, value in asdict(self).items() if name != "other" and value not in (None, {}, ())
        }
        if self.scores:
            document["scores"] = list(document["scores"])
        return document | self.other


@cache
def _provenance_fields() -> Mapping[str, Any]:
    return {name: kind for name, kind in get_type_hints(Provenance).items() if name != "other"}


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on disk. Its settings are read when it is opened; everything else on demand."""

    root: Path  # the folder that was opened
    path: Path  # `root`, or the checkpoint in it
    config: RunConfig
    search: ModelSearch

    @classmethod
    def open(cls, path: Path, log: Log = _log.warning) -> "ModelFolder":
        """Open a model, a checkpoint, or the newest valid checkpoint of a run that has published nothing yet."""
        if not path.is_dir():
            raise UserError(f"there is no model folder {path}")
        if what := what_else(path):
            raise UserError(f"{path} is not a model: {what}")
        root, path = path, usable_folder(path, log)
        check_loaded(path, "config.json")
        return cls(root, path, read_config(path), read_search(path))

    def tokenizer(self) -> SubwordTokenizer:
        """Read the tokenizer, whose size must be that of the model."""
        for name in (FILE, TARGET_FILE):
            check_loaded(self.path, name)
        tokenizer, expected = SubwordTokenizer.load(self.path / "tokenizer.json"), self.config.model.vocab_size
        if tokenizer.vocab_size != expected:
            raise UserError(f"{self.path}: {tokenizer.vocab_size} pieces, but model.vocab_size={expected}")
        return tokenizer

    def weights(self) -> Arrays:
        """Read all weights: finite numbers in arrays of the shapes that config.json says."""
        path = self.path / WEIGHTS
        with open_arrays(path) as file:
            _check_fit(file.shapes, self.config.model, self.path)
            check_loaded(self.path, WEIGHTS)
            weights = file.read_all()
        check_finite(weights, path)
        return weights

    def check_headers(self) -> None:
        """Raise UserError if a file cannot be what it should be, by its kind, size and header.

        For anyone who reads all of the files for a checksum: a FIFO, a device or a sparse file would never end.
        """
        with open_arrays(self.path / WEIGHTS) as file:
            _check_fit(file.shapes, self.config.model, self.path)
        for name in (FILE, TARGET_FILE):
            if name == FILE or (self.path / name).exists():
                check_file(self.path / name, MAX_JSON_BYTES)
        check_shortlist(self.path)

    @property
    def provenance(self) -> Provenance:
        """How the model was made."""
        return read_provenance(self.path)

    def shortlist(self) -> Shortlist | None:
        """Read the shortlist; None if the model has none."""
        check_loaded(self.path, SHORTLIST)
        shortlist, expected = load_shortlist(self.path), self.config.model.vocab_size
        if shortlist and len(shortlist.candidates) != expected:
            n_pieces = len(shortlist.candidates)
            raise UserError(f"{self.path / SHORTLIST} is for {n_pieces:,} pieces, but model.vocab_size={expected}")
        return shortlist

    def verify(self) -> list[str]:
        """Compare every file with SHA256SUMS, and return the names of the files."""
        if not (self.path / CHECKSUM_FILE).exists():
            raise UserError(f"{self.path} has no {CHECKSUM_FILE}, so that its files cannot be verified")
        return verify_all(self.path, required=WEIGHTS)

    def detector(self) -> LanguageDetector | None:
        """Read the detector of the model's languages; None if it has none, or one of other languages."""
        check_loaded(self.path, LANGUAGES)
        detector = load_detector(self.path)
        languages = set(self.config.data.all_languages)
        return detector if detector and len(languages) > 1 and languages <= set(detector.languages) else None

    @property
    def alignment_layer(self) -> int:
        """The decoder layer whose attention aligns words, counted from 0."""
        n_layers, layer = self.config.model.decoder_layers, self.search.alignment_layer
        if layer is not None and layer >= n_layers:
            raise UserError(f"{self.path}/config.json: search.alignment_layer={layer}, but there are {n_layers} layers")
        return n_layers - 1 if layer is None else layer

    @property
    def n_parameters(self) -> int:
        """The number of parameters, counted from the file header without reading any weights."""
        with open_arrays(self.path / WEIGHTS) as file:
            return sum(math.prod(shape) for shape in file.shapes.values())

    def facts(self) -> dict[str, Any]:
        """Return what `multihead info` prints."""
        config = self.config
        return {
            "model": self.root.name,
            "languages": ", ".join(f"{source or '?'} to {target or '?'}" for source, target in config.data.pairs),
            "parameters": self.n_parameters,
            "shape": asdict(config.model),
            "tokenizer": f"{config.data.tokenizer}, {config.model.vocab_size} pieces",
            "search": asdict(self.search),
            **self.provenance.to_json(),
        }


def save_model(  # noqa: PLR0913 - the parts of a model folder
    folder: Path,
    weights: Arrays,
    config: RunConfig,
    vocabulary: Mapping[str, str],
    provenance: Provenance,
    search: ModelSearch | None = None,
) -> None:
    """Write a model folder: each file is replaced atomically, the weights, which carry the step, last."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomic(folder / "config.json", to_json(config, provenance.to_json(), search))
    for name, text in vocabulary.items():
        write_text_atomic(folder / name, text)
    with atomic_file(folder / WEIGHTS) as temporary:
        write_arrays(temporary, weights, {"step": str(provenance.steps or 0)})
        # README.md has no checksum: users edit the card.
        others = {name: folder / name for name in ("config.json", *vocabulary, SHORTLIST, LANGUAGES)}
        existing = {name: path for name, path in others.items() if path.exists()}
        write_text_atomic(folder / CHECKSUM_FILE, checksums({WEIGHTS: temporary, **existing}))


def replace_config(folder: Path, text: str) -> None:
    """Replace config.json, and its checksum if the folder has one."""
    write_text_atomic(folder / "config.json", text)
    update_checksum(folder, "config.json")


def published_step(folder: Path) -> int | None:
    """Return the step of the model that a run has published; None if there is none, or it is damaged."""
    try:
        with open_arrays(folder / WEIGHTS) as file:
            return int(file.metadata.get("step", 0))
    except (UserError, ValueError):
        return None


def is_published(folder: Path, step: int) -> bool:
    """Return whether the model of this step is published and complete."""
    if published_step(folder) != step or not (folder / "README.md").exists():
        return False
    try:
        if (folder / CHECKSUM_FILE).exists():  # older versions wrote none
            verify_all(folder, required=WEIGHTS)
    except UserError:
        return False
    return True


def what_else(folder: Path) -> str | None:
    """Return what a folder is that holds no model, and what to do with it; None for a model or a run."""
    if (folder / "corpus.json").exists():
        return f"it is a prepared corpus. Train on it: multihead train --data {folder} --output MODEL"
    if (folder / "model.bin").exists():
        return "it is an export to CTranslate2. Give the model that was exported"
    if any(folder.glob("*.onnx")):
        return "it is an export to ONNX. Give the model that was exported"
    if saved_steps(folder / "checkpoints"):
        return None
    if not (folder / "config.json").exists():
        return _without_config(folder)
    try:
        document = read_json(folder / "config.json")
    except UserError:
        return None  # damaged; reading the config says how
    if (
        isinstance(document, dict)
        and "format" not in document
        and ("model_type" in document or "architectures" in document)
    ):
        kind = document.get("model_type")
        if kind == "marian":
            return f"it is a Marian model of Hugging Face. Import it: multihead import {folder} --output MODEL"
        return f"it is a model of Hugging Face of type {kind}; only Marian models can be imported"
    if not (folder / WEIGHTS).exists() and (folder / "data").exists():
        return "it is a training run without a checkpoint. Continue it with the command that began it"
    return None


def _without_config(folder: Path) -> str:
    if not any(folder.iterdir()):
        return "the folder is empty"
    if (folder / "data" / "corpus.json").exists():
        return "it is a training run that has not begun. Continue it with the command that began it"
    if steps := saved_steps(folder):
        return f"it holds checkpoints. Give one of them, such as {folder / f'step-{steps[-1]}'}, or the run's folder"
    if models := sorted(path.parent for path in folder.glob("*/config.json")):
        return f"it has no config.json. Did you mean {models[0]}?"
    return "it has no config.json. A model folder has config.json, model.safetensors and tokenizer.json"


def usable_folder(folder: Path, log: Log = _log.warning) -> Path:
    """Return the folder to load a model from: the newest checkpoint of a run that has published nothing yet."""
    if (folder / WEIGHTS).exists() or not (newest := latest_valid(folder / "checkpoints", log)):
        return folder
    log(f"{folder} is not published yet: using its newest checkpoint, {newest.name}")
    return newest


def read_config(folder: Path) -> RunConfig:
    """Return the settings of a model or a run."""
    path = folder / "config.json"
    return from_json(read_bytes(path), path)


def read_search(folder: Path) -> ModelSearch:
    """Return the search settings stored with a model; the paper's defaults if it stores none."""
    path = folder / "config.json"
    return search_from_json(read_bytes(path), path) if path.exists() else ModelSearch()


def store_search(folder: Path, search: ModelSearch) -> None:
    """Change the search settings that are stored with a model, and the checksum of its config.json."""
    replace_config(folder, to_json(read_config(folder), read_provenance(folder).to_json(), search))


def read_vocabulary_files(folder: Path) -> dict[str, str]:
    """Return the files of the tokenizer of a model, a checkpoint or a prepared corpus, by name."""
    names = (FILE, *([TARGET_FILE] if (folder / TARGET_FILE).exists() else []))
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def read_provenance(folder: Path) -> Provenance:
    """Return how a model was made; all fields are unset if its config.json does not say."""
    document = read_json(folder / "config.json")
    return Provenance.from_json(document.get("provenance") if isinstance(document, dict) else None)


def _check_fit(shapes: Mapping[str, tuple[int, ...]], config: ModelConfig, folder: Path) -> None:
    """Refuse a config.json whose sizes are not those of the weights, before anything is allocated by its numbers."""
    expected = {
        "source_embedding.weight": (config.vocab_size, config.d_model),
        "encoder.0.feed_forward.w_1.weight": (config.d_ff, config.d_model),
    }
    if not config.variants:
        expected["decoder.0.cross_attention.w_k.weight"] = (config.n_heads * config.d_k, config.d_model)
        expected["decoder.0.cross_attention.w_v.weight"] = (config.n_heads * config.d_v, config.d_model)
    # Variants may lack some of these; every name is compared when the model is built.
    wrong = [name for name, shape in expected.items() if shapes.get(name, shape) != shape]
    for stack, n_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        wrong += [f"{stack}.{n_layers - 1}"] if n_layers > len(shapes) else []
    if wrong:
        raise UserError(f"the weights in {folder} do not fit its config.json: see '{wrong[0]}'")
