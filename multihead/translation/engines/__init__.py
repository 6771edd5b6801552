"""Search engines: `choose` (which one to use), `ctranslate2_engine` (no torch), `ctranslate2_scores` (token scores from
CTranslate2), `torch_engine` (everything else).
"""
