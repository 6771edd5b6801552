"""Folders on disk: models, checkpoints and their files, read into numpy without torch.

In reading order: `files` (atomic writes, locks, cache folders), `arrays` (safetensors files), `checksums`
(SHA256SUMS), `shortlist` (candidate tokens of a model), `language_detector` (the languages of a model), `model_folder`
(config, weights and provenance of a model), `checkpoints` (the `step-N` folders of a run).
"""
