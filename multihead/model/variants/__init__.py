"""Variants of the parts of the Transformer. Each has the signature of the part that it replaces; build.py chooses.

A score weighs the keys of each query (`transformer.Score`); a mixer passes information between the positions of a
sequence (`transformer.Mixer`). A causal mixer, which a decoder needs, lets no position see a later one, and takes one
token at a time if it is given a `LayerCache`. Padding comes after all real tokens, so a causal mixer can ignore it.

`scores` (dot product, additive, relative positions), `luong` (general, concat, location, local-p), `cross` (what a
decoder sees of the source without attention, or as in ConvS2S), `efficient_attention` (local, BigBird, Linformer),
`recurrent` (LSTM, GRU), `convolution` (plain, dilated, separable, gated), `tree` (positions from dependency trees).
Two are systems of their own: `neural_gpu` and `memory_network`.
"""
