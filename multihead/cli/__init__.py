"""The command line: one file per group of commands, each a thin call into the package.

`main` (registers every command), `command` (how a command reads its options), `options` (options that several commands
share), `completion` (what the shell completes), `train` (train, prepare, average, plan), `translate` (translate,
evaluate), `inspect`, `explain`, `models` (export, import, info), `serve`, `bulk`, `bench`, `paper`.
"""
