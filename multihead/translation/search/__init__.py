"""Search on torch: `beam` (beam search), `sampling`, `ensemble` (several models), `candidates` (the shortlist),
`details` (attention and token scores of hypotheses).
"""
