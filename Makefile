PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BARE := .venvs/bare
EXTRAS := redis,postgres,semantic,cost,dashboards,frameworks,test,check
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS)
COMPAT := $(notdir $(basename $(wildcard tests/adapters/oldest/*.txt)))
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: demo demo-once test test-plain test-bare compat check bench chaos chaos-short soak format clean

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --editable '.[$(EXTRAS)]'
	touch $(READY)

demo: $(READY)
	$(BIN)/otel-agentguard demo

demo-once: $(READY)
	$(BIN)/otel-agentguard demo --once

test: $(READY)
	$(PYTEST)

# Without database servers, whatever is installed.
test-plain: $(READY)
	$(PYTEST) -m 'not services and not chaos and not soak'

# With nothing but what the package itself requires.
test-bare:
	test -x $(BARE)/bin/python || $(PYTHON) -m venv $(BARE)
	$(BARE)/bin/python $(PIP_INSTALL) --editable . pytest pytest-timeout pytest-xdist hypothesis inline-snapshot
	$(BARE)/bin/python -m pytest --numprocesses $(WORKERS) -m 'not services and not chaos and not soak'

# Each adapter with the oldest versions of its framework that it knows, in an environment of its own.
compat: $(COMPAT:%=compat-%)

compat-%:
	test -x .venvs/$@/bin/python || $(PYTHON) -m venv .venvs/$@
	.venvs/$@/bin/python $(PIP_INSTALL) --editable . pytest pytest-timeout hypothesis -r tests/adapters/oldest/$*.txt
	.venvs/$@/bin/python -m pytest -q -W ignore::DeprecationWarning tests/adapters/test_$(subst -,_,$*).py

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing
	$(BIN)/lint-imports
	$(PYTEST) -q tests/test_docs.py tests/test_docs_metrics.py

bench: $(READY)
	$(BIN)/python benchmarks/overhead.py

chaos: $(READY)
	$(PYTEST) -m chaos --timeout 1800

chaos-short: $(READY)
	AGENTGUARD_CHAOS=short $(PYTEST) -m chaos --timeout 600

soak: $(READY)
	$(PYTEST) -m soak --timeout 5400

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .venvs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
