"""Rules of the project itself: the direction of imports, documents that are true, a command that answers at once."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import multihead
from docs import generate
from multihead.config.presets import PRESETS
from multihead.config.resolve import configure, flatten
from multihead.config.schema import ModelConfig, RunConfig
from tests.environments import declared

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "multihead"

# A package imports only from those before it.
ORDER = (
    *(
        "errors",
        "console",
        "spawning",
        "concurrency",
        "untrusted",
        "system",
        "config",
        "text",
        "storage",
        "figures",
        "data",
        "tasks",
    ),
    *("hardware", "model", "inspection", "interop", "translation", "evaluation", "lesson", "distributed", "training"),
    *("runs", "bulk", "serve", "bench", "paper", "__init__", "cli", "__main__"),
)

# The modules and packages that need torch as soon as they are imported. All others are imported without it.
NEED_TORCH = set(
    """
    bench.plain_transformer bench.timing bench.training bench.translation distributed.data_parallel
    distributed.heartbeat distributed.process_group distributed.sharding hardware.device inspection.ablation
    inspection.record inspection.trace interop.onnx_graphs model.build model.dropout model.incremental
    model.transformer model.variants model.weights paper.heads paper.parsing paper.positions paper.table1
    paper.table2 paper.table3 paper.table3_study runs.estimate runs.log runs.loop runs.publish
    runs.publishing_time runs.stages runs.train runs.tuning training.batch training.checkpoint training.loss
    training.metrics training.objective training.optimizers training.trainer training.validation
    translation.engines.torch_engine translation.search
    """.split()
)

# `model` and `config` offer their public names under a short path.
WITH_CODE = {"", "config", "model"}

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in PACKAGE.rglob("*.py")
    if path.name != "__init__.py" or path.parent == PACKAGE
}
PACKAGES = {
    ".".join(path.parent.relative_to(PACKAGE).parts): path
    for path in PACKAGE.rglob("__init__.py")
    if path.parent != PACKAGE
}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def executed(node: ast.AST, inside_functions: bool) -> Iterator[ast.AST]:
    """All nodes below `node` but for type-checking blocks and, unless asked for, the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        yield child
        yield from executed(child, inside_functions)


def imported_names(nodes: Iterable[ast.AST]) -> set[str]:
    """`import a.b` gives a.b, and `from a import b` gives a and a.b."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def imported_modules(names: set[str]) -> set[str]:
    """The modules and packages of ours among some imported names, without the leading `multihead`."""
    ours = {name.removeprefix("multihead.") for name in names if name.startswith("multihead.")}
    return ours & (MODULES.keys() | PACKAGES.keys())


def imported_packages(path: Path) -> set[str]:
    """The top-level packages of ours that a file imports, anywhere in the file."""
    names = imported_names(ast.walk(parse(path)))
    public = {"__init__"} & {"__init__" for name in names if name == "multihead"}
    ours = {module.split(".")[0] for module in imported_modules(names)}
    return ours or public


def covered(module: str, listed: set[str]) -> bool:
    """Whether a module, or a package that it is in, is in the list."""
    return any(module == name or module.startswith(f"{name}.") for name in listed)


# The packages


def test_every_package_has_its_place_in_the_order() -> None:
    assert {module.split(".")[0] for module in MODULES} == set(ORDER)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_packages_before_its_own(module: str) -> None:
    package = module.split(".")[0]
    assert imported_packages(MODULES[module]) <= {*ORDER[: ORDER.index(package)], package}


def test_no_import_is_part_of_a_cycle() -> None:
    """Imports inside functions count as well."""
    files = {**MODULES, **PACKAGES}
    graph = {
        name: imported_modules(imported_names(executed(parse(path), True))) - {name} for name, path in files.items()
    }
    list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_the_docstring_of_a_package_names_its_files(package: str) -> None:
    docstring = ast.get_docstring(parse(PACKAGES[package])) or ""
    folder = PACKAGES[package].parent
    files = [path.stem for path in folder.glob("*.py")] + [path.parent.name for path in folder.glob("*/__init__.py")]
    missing = [name for name in files if name != "__init__" and not re.search(rf"\b{name}\b", docstring)]
    assert not missing, f"multihead/{package.replace('.', '/')}/__init__.py does not name {', '.join(missing)}"


@pytest.mark.parametrize("package", sorted(PACKAGES.keys() - WITH_CODE))
def test_a_package_file_is_a_docstring_only(package: str) -> None:
    body = parse(PACKAGES[package]).body
    assert [type(node) for node in body] == [ast.Expr]


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_the_documentation_lists_every_package_in_order(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert listed == [name for name in ORDER if not name.startswith("__")]


# torch


def imports_torch(path: Path, inside_functions: bool) -> bool:
    return any(name.split(".")[0] == "torch" for name in imported_names(executed(parse(path), inside_functions)))


def test_only_the_listed_modules_import_torch() -> None:
    """Not even inside a function: such a function belongs in a module that needs torch."""
    importing = {module for module, path in MODULES.items() if imports_torch(path, inside_functions=True)}
    assert not {module for module in importing if not covered(module, NEED_TORCH)}


def test_every_listed_module_needs_torch() -> None:
    """A module that no longer imports torch, even through others, is taken off the list."""
    files = {**MODULES, **PACKAGES}
    imports = {name: imported_modules(imported_names(executed(parse(path), False))) for name, path in files.items()}
    needing = {name for name, path in files.items() if imports_torch(path, inside_functions=False)}
    while more := {name for name, imported in imports.items() if imported & needing} - needing:
        needing |= more
    assert not {name for name in MODULES if covered(name, NEED_TORCH)} - needing
    assert files.keys() >= NEED_TORCH


def test_all_other_modules_are_imported_without_torch() -> None:
    listed = NEED_TORCH | {"__init__", "__main__"}  # the first is imported with every other, the second runs a command
    others = sorted(f"multihead.{name}" for name in MODULES if not covered(name, listed))
    code = f"import sys, importlib; sys.modules['torch'] = None; [importlib.import_module(name) for name in {others}]"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


# Dependencies

# Distributions with another name than the module, and those that are needed without being imported by name.
DISTRIBUTIONS = {
    "google": "protobuf",
    "huggingface_hub": "huggingface-hub",
    "prometheus_client": "prometheus-client",
    "pydantic_core": "pydantic",
}
NOT_IMPORTED = {"onnx", "onnxscript", "python-multipart", "tensorboard"}  # by torch and starlette


def declared_names(*extras: str) -> set[str]:
    return {requirement.name for requirement in declared(*extras)}


def imported_distributions(path: Path) -> set[str]:
    """The third-party distributions that a file imports, or requires by `errors.require`."""
    tree = parse(path)
    names = imported_names(executed(tree, True))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "require"]
    names |= {str(call.args[0].value) for call in calls if isinstance(call.args[0], ast.Constant)}
    modules = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"multihead"}
    return {DISTRIBUTIONS.get(module, module) for module in modules}


def test_everything_that_is_imported_is_declared_and_nothing_else() -> None:
    imported = set().union(*map(imported_distributions, MODULES.values()))
    assert imported | NOT_IMPORTED == declared_names("train", "serve", "interop", "bulk")


@pytest.mark.parametrize(
    ("packages", "extras"),
    [
        (("serve",), ("serve",)),
        (("bulk", "data.readers.parquet"), ("bulk",)),
        (("interop",), ("interop", "train")),
        (("cli",), ("train",)),
        (
            ("config", "text", "storage", "data", "translation.segments", "translation.guard", "evaluation", "lesson"),
            (),
        ),
        (("distributed", "training", "runs", "model", "paper", "bench"), ("train",)),
    ],
)
def test_a_package_imports_only_what_its_extra_installs(packages: tuple[str, ...], extras: tuple[str, ...]) -> None:
    files = [path for module, path in MODULES.items() if covered(module, set(packages) - {"data"})]
    if "data" in packages:  # reading Parquet needs an extra that the other readers do without
        files += [path for name, path in MODULES.items() if covered(name, {"data"}) and name != "data.readers.parquet"]
    assert set().union(*map(imported_distributions, files)) <= declared_names(*extras)


def test_every_dependency_is_documented() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Dependencies")[2]
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")]
    documented = {name for row in rows for name in re.sub(r"\(.*?\)", "", row[0]).replace(",", " ").split()}
    assert all(len(row) == 4 and all(cell.strip() for cell in row) for row in rows)
    assert documented - {"package"} == {name.partition("[")[0] for name in declared_names("dev")}


def test_the_package_has_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert multihead.__version__ == project["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {multihead.__version__}\n" in changelog


# Documentation


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


# What `import multihead` gives, and what that returns.
PUBLIC = (
    *("__init__", "errors", "config.schema", "translation.translator", "inspection.attention_maps", "inspection.trace"),
    *("storage.model_folder", "text.tokenizer"),
)


def public_definitions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The public functions, classes and methods of a module, without the signatures of overloads."""
    for child in node.body:
        if not isinstance(child, ast.FunctionDef | ast.ClassDef) or child.name.startswith("_"):
            continue
        if any(ast.unparse(decorator) == "overload" for decorator in child.decorator_list):
            continue
        yield child
        if isinstance(child, ast.ClassDef):
            yield from public_definitions(child)


@pytest.mark.parametrize("module", PUBLIC)
def test_everything_public_has_a_docstring_and_types(module: str) -> None:
    definitions = list(public_definitions(parse(MODULES[module])))
    assert definitions
    for one in definitions:
        assert ast.get_docstring(one), f"{module}.{one.name} has no docstring"
        if isinstance(one, ast.FunctionDef):
            arguments = [*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]
            typed = [argument.arg in ("self", "cls") or argument.annotation is not None for argument in arguments]
            assert all(typed) and one.returns, f"{module}.{one.name} has no types"


def test_the_image_is_built_from_extras_that_exist_and_serves_without_torch() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    (installed,) = [line for line in lines if "pip install" in line]
    extras = re.search(r'"/src\[(.*?)\]"', installed)
    assert extras and "torch" not in declared_names(*extras[1].split(","))
    entry, command = (json.loads(line.partition(" ")[2]) for line in lines if line.startswith(("ENTRYPOINT", "CMD")))
    options = ["--port", "0", "--log"]
    arguments = [sys.executable, "-m", *entry, *command, *options, "--help"]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (PACKAGE / "bundled" / command[0] / "model.safetensors").exists()


def test_no_module_reads_pickles() -> None:
    """Nothing read from disk may run code."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(
            r"torch\.load\(|import pickle|allow_pickle=True|yaml\.load|[^.]\beval\(|[^.]\bexec\(", source
        ), path


# docs/paper.md, docs/background.md, docs/variants.md

# Settings that a value of another one requires.
NEEDED: dict[tuple[str, str], dict[str, object]] = {
    ("model.cross", "convs2s"): {"model.n_heads": 1, "model.d_k": 512, "model.d_v": 512},
    ("model.positions", "tree"): {"data.tree": True},
}
# What the paper has itself, and forms of a system that the page describes once.
IN_THE_PAPER = {"scaled", "sinusoidal", "learned", "none", "attention", "convolution", "dilated", "gated"}


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
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    named = set(re.findall(r"`(test_\w+|[a-z0-9_]+(?:\.\w+)+)`", "\n".join(rows)))
    code = {f"{module}.{name}" for module, path in MODULES.items() for name in names_in(path)}
    tests = {name for path in (ROOT / "tests").rglob("test_*.py") for name in names_in(path)}
    settings = set(flatten(RunConfig()))
    assert len(named) > 60
    assert named <= code | tests | settings, "renamed or removed: fix docs/paper.md"


def names_on_page(page: str) -> set[str]:
    """The names in backticks of the tables of a page, each without its value: of `model.norm=pre` the setting."""
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| "))
    return {name.partition("=")[0] for name in re.findall(r"`(test_\w+|[a-z0-9_]+(?:\.\w+)+(?:=[\w-]+)?)`", rows)}


@pytest.mark.parametrize("name", ["background.md", "variants.md"])
def test_every_name_on_the_page_exists(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    code = {f"{module}.{found}" for module, path in MODULES.items() for found in names_in(path)}
    tests = {found for path in (ROOT / "tests").rglob("test_*.py") for found in names_in(path)}
    assert names_on_page(page) <= code | tests | set(flatten(RunConfig())), f"renamed or removed: fix docs/{name}"
    for setting, value in set(re.findall(r"`(model\.\w+)=([\w-]+)`", page)):
        configure({setting: value, **NEEDED.get((setting, value), {})})
    assert set(re.findall(r"`--preset ([\w-]+)`", page)) <= PRESETS.keys()


def test_the_page_on_other_systems_names_every_variant() -> None:
    """Every mixer, alignment function, kind of position and system that a setting offers."""
    page = (ROOT / "docs" / "background.md").read_text(encoding="utf-8")
    for preset in ("rnn", "rnn-attention", "convs2s", "bytenet", "neural-gpu", "memory-network"):
        assert f"`--preset {preset}`" in page
    for setting in ("attention_score", "positions", "encoder_mixer"):
        choices = get_args(get_args(get_type_hints(ModelConfig, include_extras=True)[setting])[0])
        assert choices
        missing = {value for value in choices if f"`model.{setting}={value}`" not in page and value not in IN_THE_PAPER}
        assert not missing, f"docs/background.md does not name model.{setting}={missing}"


def test_every_departure_that_the_code_marks_is_on_the_page_of_the_paper() -> None:
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    departures = page.partition("## Where we differ")[2].partition("\n## ")[0]
    for module, path in MODULES.items():
        if "Departs:" in path.read_text(encoding="utf-8"):
            assert f"`{module}." in departures, f"{module} departs from the paper, and docs/paper.md does not say so"
