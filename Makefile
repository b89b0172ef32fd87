# Each target sets up its own virtual environment; nothing has to be there before but Python 3.10 or newer.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test slow lint bench clean

demo: .venv/installed
	$(BIN)/python examples/demo.py

test: .venv/installed
	$(BIN)/python -m pytest

slow: .venv/installed
	$(BIN)/python -m pytest -m slow

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: .venv/installed
	$(BIN)/python benchmarks/tokenizer.py
	$(BIN)/python benchmarks/model.py
	$(BIN)/python benchmarks/pretraining.py
	$(BIN)/python benchmarks/convert.py

.venv/installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build *.egg-info demo_output
