"""Search engines: `choose` (which one to use), `ctranslate2_engine` (no torch), `torch_engine` (everything else)."""
