# Two commands set everything up by themselves: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test faults check lint types layers docs bench format clean

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: .venv/.installed
	$(BIN)/crabstore demo

test: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist=worksteal

# Every fault that is tried on crabdb, all of it, and the table of what happened.
faults: .venv/.installed
	FAULTS=full $(BIN)/python -m pytest tests/faults -n 2 --dist=worksteal -p tests.faults.table

check: lint types layers test

lint: .venv/.installed
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

types: .venv/.installed
	$(BIN)/mypy

layers: .venv/.installed
	$(BIN)/lint-imports --no-cache

docs: .venv/.installed
	$(BIN)/python -m pytest tests/docs

format: .venv/.installed
	$(BIN)/ruff check --fix-only src tests bench
	$(BIN)/ruff format src tests bench

bench: .venv/.installed
	$(BIN)/python -m bench.engines
	$(BIN)/python -m bench.growth
	$(BIN)/python -m bench.stalls
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.quality
	$(BIN)/python -m bench.steps
	$(BIN)/python -m bench.harnesses
	$(BIN)/python -m bench.daemon

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
