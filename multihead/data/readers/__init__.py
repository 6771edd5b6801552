"""Corpora in the formats of other programs, read as a stream of sentence pairs.

`corpus` (chooses the reader by the name of the file), `opening` (gzip, xz, lines, limits), `language_codes` (which of
the languages in a file are meant), `xml` (elements of an XML file), and a module for each format with the functions
`read_pairs(path, languages)` and `languages_of(path)`: `tmx`, `xliff`, `po`, `tables` (TSV and CSV), `jsonl`,
`parquet` and `moses_zip` (OPUS).

Text is yielded as UTF-8 on one line, unchecked: `data.cleaning` drops what is no text. A file that is not what its name
says is refused with the line where reading failed.
"""
