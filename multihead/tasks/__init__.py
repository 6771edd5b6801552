"""Small tasks with text in and text out, generated from seeds.

`sequences` (copy, reverse, sort, add), `questions` (facts, a question and its answer), `tree_grammar` (sentences with
their trees), `parsing` (sentences and trees as a corpus, §6.3), and `task` (what a run needs to know about a task).
"""
