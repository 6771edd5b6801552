"""Looking inside a model: what its heads attend to, which words align, and pages and pictures of both.

`attention_maps` (the weights of a sentence, and word alignment), `record` (collects the weights of a model's pass with
forward hooks; the only file that needs torch), `page` (a self-contained HTML page), `picture` (a PNG).
"""
