"""Hugging Face Marian, the format of OPUS-MT, in both directions.

In reading order: `folder` (reads untrusted files), `format` (names, configuration and vocabulary mapping), `vocabulary`
(SentencePiece models as one tokenizer), `importer`, `exporter`.
"""
