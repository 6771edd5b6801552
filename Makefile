# `make demo` and `make test` set everything up; a second run is fast.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two test processes with one thread each: more threads than cores would wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

.PHONY: demo test test-all gauntlet check static site docs chromium hooks

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(VENV)/installed  ## train on the embedded corpus for 2,000 steps, translate, score, look inside
	$(BIN)/python examples/demo.py

# The browser tests need Chromium. If it cannot be installed, they are skipped with a message.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
		|| echo "Chromium is not installed: its tests will be skipped (install the package 'chromium' to run them)"

static: $(VENV)/installed  ## format, lint, types, spelling, documentation; changes nothing
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going --nitpicky --quiet docs site

test: static chromium  ## what CI runs
	$(PYTEST) -m "not slow"

test-all: $(VENV)/installed chromium  ## everything, with branch coverage
	$(PYTEST) --cov --cov-report=term-missing:skip-covered

gauntlet: $(VENV)/installed  ## attacks at full size: kills, full disks, damage, hostile files, server abuse; prints a table
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.gauntlet

check: $(VENV)/installed  ## before a commit, in two minutes: format, the static checks, fast tests of every package
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .
	$(MAKE) --no-print-directory static
	$(PYTEST) -m "not slow and not long" --quiet tests/unit tests/test_project.py

site: $(VENV)/installed  ## the documentation as a searchable site in site/; a dead link is an error
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going --nitpicky --quiet docs site

docs: $(VENV)/installed  ## write the pages that repeat what the code says
	$(BIN)/python -m docs.generate

hooks: $(VENV)/installed  ## run the static checks before every git commit
	$(BIN)/pre-commit install
