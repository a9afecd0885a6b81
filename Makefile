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

.PHONY: demo demo-once test test-plain test-bare test-mem0 golden compat check bench chaos soak soak-short format clean

$(READY): pyproject.toml
	@echo "Setting up $(VENV) with all that the tests and the demo need; the first time takes some minutes."
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

# mem0 wants an older protobuf than the OTLP exporters of the other tests do.
test-mem0:
	test -x .venvs/mem0/bin/python || $(PYTHON) -m venv .venvs/mem0
	.venvs/mem0/bin/python $(PIP_INSTALL) --editable . mem0ai pytest pytest-timeout hypothesis
	.venvs/mem0/bin/python -m pytest tests/memory/test_mem0.py

# The decoders and adapters under the instrumentations of others, against the golden files; a few minutes.
# AGENTGUARD_WRITE_GOLDEN=1 writes the files anew.
golden:
	test -x .venvs/golden/bin/python || $(PYTHON) -m venv .venvs/golden
	.venvs/golden/bin/python $(PIP_INSTALL) --editable . pytest pytest-timeout hypothesis -r tests/tracing/golden/requirements.txt
	.venvs/golden/bin/python -m pytest -q tests/tracing/test_golden_runs.py

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

soak: $(READY)
	$(PYTEST) -m soak

soak-short: $(READY)
	AGENTGUARD_SOAK_S=60 $(PYTEST) -m soak

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .venvs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
