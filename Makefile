# Every target sets up .venv first; all it needs is Python 3.10 or newer: make test PYTHON=python3.12
PYTHON ?= python3
BIN = .venv/bin
# The pip that comes with Python 3.10 cannot build seqeval otherwise.
export PIP_USE_PEP517 = 1

.PHONY: demo test slow mutants lint types bench build clean

demo: .venv/installed
	$(BIN)/python examples/demo.py

# All tests except those marked slow.
test: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist loadfile

slow: .venv/installed
	$(BIN)/python -m pytest -m slow

# Deliberate faults, each of which a test must notice.
mutants: .venv/installed
	$(BIN)/python tests/mutants.py --jobs 2

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: .venv/installed
	$(BIN)/mypy

bench: .venv/installed
	$(BIN)/python benchmarks/tokenizer.py
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/pretraining.py
	$(BIN)/python benchmarks/convert.py

build: .venv/installed
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf .venv build dist *.egg-info demo_output .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
