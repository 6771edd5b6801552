"""Several processes that train one model, started by torchrun. Nothing here knows what is trained.

- `process_group.py`: rank, world size and a few collectives
- `heartbeat.py`: detects a rank that died or hangs, and names it
- `pulse.py`: a process that shows that a rank is alive while it holds Python's interpreter lock
- `sharding.py`: tensors of which each rank holds a shard
- `data_parallel.py`: a module replicated (DDP) or sharded (FSDP)
"""
