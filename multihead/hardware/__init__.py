"""What the machine offers, and what training costs.

`device` (GPU or CPU, precision, measured speed; needs torch), `memory` (settings of the allocator, peak memory),
`load` (other programs on the machine), `flops` (operations of a model's shape, the paper's estimate by time, figures of
common GPUs).
"""
