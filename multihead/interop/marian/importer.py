"""In from Hugging Face Marian / OPUS-MT: nothing is run, and nothing is read before its size is known to be right."""

import math
from collections.abc import Mapping
from pathlib import Path

import torch

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
    read_config,
    reordered,
)
from multihead.interop.marian.vocabulary import read_vocabulary
from multihead.interop.weight_layout import sines_before_cosines
from multihead.model.positions import sinusoids
from multihead.model.weights import Tensors, load_model, to_arrays
from multihead.storage.files import atomic_directory, can_overwrite
from multihead.storage.model_folder import Provenance, read_provenance, save_model
from multihead.text.tokenizer import BOS_ID

NEVER = -1e9  # bias of what cannot be said
CLOSE = 2e-3  # how far a stored table of positions may be from the sinusoids, in half precision


def import_marian(folder: Path, output: Path, name: str = "") -> None:
    """A Marian / OPUS-MT folder as a model of ours; `name` says where it came from, if not by its folder."""
    if not can_overwrite(output) and not _was_imported(output):
        raise UserError(f"{output} is there already, and was not imported: give another folder")
    files = MarianFolder(folder)
    theirs, vocabulary = read_config(files), read_vocabulary(files)
    if len(vocabulary) != theirs.vocab_size:
        raise UserError(f"{folder}: {len(vocabulary)} pieces, but config.json says vocab_size {theirs.vocab_size}")
    places = map_vocabulary(theirs, vocabulary)
    weights = _read_weights(files, theirs)
    tensors = _native_weights(theirs, weights, places)
    run_config = _native_config(theirs, tensors, places, files)
    provenance = Provenance(
        imported_from=name or folder.resolve().name,
        architecture="Hugging Face Marian",
        weights_sha256=files.sha256("model.safetensors"),
        parameters=sum(tensor.numel() for tensor in tensors.values()),
    )
    tokenizer = vocabulary.tokenizer(places.theirs)
    with atomic_directory(output) as aside:
        save_model(aside, to_arrays(tensors), run_config, tokenizer.to_json(), provenance)
        (aside / "README.md").write_text(_imported_card(output.name, run_config, provenance), encoding="utf-8")
        if not places.is_own:
            _keep_originals(files, aside / ORIGIN)
        load_model(aside)  # what is written can be read


def _was_imported(output: Path) -> bool:
    return (output / "config.json").exists() and read_provenance(output).imported_from is not None


def _read_weights(files: MarianFolder, config: MarianConfig) -> Tensors:
    """Their tensors in float32, once names and shapes are known to be those that config.json says."""
    with files.tensors() as tensors:
        expected, found = _expected_shapes(config, tensors.shapes), tensors.shapes
        unknown = sorted(found.keys() - expected.keys() - {*POSITIONS, SHARED, SOURCE, TARGET, OUTPUT})
        missing = sorted(expected.keys() - found.keys())
        wrong = sorted(name for name in expected if name in found and found[name] != expected[name])
        for names, problem in (
            (missing, "is missing"),
            (unknown, "is not known"),
            (wrong, "has another shape than config.json says"),
        ):
            if names:
                raise UserError(f"{files.path}/model.safetensors: '{names[0]}' {problem}")
        _check_positions(config, {name: tensors.read(name) for name in POSITIONS if name in found}, files.path)
        return {name: tensors.read(name) for name in expected}


def _expected_shapes(config: MarianConfig, found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    vocab_size, d_model, d_ff = config.vocab_size, config.d_model, config.encoder_ffn_dim
    shapes: dict[str, tuple[int, ...]] = {}
    for theirs, _ in layers(config.encoder_layers, config.decoder_layers):
        kind = theirs.rpartition(".")[2]
        weight: tuple[int, ...] = {"fc1": (d_ff, d_model), "fc2": (d_model, d_ff)}.get(kind, (d_model, d_model))
        shapes[f"{theirs}.weight"] = (d_model,) if kind.endswith("norm") else weight
        shapes[f"{theirs}.bias"] = (d_ff,) if kind == "fc1" else (d_model,)
    for name in _embedding_names(config, found):
        shapes[name] = (vocab_size, d_model)
    if OUTPUT_BIAS in found:
        shapes[OUTPUT_BIAS] = (1, vocab_size)
    return shapes


def _embedding_names(config: MarianConfig, found: Mapping[str, object]) -> tuple[str, str, str]:
    """Where the embeddings of source and target and the map to logits are; what is shared is stored once or more."""
    source = SOURCE if SOURCE in found else SHARED
    target = TARGET if TARGET in found else SHARED
    return source, target, target if config.tie_word_embeddings else OUTPUT


def _check_positions(config: MarianConfig, tables: Tensors, folder: Path) -> None:
    """Positions are computed, not stored; a table that is there all the same has to be the one that we compute."""
    for name, table in tables.items():
        shape = (config.max_position_embeddings, config.d_model)
        if (
            table.shape != shape
            or (table - torch.from_numpy(sinusoids(*shape))[:, sines_before_cosines(config.d_model)]).abs().max()
            > CLOSE
        ):
            raise UserError(f"{folder}/model.safetensors: '{name}' are not the sinusoids of Marian")


def _native_weights(config: MarianConfig, weights: Tensors, places: VocabularyMapping) -> Tensors:
    axes = sines_before_cosines(config.d_model).argsort()
    source, target, output = _embedding_names(config, weights)
    ours: Tensors = {}
    for theirs, name in layers(config.encoder_layers, config.decoder_layers):
        for kind in ("weight", "bias"):
            ours[f"{name}.{kind}"] = reordered(f"{name}.{kind}", weights[f"{theirs}.{kind}"], axes)
    scale = 1.0 if config.scale_embedding else math.sqrt(config.d_model)  # ours multiplies by the root
    ours["source_embedding.weight"] = weights[source][places.theirs][:, axes] / scale
    if config.tie != "all":
        ours["target_embedding.weight"] = weights[target][places.theirs][:, axes] / scale
    if config.tie == "none":
        ours["output.weight"] = weights[output][places.theirs][:, axes]
    bias = weights[OUTPUT_BIAS][0][places.theirs] if OUTPUT_BIAS in weights else torch.zeros(len(places.theirs))
    if places.start_is_padding:
        bias[BOS_ID] = NEVER
    ours["output.bias"] = bias
    return _without_zero_biases(ours)


def _without_zero_biases(weights: Tensors) -> Tensors:
    """Biases that do nothing are left out, as in the paper: those of attention, and that of the logits."""
    of_attention = {name for name in weights if ".w_" in name and "attention" in name and name.endswith(".bias")}
    idle = set() if any(weights[name].any() for name in of_attention) else of_attention
    idle |= set() if weights["output.bias"].any() else {"output.bias"}
    return {name: tensor.contiguous() for name, tensor in weights.items() if name not in idle}


def _native_config(config: MarianConfig, tensors: Tensors, places: VocabularyMapping, files: MarianFolder) -> RunConfig:
    d_head = config.d_model // config.encoder_attention_heads
    source_lang, target_lang = files.languages()
    return configure(
        {
            "model.vocab_size": len(places.theirs),
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
            "model.attention_bias": "encoder.0.self_attention.w_q.bias" in tensors,
            "model.output_bias": "output.bias" in tensors,
            "model.tie_embeddings": config.tie,
            "data.tokenizer": "bpe" if places.is_own else "unigram",
            "data.unicode": "none",  # SentencePiece models bring their own normalization
            "data.max_length": min(MAX_TOKENS, config.max_position_embeddings - 1),
            "data.source_lang": source_lang,
            "data.target_lang": target_lang,
        }
    )


def _keep_originals(files: MarianFolder, kept: Path) -> None:
    kept.mkdir(exist_ok=True)
    for name in ORIGINALS:
        if files.has(name):
            (kept / name).write_bytes(files.read(name))


def _imported_card(name: str, config: RunConfig, provenance: Provenance) -> str:
    data = config.data
    return "\n".join(
        [
            f"# {name}: {data.source_lang or '?'} → {data.target_lang or '?'}\n",
            f'Imported by Multihead. Translate with `multihead translate {name} "..."`.\n',
            *(f"- {field.replace('_', ' ')}: {value}" for field, value in provenance.to_json().items()),
            "- data, licence and scores: those of the model that it was imported from",
            "",
        ]
    )
