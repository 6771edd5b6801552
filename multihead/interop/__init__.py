"""Other programs' formats: models by name, export and import. Only the ONNX export needs torch.

In reading order: `hub` (models by folder, bundled name or `hf:owner/name`), `formats` (what `multihead export` writes),
`weight_layout` (weights in another layout), `ctranslate2_export`, `export_cache` (CTranslate2 exports that are kept),
`onnx_export` and `onnx_graphs` (its traced graphs), `marian` (Hugging Face Marian, both ways).
"""
