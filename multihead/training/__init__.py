"""How a model learns (§5). It knows no run folder, no clock and no user; those belong to `runs`.

- `batch.py`: padded tensors from pairs of token ids
- `loss.py`: label smoothing (§5.4) and R-Drop, computed without holding all logits
- `objective.py`: from a batch to its loss, as one module that DDP and FSDP can wrap
- `schedule.py`: the learning rate (§5.3)
- `optimizers.py`: Adam (§5.3) and Muon
- `metrics.py`: perplexity, and sums over the steps between two lines of the log
- `checkpoint.py`: what a run needs to continue, as a folder
- `trainer.py`: one step
- `validation.py`: loss and BLEU on the validation pairs
"""
