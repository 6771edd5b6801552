"""Parallel text to training batches: raw files, the prepared corpus, and the order in which it is read.

`parallel_text` (files and their languages), `readers` (corpora in the formats of other programs), `corpus_languages`
(the languages of each corpus), `embedded_corpus` (sentence pairs that come with the package), `cleaning` (rules that
drop pairs), `text_rules` (those that look at characters), `language_rule` (the one that looks at languages),
`fingerprints` (duplicates and the validation split), `spool` (clean pairs on disk), `prepare` (the pipeline), `shards`
(the prepared corpus), `directions` (models of several directions), `rehearsal` (pairs of a base model's own text),
`marks` (back-translated text), `bucketing` (batches of similar length), `epochs` (the order of batches), `augment` and
`bpe_dropout` (pairs that change each time they are read).

Worker processes import these modules, so none of them imports torch.
"""
