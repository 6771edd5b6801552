"""Small tasks with text in and text out, generated from seeds: `questions` (facts, a question and its answer)."""
