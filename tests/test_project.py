"""Rules of the project itself: the direction of imports, documents that are true, a command that answers at once."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import generate
from multihead.config.presets import PRESETS
from multihead.config.resolve import flatten
from multihead.config.schema import RunConfig

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "multihead"

# A package imports only from those before it.
ORDER = (
    *("errors", "console", "concurrency", "config", "text", "storage", "figures", "data", "hardware", "model"),
    *("inspection", "interop", "translation", "evaluation", "distributed", "training", "runs"),
    *("bulk", "serve", "bench", "paper", "__init__", "cli", "__main__"),
)

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in PACKAGE.rglob("*.py")
    if path.name != "__init__.py" or path.parent == PACKAGE
}


def imported_packages(path: Path) -> set[str]:
    """Every package or top-level module of ours that a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "multihead":
            names |= {f"multihead.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = {name for name in names if name.split(".")[0] == "multihead"}
    return {name.split(".")[1] if "." in name and name.split(".")[1] in ORDER else "__init__" for name in ours}


def test_every_package_has_its_place_in_the_order() -> None:
    assert {module.split(".")[0] for module in MODULES} == set(ORDER)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_packages_before_its_own(module: str) -> None:
    package = module.split(".")[0]
    assert imported_packages(MODULES[module]) <= {*ORDER[: ORDER.index(package)], package}


@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_generated_pages_are_up_to_date(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == generate.PAGES[name](), "run `make docs`"


def test_every_setting_says_what_it_is() -> None:
    page = generate.config_page()
    assert all(re.search(rf"^\| `{name}` \| `.*` \| \S+", page, re.MULTILINE) for name in flatten(RunConfig()))
    assert all(f"| `{name}` |" in page for name in PRESETS)


def test_help_answers_at_once() -> None:
    """Half a second on an idle machine is the promise; here we only make sure that nothing heavy is imported."""
    heavy = "('torch', 'numpy', 'matplotlib', 'rich')"
    code = f"import sys, multihead.cli.main; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("command", [[], ["train"], ["prepare"]])
def test_help_is_there_for_every_command(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "multihead", *command, "--help"], capture_output=True, text=True, check=True
    )
    assert "--help" in result.stdout


def test_no_module_reads_pickles() -> None:
    """Nothing read from disk may run code."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(
            r"torch\.load\(|import pickle|allow_pickle=True|yaml\.load|[^.]\beval\(|[^.]\bexec\(", source
        ), path


def test_the_files_are_named_in_reading_order() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for module in MODULES:
        name = module.replace(".", "/")
        assert name.startswith("__") or f"`{name}.py`" in readme


# docs/paper.md


def names_in(path: Path) -> set[str]:
    """What a module defines at its top, and the methods of its classes as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef():
                found.add(node.name)
            case ast.ClassDef():
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                found |= {node.name, *(f"{node.name}.{method.name}" for method in methods)}
            case ast.Assign(targets=[ast.Name() as target]) | ast.AnnAssign(target=ast.Name() as target):
                found.add(target.id)
    return found


def test_every_function_and_test_that_the_page_of_the_paper_names_exists() -> None:
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    in_the_map = [line for line in page.splitlines() if line.startswith("| ")]
    named = set(re.findall(r"`((?:test_\w+)|(?:[a-z0-9_]+\.)+[A-Za-z]\w*)`", "\n".join(in_the_map)))
    code = {f"{module}.{name}" for module, path in MODULES.items() for name in names_in(path)}
    tests = {name for path in (ROOT / "tests").rglob("test_*.py") for name in names_in(path)}
    settings = set(flatten(RunConfig()))
    assert len(named) > 60
    assert named <= code | tests | settings, "renamed or removed: mend docs/paper.md"


def test_every_departure_that_the_code_marks_is_on_the_page_of_the_paper() -> None:
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    departures = page.partition("## Where we differ")[2].partition("\n## ")[0]
    for module, path in MODULES.items():
        if "Departs:" in path.read_text(encoding="utf-8"):
            assert f"`{module}." in departures, f"{module} departs from the paper, and docs/paper.md does not say so"
