"""How good translations are: `metrics` (BLEU, chrF, significance) and `evaluate` (score a model on a test set)."""
