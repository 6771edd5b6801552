"""Settings that fit a text and the time for it: dropout, vocabulary size, fine-tuning."""

from multihead.config.schema import Settings, TrainConfig

FINE_TUNING_RATE = 0.3  # times the learning rate of a new model
FINE_TUNING_STEP_DIVISOR = 10  # fewer steps than for a new model


def dropout_for(epochs: float, is_small: bool) -> float:
    """Return the dropout that fits a run of this many epochs; `is_small` if larger models would memorize the text.

    A text that is seen twice cannot be memorized, so dropout would only slow learning down; a small text that is seen
    dozens of times needs much of it.
    """
    for fewer_than, dropout in ((4, 0.0), (8, 0.1), (15, 0.15), (50, 0.2)):
        if epochs < fewer_than:
            return dropout
    return 0.3 if is_small else 0.2


# An imported model is trained as it was before (Adam, post-norm), at a rate that does not erase what it knows.
IMPORTED_FINE_TUNING: Settings = {
    "train.optimizer": "adam",
    "train.warmup": 100,
    "train.lr_scale": 0.03,
    "train.lr_decay": "linear",
    "train.clip_norm": 1.0,
    "train.steps": 2000,
    "train.save_every": 100,
    "train.validate_every": 100,
    "train.bleu_sentences": 200,
    "train.alpha": "auto",
    "data.batch_tokens": 4096,
}


def fine_tuning_preset(n_pairs: int) -> str:
    """Return the preset whose batches and schedule fit fine-tuning on this many pairs."""
    return "tiny" if n_pairs < 60_000 else "small" if n_pairs < 600_000 else "base"


def for_fine_tuning(preset: Settings) -> Settings:
    """Return a preset with a lower learning rate and fewer steps, so that fine-tuning does not erase a base model."""
    defaults = TrainConfig()
    rate, steps = preset.get("train.lr_scale", defaults.lr_scale), preset.get("train.steps", defaults.steps)
    assert isinstance(rate, float) and isinstance(steps, int)
    return {**preset, "train.lr_scale": FINE_TUNING_RATE * rate, "train.steps": steps // FINE_TUNING_STEP_DIVISOR}


def vocab_size_for(n_characters: int) -> int:
    """Return the vocabulary size that fits a text of this many characters on both sides; a large one gets the paper's.

    Pairs say too little: those of parliament are five times as long as those of everyday talk.
    """
    for fewer_than, size in ((1_250_000, 4000), (25_000_000, 8000), (250_000_000, 16_000)):
        if n_characters < fewer_than:
            return size
    return 37_000
