"""What the shell completes after an option; each function imports what it needs, so that commands start fast."""


def models(incomplete: str) -> list[str]:
    """Return the bundled models. The shell completes folders itself where no name matches."""
    from multihead.storage.files import BUNDLED

    return _matching(incomplete, [folder.name for folder in BUNDLED.iterdir() if folder.is_dir()])


def presets(incomplete: str) -> list[str]:
    from multihead.config.presets import PRESETS

    return _matching(incomplete, list(PRESETS))


def settings(incomplete: str) -> list[str]:
    """Return the fields for `--set`, which continue with a value."""
    from multihead.config.resolve import flatten
    from multihead.config.schema import RunConfig

    return _matching(incomplete, [f"{name}=" for name in flatten(RunConfig())])


def engines(incomplete: str) -> list[str]:
    from multihead.config.schema import ENGINES

    return _matching(incomplete, list(ENGINES))


def formats(incomplete: str) -> list[str]:
    from multihead.interop.formats import UNSUPPORTED

    return _matching(incomplete, list(UNSUPPORTED))


def tasks(incomplete: str) -> list[str]:
    from multihead.tasks.task import TASKS

    return _matching(incomplete, list(TASKS))


def _matching(incomplete: str, names: list[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
