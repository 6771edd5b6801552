"""Virtual environments that hold what `pip install 'multihead[extra]'` would install, made of links in a second."""

import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import multihead

ROOT = Path(__file__).parents[1]


def declared(*extras: str) -> list[Requirement]:
    """Return the requirements that pyproject.toml declares: the core, and these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    requirements = [Requirement(text) for text in texts]
    own = [requirement for requirement in requirements if requirement.name == project["name"]]
    others = [requirement for requirement in requirements if requirement.name != project["name"]]
    return others + [more for requirement in own for more in declared(*requirement.extras)]


def closure(requirements: list[Requirement]) -> set[str]:
    """Return the names of the installed distributions that these requirements need, directly or not."""
    found: set[str] = set()
    waiting = [(requirement.name, frozenset(requirement.extras)) for requirement in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(re.sub(r"[-_.]+", "-", name).lower())
        for text in metadata.requires(name) or []:
            needed = Requirement(text)
            wanted = [{"extra": extra} for extra in extras] or [{"extra": ""}]
            if needed.marker is None or any(needed.marker.evaluate(environment) for environment in wanted):
                waiting.append((needed.name, frozenset(needed.extras)))
    return found


def make_environment(folder: Path, *extras: str) -> Path:
    """Return the Python of a new environment with this project, its core dependencies and those of the extras."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in closure(declared(*extras)):
        for file in metadata.files(name) or []:
            top = file.parts[0]
            link = site / top
            if top != ".." and not link.exists():
                link.symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    (site / "multihead").symlink_to(ROOT / "multihead")
    own = site / "multihead-0.dist-info"  # what pip would have written
    own.mkdir()
    (own / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: multihead\nVersion: {multihead.__version__}\n", encoding="utf-8"
    )
    return folder / "bin" / "python"


def run_in(
    python: Path, *arguments: str | Path, status: int = 0, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python -m multihead …` there, with these environment variables and none of this environment's."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(python.parents[1]), "LANG": "C.UTF-8", **(variables or {})}
    command = [str(python), "-m", "multihead", *map(str, arguments)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=environment, cwd=python.parents[1]
    )
    assert result.returncode == status, result.stderr
    return result


def imports(python: Path, code: str, names: str) -> list[str]:
    """Return which of these modules are loaded after the code has run."""
    check = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n"
        f"print(*[name for name in {names.split()!r} if name in sys.modules])"
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(python.parents[1])}
    result = subprocess.run([str(python), "-c", check], capture_output=True, text=True, check=True, env=environment)
    return result.stdout.split("\n")[-2].split()


if __name__ == "__main__":
    print(make_environment(Path(sys.argv[1]), *sys.argv[2:]))
