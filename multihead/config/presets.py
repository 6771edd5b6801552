"""Presets: the paper's models, small models, earlier architectures and the rows of Table 3."""

from multihead.config.schema import Settings
from multihead.errors import UsageError, did_you_mean

_SMALL_DATA: Settings = {
    # Pre-norm tolerates the larger learning rates that suit small models, so a short warm-up is enough; Muon needs
    # fewer steps; a rate that falls to zero uses the available time best.
    "model.norm": "pre",
    "train.optimizer": "muon",
    "train.warmup": 200,
    "train.lr_scale": 0.8,
    "train.lr_decay": "linear",
    "train.clip_norm": 1.0,
    "train.steps": 20_000,
    "train.save_every": 500,
    "train.validate_every": 500,
    "train.bleu_sentences": 200,
    "train.alpha": "auto",
}

_BIG: Settings = {
    "model.d_model": 1024,
    "model.d_ff": 4096,
    "model.n_heads": 16,
    "model.dropout": 0.3,
    "train.steps": 300_000,
    "train.keep_checkpoints": 20,
    "train.average_checkpoints": 20,
}

_PRE_TRANSFORMER: Settings = {
    **_SMALL_DATA,
    "model.d_model": 256,
    "model.d_ff": 512,
    "data.batch_tokens": 4096,
    "model.n_heads": 1,
    "model.d_k": 256,
    "model.d_v": 256,
    "train.optimizer": "adam",
    "train.lr_scale": 0.5,
}

PRESETS: dict[str, Settings] = {
    "base": {},
    "big": _BIG,
    "small": {
        **_SMALL_DATA,
        "model.d_model": 256,
        "model.d_ff": 1024,
        "model.n_heads": 4,
        "model.encoder_layers": 3,
        "model.decoder_layers": 3,
        "data.batch_tokens": 4096,
    },
    # The decoder runs once per token and the encoder once per sentence, so depth is cheaper in the encoder.
    "small-fast": {
        **_SMALL_DATA,
        "model.d_model": 256,
        "model.d_ff": 1024,
        "model.n_heads": 4,
        "model.encoder_layers": 6,
        "model.decoder_layers": 1,
        "data.batch_tokens": 4096,
    },
    "base-fast": {"model.encoder_layers": 12, "model.decoder_layers": 1},
    "tiny": {
        **_SMALL_DATA,
        "model.d_model": 128,
        "model.d_ff": 256,
        "model.n_heads": 4,
        "model.d_k": 32,
        "model.d_v": 32,
        "model.encoder_layers": 4,
        "model.decoder_layers": 4,
        "data.batch_tokens": 1024,
        "train.warmup": 100,
        "train.lr_scale": 1.0,
        "train.save_every": 100,  # the five averaged ones span a twelfth of a 20-minute run on two cores
    },
    # For few pairs and hours of training. Without R-Drop a model of this size would memorize them. R-Drop doubles the
    # time of a step; early in the run nothing is memorized yet, so it starts later.
    "thorough": {
        **_SMALL_DATA,
        "model.d_model": 256,
        "model.d_ff": 512,
        "model.n_heads": 4,
        "model.encoder_layers": 4,
        "model.decoder_layers": 4,
        "model.dropout": 0.25,
        "data.batch_tokens": 2048,
        "train.r_drop": 3.0,
        "train.r_drop_from": 0.2,
        "train.warmup": 100,
        "train.lr_scale": 1.0,
        "train.steps": 30_000,
        "train.save_every": 100,
        "train.keep_checkpoints": 10,
        "train.average_checkpoints": 10,
    },
    # The architectures that the paper compares itself with (§1, §4), with the same residuals, norms and feed-forward
    # layers.
    "rnn-attention": {
        **_PRE_TRANSFORMER,
        "model.encoder_mixer": "lstm",
        "model.decoder_mixer": "lstm",
        "model.attention_score": "additive",
        "model.positions": "none",
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
    },
    "rnn": {  # a single vector between encoder and decoder, as before attention
        **_PRE_TRANSFORMER,
        "model.encoder_mixer": "lstm",
        "model.decoder_mixer": "lstm",
        "model.cross": "last",
        "model.positions": "none",
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
    },
    "convs2s": {
        **_PRE_TRANSFORMER,
        "model.cross": "convs2s",
        "model.encoder_mixer": "gated",
        "model.decoder_mixer": "gated",
        "model.attention_score": "dot",
        "model.positions": "learned",
        "model.encoder_layers": 4,
        "model.decoder_layers": 4,
    },
    "bytenet": {
        **_PRE_TRANSFORMER,
        "model.encoder_mixer": "dilated",
        "model.decoder_mixer": "dilated",
        "model.positions": "none",
        "model.encoder_layers": 5,
        "model.decoder_layers": 5,
    },
    "neural-gpu": {
        **_PRE_TRANSFORMER,
        "model.system": "neural-gpu",
        "model.positions": "none",
        "model.d_model": 64,
        "model.image_width": 1,  # 4 in the original, at ten times the cost
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
        "data.batch_tokens": 512,
    },
    "memory-network": {
        **_PRE_TRANSFORMER,
        "model.system": "memory-network",
        "model.d_model": 64,
        "model.d_ff": 128,
        "model.d_k": 64,
        "model.d_v": 64,
        "model.encoder_layers": 3,  # hops
        "model.decoder_layers": 1,
        "data.batch_tokens": 2048,
    },
    # Table 3, row by row; everything else is as in base.
    "table3-a-h1": {"model.n_heads": 1, "model.d_k": 512, "model.d_v": 512},
    "table3-a-h4": {"model.n_heads": 4, "model.d_k": 128, "model.d_v": 128},
    "table3-a-h16": {"model.n_heads": 16, "model.d_k": 32, "model.d_v": 32},
    "table3-a-h32": {"model.n_heads": 32, "model.d_k": 16, "model.d_v": 16},
    "table3-b-dk16": {"model.d_k": 16},
    "table3-b-dk32": {"model.d_k": 32},
    "table3-c-n2": {"model.encoder_layers": 2, "model.decoder_layers": 2},
    "table3-c-n4": {"model.encoder_layers": 4, "model.decoder_layers": 4},
    "table3-c-n8": {"model.encoder_layers": 8, "model.decoder_layers": 8},
    "table3-c-d256": {"model.d_model": 256, "model.d_k": 32, "model.d_v": 32},
    "table3-c-d1024": {"model.d_model": 1024, "model.d_k": 128, "model.d_v": 128},
    "table3-c-ff1024": {"model.d_ff": 1024},
    "table3-c-ff4096": {"model.d_ff": 4096},
    "table3-d-drop0": {"model.dropout": 0.0},
    "table3-d-drop2": {"model.dropout": 0.2},
    "table3-d-ls0": {"train.label_smoothing": 0.0},
    "table3-d-ls2": {"train.label_smoothing": 0.2},
    "table3-e-learned": {"model.positions": "learned"},
    "table3-big": _BIG,
}


def preset(name: str) -> Settings:
    """Return the settings of a preset."""
    if name not in PRESETS:
        raise UsageError(f"there is no preset '{name}'{did_you_mean(name, list(PRESETS))}")
    return PRESETS[name]
