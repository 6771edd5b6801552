"""The lesson: one offline page in which a sentence is followed through a model, number by number.

`explain` (what the page is about: a model with its weights, the recorded numbers of one sentence, or no model), `page`
(joins the page from `assets/`: an ES module per idea, one style sheet, one file with all texts).
"""
