"""Benchmarks: our speed beside that of an alternative, measured in the same run.

- `timing.py`: the clock
- `training.py`: `multihead bench train`, beside a plain loop around torch.nn.Transformer
- `plain_transformer.py`: the model of that loop
- `translation.py`: `multihead bench translate`, beside CTranslate2 used directly
- `serving.py`: `multihead bench serve`, with and without merging requests into batches
"""
