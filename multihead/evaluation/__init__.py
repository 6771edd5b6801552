"""How good translations are: `metrics` (BLEU, chrF, significance), `by_length` (BLEU in groups of similar length), and
`evaluate` (score a model on a test set)."""
