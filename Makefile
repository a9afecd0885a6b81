PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test check bench format chaos soak clean

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[redis,postgres,semantic,cost,dashboards,test,check]'
	touch $(READY)

demo: $(READY)
	$(BIN)/otel-agentguard demo

test: $(READY)
	$(PYTEST)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing
	$(BIN)/lint-imports
	$(PYTEST) -q tests/test_docs.py

bench: $(READY)
	$(BIN)/python benchmarks/overhead.py

chaos: $(READY)
	$(PYTEST) -m chaos --timeout 1800

soak: $(READY)
	$(PYTEST) -m soak --timeout 5400

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .venvs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
