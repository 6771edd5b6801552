"""The grammar that generated the embedded corpus, in reading order.

`lexicon` has the words and the sentence patterns; `clauses` puts clauses into English and German; `grammar` combines
them into sentence pairs; `write` writes the files of the package.
"""
