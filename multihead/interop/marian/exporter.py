"""Out to Hugging Face Marian: a folder that `transformers` loads, ready for the hub."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from multihead.config.schema import ModelConfig, RunConfig
from multihead.errors import UserError
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
    mapping_from_places,
    reordered,
)
from multihead.interop.weight_layout import pad_heads, sines_before_cosines
from multihead.model.transformer import Transformer
from multihead.model.weights import Tensors, weights_of
from multihead.storage.files import atomic_directory, can_overwrite
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID, SubwordTokenizer

GENERATION = "generation_config.json"


def unsupported_by_marian(config: ModelConfig) -> str:
    """Why Marian cannot be this shape, in words; empty if it can."""
    if config.variants:
        return f"Marian has attention as in the paper, not {config.variants[0]}"
    if config.norm != "post":
        return "Marian has its LayerNorm after each sub-layer: it needs norm=post, as in the paper"
    if config.positions != "sinusoidal":
        return "Marian has sinusoidal positions only"
    if config.d_model % config.n_heads or max(config.d_k, config.d_v) > config.d_model // config.n_heads:
        return f"heads of Marian share d_model among them: {config.n_heads} of {config.d_k} in {config.d_model} do not"
    return ""


def export_marian(
    model: Transformer, tokenizer: SubwordTokenizer, config: RunConfig, output: Path, origin: Path
) -> None:
    """Write a folder for `transformers.MarianMTModel.from_pretrained`, with a tokenizer and a card.

    `origin` is the model's own folder, which has the files of the vocabulary if the model was once imported.
    """
    if reason := unsupported_by_marian(model.config):
        raise UserError(reason)
    if not can_overwrite(output, GENERATION):
        raise UserError(f"{output} is there already, and is not an export to Marian: give another folder")
    places = mapping_from_places(origin / ORIGIN) or VocabularyMapping.own(model.config.vocab_size)
    with atomic_directory(output) as aside:
        tensors = {name: tensor.contiguous() for name, tensor in _marian_weights(model, places).items()}
        save_file(tensors, aside / "model.safetensors", {"format": "pt"})
        (aside / "model.safetensors").chmod(0o644)
        _write_json(aside / "config.json", _marian_config(model.config, places))
        _write_json(aside / GENERATION, _generation(model.config, places))
        if places.is_own:
            (aside / "tokenizer.json").write_text(tokenizer.json_with_eos(), encoding="utf-8")
            _write_json(aside / "tokenizer_config.json", _tokenizer_config(config))
        else:
            for name in ORIGINALS[1:]:
                if (origin / ORIGIN / name).exists():
                    shutil.copyfile(origin / ORIGIN / name, aside / name)
        (aside / "README.md").write_text(_card(output.name, config), encoding="utf-8")


def _marian_weights(model: Transformer, places: VocabularyMapping) -> Tensors:
    config, axes = model.config, sines_before_cosines(model.config.d_model)
    ours = {name: tensor.cpu().float() for name, tensor in weights_of(model).items()}
    ids = torch.tensor(sorted(range(len(places.theirs)), key=places.theirs.__getitem__))
    if places.start_is_padding:
        ids = ids[ids != BOS_ID]
    tensors: Tensors = {}
    for theirs, name in layers(config.encoder_layers, config.decoder_layers):
        width = config.d_model // config.n_heads
        for kind in ("weight", "bias"):
            tensor = ours.get(f"{name}.{kind}")
            if tensor is None:
                tensor = torch.zeros(config.d_model)
            elif ".w_" in name:
                tensor = pad_heads(name, tensor, config, width)
            tensors[f"{theirs}.{kind}"] = reordered(f"{name}.{kind}", tensor, axes)
    embeddings = {SHARED: "source"} if config.tie_embeddings == "all" else {SOURCE: "source", TARGET: "target"}
    for theirs, side in embeddings.items():
        tensors[theirs] = ours[f"{side}_embedding.weight"][ids][:, axes]
    if config.tie_embeddings == "none":
        tensors[OUTPUT] = ours["output.weight"][ids][:, axes]
    bias = ours.get("output.bias")
    tensors[OUTPUT_BIAS] = (torch.zeros(len(ids)) if bias is None else bias[ids]).unsqueeze(0)
    return tensors


def _marian_config(config: ModelConfig, places: VocabularyMapping) -> dict[str, object]:
    n_pieces = len(set(places.theirs))
    both = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in {"attention_heads": config.n_heads, "ffn_dim": config.d_ff, "layerdrop": 0.0}.items()
    }
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": n_pieces,
        "decoder_vocab_size": n_pieces,
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
        "pad_token_id": places.pad_id,
        "eos_token_id": places.eos_id,
        "forced_eos_token_id": places.eos_id,
        "decoder_start_token_id": places.start_id,
        "bos_token_id": None if places.start_is_padding else places.start_id,
    }


def _generation(config: ModelConfig, places: VocabularyMapping) -> dict[str, object]:
    """The paper's search as far as `generate` has it: its length penalty is length^alpha."""
    return {
        "num_beams": 4,
        "length_penalty": 0.6,
        "max_length": min(config.max_len, MAX_TOKENS + 1),
        "bad_words_ids": [[id] for id in sorted({places.pad_id, places.start_id})],
        "pad_token_id": places.pad_id,
        "eos_token_id": places.eos_id,
        "forced_eos_token_id": places.eos_id,
        "decoder_start_token_id": places.start_id,
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
        "clean_up_tokenization_spaces": False,
        **symbols,
    }


def _card(name: str, config: RunConfig) -> str:
    languages = [language for language in (config.data.source_lang, config.data.target_lang) if language]
    return "\n".join(
        [
            "---",
            *(["language:", *(f"- {language}" for language in languages)] if languages else []),
            "library_name: transformers",
            "pipeline_tag: translation",
            "tags:",
            "- marian",
            "- multihead",
            "---",
            f"# {name}\n",
            f"A translation model{', ' + ' to '.join(languages) if languages else ''}, exported by Multihead.\n",
            "```python",
            "from transformers import AutoTokenizer, MarianMTModel\n",
            f'tokenizer, model = AutoTokenizer.from_pretrained("{name}"), MarianMTModel.from_pretrained("{name}")',
            'batch = tokenizer(["Where is the station?"], return_tensors="pt", padding=True)',
            "ids = model.generate(input_ids=batch.input_ids, attention_mask=batch.attention_mask)",
            "print(tokenizer.batch_decode(ids, skip_special_tokens=True))",
            "```\n",
            "Licence: that of the text it was trained on; fill it in before you share the model.",
            "",
        ]
    )


def _write_json(path: Path, document: Mapping[str, object]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
