"""Text in, text out: split a text into segments, search a translation of each, check it, and join the results.

Files in reading order: `translator` (the public class and `load`), `segments` (splits a text into segments of token ids
that fit the model), `guard` (detects faulty translations and retries them), `parser` (models that write trees),
`targets` (the languages that a model translates into), `engine` (the interface of engines), `confidence` (how likely a
translation is good), `engines` (CTranslate2, torch, and the choice between them), `search` (beam search and sampling on
torch), `notebook` (models and translations as text and HTML).
"""
