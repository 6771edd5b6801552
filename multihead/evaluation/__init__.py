"""How good translations are: `metrics` (BLEU, chrF, significance), `by_direction` (BLEU of each
direction of a model), `by_length` (BLEU in groups of similar length),
`brackets` (labeled brackets of trees, as EVALB counts them), `accuracy` (the held-out examples of a task),
`calibration` (how likely a translation is good) and `evaluate` (score a model on a test set)."""
