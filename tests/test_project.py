"""Rules of the project itself: the direction of imports, documents that are true, a command that answers at once."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import generate
from multihead.config import PRESETS, RunConfig, flatten

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "multihead"

# A module imports only from lines above its own.
LAYERS = [
    {"config", "devices", "files", "lexicon", "sentences", "watch"},
    {"clauses", "distributed", "duplicates", "processes"},
    {"grammar", "journal", "layouts", "loss", "marian_folder", "metrics", "model", "text", "tokenizer"},
    {"spool"},
    {"attention", "corpus", "marian_tokenizer", "optimizers"},
    {"augment", "figures", "marian", "shortlist"},
    {"batches", "search"},
    {"checkpoint", "parallel"},
    {"card", "ctranslate2_export", "engines", "marian_export", "marian_import", "onnx_export", "trainer"},
    {"bench_training", "ctranslate2_engine", "hub", "interop", "plan"},
    {"run", "translate"},
    {"bench_translation", "bulk", "evaluate", "serve.batcher", "serve.languages", "serve.markup", "serve.replies"},
    {"serve.service"},
    {"serve.fields", "serve.guards", "serve.openapi"},
    {"serve.app"},
    {"serve.server"},
    {"serve.bench"},
    {"cli", "__init__"},
    {"__main__"},
]


MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in PACKAGE.rglob("*.py")
    if path.name != "__init__.py" or path.parent == PACKAGE
}


def imported_modules(path: Path) -> set[str]:
    """Every module of ours that is named in an import, as `text` or `serve.app`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("multihead.") for name in found} & set(MODULES)


def test_every_module_has_its_layer() -> None:
    assert set(MODULES) == set().union(*LAYERS)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_layers_above(module: str) -> None:
    level = next(at for at, layer in enumerate(LAYERS) if module in layer)
    assert imported_modules(MODULES[module]) <= set().union(*LAYERS[:level])


def test_the_layers_are_documented() -> None:
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for layer in LAYERS[:-1]:
        assert " · ".join(sorted(layer - {"__init__"})) in document


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
    code = "import sys, multihead.cli; print([m for m in ('torch', 'numpy', 'matplotlib', 'rich') if m in sys.modules])"
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
