"""One piece of text: files and lines, sentences, tokens.

`lines` (plain, gzip and standard input), `encoding` (UTF-16 and Unicode normalization), `sentences` (splitting and
joining), `tokenizer` (text to ids and back), `pieces` (pieces to words), `dependency_trees` (trees beside a source).
"""
