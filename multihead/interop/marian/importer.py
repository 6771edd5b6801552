"""Import from Hugging Face Marian / OPUS-MT. No code is run, and no array is read before its shape is checked."""

import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from multihead.config.directions import direction_of
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig, RunConfig
from multihead.errors import UserError
from multihead.interop.marian.folder import MarianFolder
from multihead.interop.marian.format import (
    ACTIVATIONS,
    MAX_TOKENS,
    MISSING,
    ORIGIN,
    ORIGINALS,
    OUTPUT,
    OUTPUT_BIAS,
    POSITIONS,
    SHARED,
    SOURCE,
    TARGET,
    MarianConfig,
    VocabularyMapping,
    layers,
    map_vocabulary,
    permute_model_axis,
    read_config,
    read_original,
    stack_of,
)
from multihead.interop.marian.vocabulary import SOURCE_PIECES, TARGET_PIECES, Vocabulary, read_vocabulary
from multihead.interop.weight_layout import read_weights, resize_layer, sines_before_cosines
from multihead.model.positions import sinusoids
from multihead.storage.arrays import Array, Arrays
from multihead.storage.checksums import CHECKSUM_FILE, checksums
from multihead.storage.files import atomic_directory, check_writable
from multihead.storage.model_folder import WEIGHTS, ModelFolder, Provenance, read_provenance, save_model
from multihead.text.target_languages import target_ids
from multihead.text.tokenizer import BOS_ID, PAD_ID, SubwordTokenizer

IMPOSSIBLE = -1e9  # bias of a token that is never generated
UNLIKELY = 10.0  # nats that such a token is below the bias of any other when training starts
POSITION_TOLERANCE = 2e-3  # between a stored table of positions, in half precision, and the sinusoids


def import_marian(folder: Path, output: Path, name: str = "", commit: str | None = None) -> None:
    """Convert a Marian / OPUS-MT folder to a model folder; `name` and `commit` are recorded as its origin."""
    if not _was_imported(output):
        check_writable(output, None, "an imported model")
    files = MarianFolder(folder)
    config, vocabulary = read_config(files), read_vocabulary(files)
    _check_sizes(config, vocabulary, folder)
    mapping = map_vocabulary(config, vocabulary)
    weights = _native_weights(config, _read_weights(files, config), mapping)
    tokenizer = vocabulary.tokenizer(mapping.pieces)
    run_config = _native_config(config, weights, mapping, files, tokenizer)
    provenance = Provenance(
        imported_from=name or folder.resolve().name,
        imported_commit=commit,
        architecture="Hugging Face Marian",
        weights_sha256=files.sha256(WEIGHTS),
        parameters=sum(array.size for array in weights.values()),
    )
    with atomic_directory(output) as temporary:
        save_model(temporary, weights, run_config, tokenizer.files(), provenance)
        (temporary / "README.md").write_text(_imported_card(output.name, run_config, provenance), encoding="utf-8")
        if not mapping.is_native:
            _keep_originals(files, temporary / ORIGIN)
            originals = {f"{ORIGIN}/{path.name}": path for path in sorted((temporary / ORIGIN).iterdir())}
            with (temporary / CHECKSUM_FILE).open("a", encoding="utf-8") as sums:
                sums.write(checksums(originals))
        _check_readable(temporary)


def _check_sizes(config: MarianConfig, vocabulary: Vocabulary, folder: Path) -> None:
    if len(vocabulary.source_pieces) != config.vocab_size:
        n_pieces = len(vocabulary.source_pieces)
        raise UserError(f"{folder}: {n_pieces} pieces, but config.json says vocab_size {config.vocab_size}")
    if (n_pieces := len(vocabulary.target_pieces)) != config.target_vocab_size:
        shared = vocabulary.target_pieces is vocabulary.source_pieces
        raise UserError(
            f"{folder}: {SOURCE_PIECES if shared else TARGET_PIECES} has {n_pieces} pieces of the target language, but "
            f"config.json says decoder_vocab_size {config.target_vocab_size}"
            + (f"; with {TARGET_PIECES}, tokenizer_config.json says separate_vocabs true" if shared else "")
        )


def _check_readable(folder: Path) -> None:
    model = ModelFolder.open(folder)
    model.tokenizer()
    read_weights(model)


def _was_imported(output: Path) -> bool:
    return (output / "config.json").exists() and read_provenance(output).imported_from is not None


def _read_weights(files: MarianFolder, config: MarianConfig) -> Arrays:
    """Read the arrays in float32, after names and shapes have been compared with config.json."""
    with files.open_weights() as arrays:
        expected, found = _expected_shapes(config, arrays.shapes), arrays.shapes
        unknown = sorted(found.keys() - expected.keys() - {*POSITIONS, SHARED, SOURCE, TARGET, OUTPUT})
        missing = sorted(expected.keys() - found.keys())
        wrong = sorted(name for name in expected if name in found and found[name] != expected[name])
        for names, problem in (
            (missing, "is missing"),
            (unknown, "is unexpected"),
            (wrong, "has a different shape than in config.json"),
        ):
            if names:
                raise UserError(f"{files.path}/model.safetensors: '{names[0]}' {problem}")
        _check_positions(config, {name: arrays.read(name) for name in POSITIONS if name in found}, files.path)
        return {name: arrays.read(name).astype(np.float32, copy=False) for name in expected}


def _expected_shapes(config: MarianConfig, found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    vocab_size, d_model = config.vocab_size, config.d_model
    shapes: dict[str, tuple[int, ...]] = {}
    for marian_name, native_name in layers(config.encoder_layers, config.decoder_layers):
        d_ff, kind = config.inner_sizes(stack_of(native_name)).d_ff, marian_name.rpartition(".")[2]
        weight: tuple[int, ...] = {"fc1": (d_ff, d_model), "fc2": (d_model, d_ff)}.get(kind, (d_model, d_model))
        shapes[f"{marian_name}.weight"] = (d_model,) if kind.endswith("norm") else weight
        shapes[f"{marian_name}.bias"] = (d_ff,) if kind == "fc1" else (d_model,)
    sizes = (vocab_size, config.target_vocab_size, config.target_vocab_size)
    shapes |= {name: (size, d_model) for name, size in zip(_embedding_names(config, found), sizes, strict=True)}
    if OUTPUT_BIAS in found:
        shapes[OUTPUT_BIAS] = (1, config.target_vocab_size)
    return shapes


def _embedding_names(config: MarianConfig, found: Mapping[str, object]) -> tuple[str, str, str]:
    """Return the names of source embedding, target embedding and output; shared ones may be stored several times."""
    source = SOURCE if SOURCE in found else SHARED
    target = TARGET if TARGET in found else SHARED
    return source, target, target if config.tie_word_embeddings else OUTPUT


def _check_positions(config: MarianConfig, tables: Arrays, folder: Path) -> None:
    """Refuse a stored table of positions that differs from the sinusoids: our model computes them."""
    for name, table in tables.items():
        shape = (config.max_position_embeddings, config.d_model)
        order = sines_before_cosines(config.d_model)
        if table.shape != shape or not np.allclose(table, sinusoids(*shape)[:, order], rtol=0, atol=POSITION_TOLERANCE):
            raise UserError(f"{folder}/model.safetensors: '{name}' are not the sinusoids of Marian")


def _native_weights(config: MarianConfig, weights: Arrays, vocabulary: VocabularyMapping) -> Arrays:
    order = np.argsort(sines_before_cosines(config.d_model))
    source, target, output = _embedding_names(config, weights)
    native: Arrays = {}
    for marian_name, native_name in layers(config.encoder_layers, config.decoder_layers):
        sizes = config.inner_sizes(stack_of(native_name))
        for kind in ("weight", "bias"):
            array = resize_layer(native_name, weights[f"{marian_name}.{kind}"], sizes, config.common_sizes)
            native[f"{native_name}.{kind}"] = permute_model_axis(f"{native_name}.{kind}", array, order)
    scale = 1.0 if config.scale_embedding else math.sqrt(config.d_model)  # our model multiplies by the root
    native["source_embedding.weight"] = _rows(weights[source], vocabulary.source_ids)[:, order] / scale
    tie, target_ids = _tie(config, vocabulary), vocabulary.target_ids
    if tie != "all":
        native["target_embedding.weight"] = _rows(weights[target], target_ids)[:, order] / scale
    if tie == "none":
        native["output.weight"] = _rows(weights[output], target_ids)[:, order]
    bias = weights[OUTPUT_BIAS][0] if OUTPUT_BIAS in weights else np.zeros(config.target_vocab_size, np.float32)
    bias = _rows(bias, target_ids, IMPOSSIBLE)
    if vocabulary.start_is_padding:
        bias[BOS_ID] = IMPOSSIBLE
    native["output.bias"] = bias
    return _without_zero_biases(native)


def _rows(array: Array, ids: list[int], missing: float = 0.0) -> Array:
    rows: Array = array[ids]
    rows[np.equal(ids, MISSING)] = missing
    return rows


def _tie(config: MarianConfig, vocabulary: VocabularyMapping) -> str:
    """Return which embeddings share their matrix; separate vocabularies could share only numbers of rows."""
    if not config.tie_word_embeddings or not config.scale_embedding:
        return "none"
    return "all" if config.share_encoder_decoder_embeddings and not vocabulary.is_separate else "target"


def trainable(weights: Arrays) -> Arrays:
    """Return the weights of an imported model for training: tokens that it cannot generate get a tiny probability.

    They are its start token and, if the vocabularies are separate, the pieces of the source alone. With the bias of an
    impossible token, label smoothing would make the loss huge.
    """
    bias = weights.get("output.bias")
    if bias is None or not (is_impossible := bias == IMPOSSIBLE).any():
        return weights
    bias = np.where(is_impossible, bias[~is_impossible].min() - bias.dtype.type(UNLIKELY), bias)
    if is_impossible[BOS_ID]:
        bias[BOS_ID] = bias[PAD_ID]
    return {**weights, "output.bias": bias}


def forbid_source_pieces(weights: Mapping[str, Any], folder: Path, config: ModelConfig) -> None:
    """Make the pieces of the source alone, which `trainable` allowed, impossible again in the weights of a run.

    Label smoothing gives each of them as much probability as any other piece, a few percent in total.
    """
    if (folder / ORIGIN).is_dir():
        _, vocabulary = read_original(folder / ORIGIN, config, with_models=False)
        if MISSING in vocabulary.target_ids:
            weights["output.bias"][np.equal(vocabulary.target_ids, MISSING).nonzero()[0]] = IMPOSSIBLE


def _without_zero_biases(weights: Arrays) -> Arrays:
    """Leave out the biases of attention and of the logits if they are zero, as in the paper."""
    of_attention = {name for name in weights if ".w_" in name and "attention" in name and name.endswith(".bias")}
    zero = set() if any(weights[name].any() for name in of_attention) else of_attention
    zero |= set() if weights["output.bias"].any() else {"output.bias"}
    return {name: array for name, array in weights.items() if name not in zero}


def _native_config(
    config: MarianConfig,
    weights: Arrays,
    vocabulary: VocabularyMapping,
    files: MarianFolder,
    tokenizer: SubwordTokenizer,
) -> RunConfig:
    sizes = config.common_sizes
    source_lang, target_lang = files.languages()
    return configure(
        {
            "model.vocab_size": len(vocabulary.pieces),
            "model.d_model": config.d_model,
            "model.d_ff": sizes.d_ff,
            "model.encoder_layers": config.encoder_layers,
            "model.decoder_layers": config.decoder_layers,
            "model.n_heads": sizes.n_heads,
            "model.d_k": sizes.d_k,
            "model.d_v": sizes.d_v,
            "model.dropout": config.dropout,
            "model.max_len": config.max_position_embeddings,
            "model.activation": ACTIVATIONS[config.activation_function],
            "model.attention_bias": "encoder.0.self_attention.w_q.bias" in weights,
            "model.output_bias": "output.bias" in weights,
            "model.tie_embeddings": _tie(config, vocabulary),
            "data.tokenizer": "bpe" if vocabulary.is_native else "unigram",
            "data.unicode": "none",  # SentencePiece models have their own normalization
            "data.max_length": min(MAX_TOKENS, config.max_position_embeddings - 1),
            "data.source_lang": source_lang,
            "data.target_lang": target_lang,
            "data.directions": files.directions() or _directions_into(target_ids(tokenizer), source_lang),
        }
    )


def _directions_into(targets: Iterable[str], source: str) -> list[str]:
    """Return the directions of a model whose vocabulary has pieces for several target languages, as OPUS-MT's have."""
    names = [direction_of((source, target)) for target in targets]
    return names if source.replace("-", "_").isidentifier() and len(names) > 1 else []


def _keep_originals(files: MarianFolder, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in ORIGINALS:
        if files.has(name):
            (folder / name).write_bytes(files.read(name))


def _imported_card(name: str, config: RunConfig, provenance: Provenance) -> str:
    data = config.data
    return "\n".join(
        [
            f"# {name}: {data.source_lang or '?'} → {data.target_lang or '?'}\n",
            f'Imported by Multihead. Translate with `multihead translate {shlex.quote(name)} "..."`.\n',
            *(f"- {field.replace('_', ' ')}: {value}" for field, value in provenance.to_json().items()),
            "- data, license and scores: those of the original model",
            "",
        ]
    )
