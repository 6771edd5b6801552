# `make demo` and `make test` set everything up by themselves; a second run is fast.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two test processes with one thread each: more threads than cores would only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

.PHONY: demo test test-all check docs chromium

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(VENV)/installed  ## train on the embedded corpus for 2,000 steps, translate, score, look inside
	$(BIN)/python examples/demo.py

# The browser tests need Chromium; where it cannot be installed they are skipped, in words.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
		|| echo "no Chromium: its tests will be skipped; install the package 'chromium' to run them"

test: $(VENV)/installed chromium  ## what CI runs
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

test-all: $(VENV)/installed chromium  ## everything, with branch coverage
	$(PYTEST) --cov --cov-report=term-missing:skip-covered

check: $(VENV)/installed  ## before a commit: format, lint, types, fast tests
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/mypy
	$(PYTEST) -m "not slow" --quiet

docs: $(VENV)/installed  ## write the pages that repeat what the code says
	$(BIN)/python -m docs.generate
