"""Looking inside a model: what its heads attend to, which words align, and pages and pictures of both.

`attention_maps` (the weights of a sentence, and word alignment), `trace` (every tensor of a pass, recorded with forward
hooks; needs torch), `record` (attention maps as a view of the trace; needs torch), `page` (a self-contained HTML page),
`picture` (a PNG). Over many sentences: `head_roles` (what each head does), `head_examples` (sentences that show it) and
`ablation` (a model without some of its heads; needs torch).
"""
