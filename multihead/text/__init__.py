"""One piece of text: files and lines, sentences, tokens.

`lines` (plain, gzip and standard input), `encoding` (UTF-16 and Unicode normalization), `file_formats` (files that are
not plain text), `language` (names, and which of two languages a text is in), `detector` (the same, learned from text),
`sentences` (splitting and joining), `casing` (capitals), `numerals` (numbers in digits and words), `tokenizer` (text to
ids and back), `target_languages` (pieces that name a language), `tokenizer_form` (which tokenizer.json is accepted),
`pieces` (words of a text and of pieces), `dependency_trees` (trees beside a source), `constituency_trees` (treebank
lines, and trees as sequences), `treebank_words` (words as treebanks split them, signatures of rare words),
`tree_drawing` (a tree for the terminal), `head_rules` (dependency trees from constituency trees)."""
