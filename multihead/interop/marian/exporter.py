"""Export to Hugging Face Marian: a folder that `transformers` loads, ready for the hub."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from multihead.config.schema import ALPHA, BEAM, ModelConfig, RunConfig
from multihead.errors import UserError
from multihead.interop.marian.folder import DIRECTIONS
from multihead.interop.marian.format import (
    MAX_TOKENS,
    ORIGIN,
    ORIGINALS,
    OUTPUT,
    OUTPUT_BIAS,
    SHARED,
    SOURCE,
    TARGET,
    VocabularyMapping,
    layers,
    permute_model_axis,
    read_original,
    stack_of,
)
from multihead.interop.weight_layout import InnerSizes, read_weights, resize_layer, sines_before_cosines
from multihead.storage.arrays import Arrays, write_arrays
from multihead.storage.files import atomic_directory, check_writable
from multihead.storage.model_folder import WEIGHTS, ModelFolder
from multihead.text.target_languages import target_piece
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID

GENERATION = "generation_config.json"
STACKS = ("encoder", "decoder")


def unsupported_by_marian(config: ModelConfig, is_imported: bool = False) -> str | None:
    """Return why Marian cannot express this shape, or None if it can; the heads of an imported model are its own."""
    if config.variants:
        return f"Marian does not support {config.variants[0]}"
    if config.norm != "post":
        return "requires model.norm=post"
    if config.positions != "sinusoidal":
        return "requires model.positions=sinusoidal"
    if is_imported:
        return None
    if config.d_model % config.n_heads or max(config.d_k, config.d_v) > config.d_model // config.n_heads:
        return (
            f"heads of Marian share d_model among them, and {config.n_heads} heads of width "
            f"{max(config.d_k, config.d_v)} do not fit {config.d_model}"
        )
    return None


def export_marian(model: ModelFolder, output: Path) -> None:
    """Write a folder for `transformers.MarianMTModel.from_pretrained`, with a tokenizer and a model card.

    An imported model gets its shape and the files of its vocabulary back.
    """
    config, origin = model.config, model.path / ORIGIN
    if reason := unsupported_by_marian(config.model, is_imported=origin.is_dir()):
        raise UserError(reason)
    check_writable(output, GENERATION, "a Marian export")
    tokenizer = model.tokenizer()
    if origin.is_dir():
        original, vocabulary = read_original(origin, config.model)
        shape = {stack: original.inner_sizes(stack) for stack in STACKS}
    else:
        vocabulary = VocabularyMapping.native(tokenizer.pieces())
        shape = dict.fromkeys(STACKS, _native_sizes(config.model))
    with atomic_directory(output) as temporary:
        weights = _marian_weights(config.model, read_weights(model), vocabulary, shape)
        write_arrays(temporary / WEIGHTS, weights, {"format": "pt"})
        _write_json(temporary / "config.json", _marian_config(config.model, vocabulary, shape))
        _write_json(temporary / GENERATION, _generation(config.model, vocabulary))
        if vocabulary.is_native:
            (temporary / "tokenizer.json").write_text(tokenizer.json_with_eos(), encoding="utf-8")
            _write_json(temporary / "tokenizer_config.json", _tokenizer_config(config))
        else:
            for name in ORIGINALS[1:]:
                if (origin / name).exists():
                    shutil.copyfile(origin / name, temporary / name)
        (temporary / "README.md").write_text(_card(output.name, config), encoding="utf-8")


def _native_sizes(config: ModelConfig) -> InnerSizes:
    """Return the sizes of a model that Multihead trained: narrow heads are widened."""
    width = config.d_model // config.n_heads
    return InnerSizes(config.n_heads, width, width, config.d_ff)


def _marian_weights(
    config: ModelConfig, weights: Arrays, vocabulary: VocabularyMapping, shape: Mapping[str, InnerSizes]
) -> Arrays:
    order = sines_before_cosines(config.d_model)
    source_ids, target_ids = map(vocabulary.native_ids, (vocabulary.source_ids, vocabulary.target_ids))
    input_ids = target_ids  # of the decoder
    if vocabulary.start_is_padding:
        # Marian starts with its padding token, whose embedding has no other use; training changes ours.
        input_ids = np.where(target_ids == PAD_ID, BOS_ID, target_ids)
    arrays: Arrays = {}
    sizes = InnerSizes.of(config)
    for marian_name, native_name in layers(config.encoder_layers, config.decoder_layers):
        for name, kind in ((f"{native_name}.{kind}", kind) for kind in ("weight", "bias")):
            array = np.zeros(config.d_model, np.float32)  # of attention without biases
            if name in weights:
                array = resize_layer(native_name, weights[name], sizes, shape[stack_of(native_name)])
            arrays[f"{marian_name}.{kind}"] = permute_model_axis(name, array, order)
    if config.tie_embeddings == "all":
        arrays[SHARED] = weights["source_embedding.weight"][input_ids][:, order]
    else:
        arrays[SOURCE] = weights["source_embedding.weight"][source_ids][:, order]
        arrays[TARGET] = weights["target_embedding.weight"][input_ids][:, order]
    if config.tie_embeddings == "none":
        arrays[OUTPUT] = weights["output.weight"][target_ids][:, order]
    bias = weights.get("output.bias", np.zeros(config.vocab_size, np.float32))
    arrays[OUTPUT_BIAS] = bias[target_ids][None]
    return arrays


def _marian_config(
    config: ModelConfig, vocabulary: VocabularyMapping, shape: Mapping[str, InnerSizes]
) -> dict[str, object]:
    both = {
        f"{stack}_{name}": value
        for stack, sizes in shape.items()
        for name, value in {"attention_heads": sizes.n_heads, "ffn_dim": sizes.d_ff, "layerdrop": 0.0}.items()
    }
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": len(vocabulary.native_ids(vocabulary.source_ids)),
        "decoder_vocab_size": len(vocabulary.native_ids(vocabulary.target_ids)),
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        **both,
        "activation_function": config.activation,
        "max_position_embeddings": config.max_len,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "tie_word_embeddings": config.tie_embeddings != "none",
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "pad_token_id": vocabulary.pad_id,
        "eos_token_id": vocabulary.eos_id,
        "forced_eos_token_id": vocabulary.eos_id,
        "decoder_start_token_id": vocabulary.start_id,
        "bos_token_id": None if vocabulary.start_is_padding else vocabulary.start_id,
    }


def _generation(config: ModelConfig, vocabulary: VocabularyMapping) -> dict[str, object]:
    """Return the paper's search as far as `generate` supports it: its length penalty is length^alpha."""
    return {
        "num_beams": BEAM,
        "length_penalty": ALPHA,
        "max_length": min(config.max_len, MAX_TOKENS + 1),
        "bad_words_ids": [[id] for id in sorted({vocabulary.pad_id, vocabulary.start_id})],
        "pad_token_id": vocabulary.pad_id,
        "eos_token_id": vocabulary.eos_id,
        "forced_eos_token_id": vocabulary.eos_id,
        "decoder_start_token_id": vocabulary.start_id,
    }


def _tokenizer_config(config: RunConfig) -> dict[str, object]:
    symbols = {
        f"{role}_token": SPECIAL_TOKENS[id]
        for role, id in (("pad", PAD_ID), ("unk", UNK_ID), ("bos", BOS_ID), ("eos", EOS_ID))
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": min(config.model.max_len, MAX_TOKENS + 1),
        "source_lang": config.data.source_lang,
        "target_lang": config.data.target_lang,
        **({DIRECTIONS: list(config.data.directions)} if config.data.directions else {}),
        "clean_up_tokenization_spaces": False,
        **symbols,
    }


def _card(name: str, config: RunConfig) -> str:
    data = config.data
    directions = ", ".join(" to ".join(pair) for pair in data.pairs if all(pair))
    piece = f"{target_piece(data.pairs[0][1])} " if data.directions else ""
    return "\n".join(
        [
            "---",
            *(["language:", *(f"- {language}" for language in data.all_languages)] if data.all_languages else []),
            "library_name: transformers",
            "pipeline_tag: translation",
            "tags:",
            "- marian",
            "- multihead",
            "---",
            f"# {name}\n",
            f"A translation model{', ' if directions else ''}{directions}, exported by Multihead.\n",
            *([f"A text begins with the language to translate it into, here {piece.strip()}.\n"] if piece else []),
            "```python",
            "from transformers import AutoTokenizer, MarianMTModel\n",
            f'tokenizer, model = AutoTokenizer.from_pretrained("{name}"), MarianMTModel.from_pretrained("{name}")',
            f'batch = tokenizer(["{piece}Where is the station?"], return_tensors="pt", padding=True)',
            "ids = model.generate(input_ids=batch.input_ids, attention_mask=batch.attention_mask)",
            "print(tokenizer.batch_decode(ids, skip_special_tokens=True))",
            "```\n",
            "License: that of the text it was trained on; fill it in before you share the model.",
            "",
        ]
    )


def _write_json(path: Path, document: Mapping[str, object]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
