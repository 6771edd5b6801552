"""Import from Hugging Face Marian / OPUS-MT. No code is run, and no array is read before its shape is checked."""

import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from multihead.config.directions import direction_of
from multihead.config.resolve import configure
from multihead.config.schema import RunConfig
from multihead.errors import UserError
from multihead.interop.marian.folder import MarianFolder
from multihead.interop.marian.format import (
    ACTIVATIONS,
    MAX_TOKENS,
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
)
from multihead.interop.marian.vocabulary import read_vocabulary
from multihead.interop.weight_layout import read_weights, sines_before_cosines
from multihead.model.positions import sinusoids
from multihead.storage.arrays import Arrays
from multihead.storage.checksums import CHECKSUM_FILE, checksums
from multihead.storage.files import atomic_directory, check_writable
from multihead.storage.model_folder import WEIGHTS, ModelFolder, Provenance, read_provenance, save_model
from multihead.text.target_languages import target_ids
from multihead.text.tokenizer import BOS_ID, PAD_ID, SubwordTokenizer

IMPOSSIBLE = -1e9  # bias of a token that is never generated
POSITION_TOLERANCE = 2e-3  # between a stored table of positions, in half precision, and the sinusoids


def import_marian(folder: Path, output: Path, name: str = "", commit: str | None = None) -> None:
    """Convert a Marian / OPUS-MT folder to a model folder; `name` and `commit` are recorded as its origin."""
    if not _was_imported(output):
        check_writable(output, None, "an imported model")
    files = MarianFolder(folder)
    config, vocabulary = read_config(files), read_vocabulary(files)
    if len(vocabulary) != config.vocab_size:
        raise UserError(f"{folder}: {len(vocabulary)} pieces, but config.json says vocab_size {config.vocab_size}")
    mapping = map_vocabulary(config, vocabulary)
    weights = _native_weights(config, _read_weights(files, config), mapping)
    tokenizer = vocabulary.tokenizer(mapping.marian_ids)
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
    vocab_size, d_model, d_ff = config.vocab_size, config.d_model, config.encoder_ffn_dim
    shapes: dict[str, tuple[int, ...]] = {}
    for marian_name, _ in layers(config.encoder_layers, config.decoder_layers):
        kind = marian_name.rpartition(".")[2]
        weight: tuple[int, ...] = {"fc1": (d_ff, d_model), "fc2": (d_model, d_ff)}.get(kind, (d_model, d_model))
        shapes[f"{marian_name}.weight"] = (d_model,) if kind.endswith("norm") else weight
        shapes[f"{marian_name}.bias"] = (d_ff,) if kind == "fc1" else (d_model,)
    for name in _embedding_names(config, found):
        shapes[name] = (vocab_size, d_model)
    if OUTPUT_BIAS in found:
        shapes[OUTPUT_BIAS] = (1, vocab_size)
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
        expected = sinusoids(*shape)[:, sines_before_cosines(config.d_model)]
        if table.shape != shape or not np.allclose(table, expected, rtol=0, atol=POSITION_TOLERANCE):
            raise UserError(f"{folder}/model.safetensors: '{name}' are not the sinusoids of Marian")


def _native_weights(config: MarianConfig, weights: Arrays, vocabulary: VocabularyMapping) -> Arrays:
    order, ids = np.argsort(sines_before_cosines(config.d_model)), vocabulary.marian_ids
    source, target, output = _embedding_names(config, weights)
    native: Arrays = {}
    for marian_name, native_name in layers(config.encoder_layers, config.decoder_layers):
        for name, array in ((f"{native_name}.{kind}", weights[f"{marian_name}.{kind}"]) for kind in ("weight", "bias")):
            native[name] = permute_model_axis(name, array, order)
    scale = 1.0 if config.scale_embedding else math.sqrt(config.d_model)  # our model multiplies by the root
    native["source_embedding.weight"] = weights[source][ids][:, order] / scale
    if config.tie != "all":
        native["target_embedding.weight"] = weights[target][ids][:, order] / scale
    if config.tie == "none":
        native["output.weight"] = weights[output][ids][:, order]
    bias = weights[OUTPUT_BIAS][0][ids] if OUTPUT_BIAS in weights else np.zeros(len(ids), np.float32)
    if vocabulary.start_is_padding:
        bias[BOS_ID] = IMPOSSIBLE
    native["output.bias"] = bias
    return _without_zero_biases(native)


def trainable(weights: Arrays) -> Arrays:
    """Return the weights of an imported model for training: its start token may have a tiny probability.

    With the bias of an impossible token, label smoothing would make the loss huge.
    """
    bias = weights.get("output.bias")
    if bias is None or bias[BOS_ID] != IMPOSSIBLE:
        return weights
    bias = bias.copy()
    bias[BOS_ID] = bias[PAD_ID]
    return {**weights, "output.bias": bias}


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
    d_head = config.d_model // config.encoder_attention_heads
    source_lang, target_lang = files.languages()
    return configure(
        {
            "model.vocab_size": len(vocabulary.marian_ids),
            "model.d_model": config.d_model,
            "model.d_ff": config.encoder_ffn_dim,
            "model.encoder_layers": config.encoder_layers,
            "model.decoder_layers": config.decoder_layers,
            "model.n_heads": config.encoder_attention_heads,
            "model.d_k": d_head,
            "model.d_v": d_head,
            "model.dropout": config.dropout,
            "model.max_len": config.max_position_embeddings,
            "model.activation": ACTIVATIONS[config.activation_function],
            "model.attention_bias": "encoder.0.self_attention.w_q.bias" in weights,
            "model.output_bias": "output.bias" in weights,
            "model.tie_embeddings": config.tie,
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
