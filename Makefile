# Everything runs in virtual environments in the tree; each target makes what it needs.

PYTHON ?= python3
VENV := .venv
BACKENDS := .venv-backends
CLIENTS := .venv-clients
OLDEST := .venv-oldest
NEWEST := .venv-newest
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
CONSTRAINTS := constraints.txt
INSTALLED_BY := setup.py pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow lint format test-backends test-clients test-versions
.PHONY: test-cluster fuzz test-all clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1: \2/p' $(MAKEFILE_LIST)

install: $(VENV)/installed  ## make the environment .venv with bilm in it

demo: $(VENV)/installed  ## train a small model, measure it, export it and ask it for neighbours
	$(VENV)/bin/python examples/demo.py

PYTEST = $(VENV)/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist

test: $(VENV)/installed  ## run the tests, but for the slow ones
	$(PYTEST) loadfile -m "not slow and not cluster" tests

test-slow: $(VENV)/installed  ## run the demo, the examples, a run that is killed: minutes each
	$(PYTEST) load -m slow tests

test-cluster: $(VENV)/installed  ## training runs of several worker processes, some of them killed
	$(VENV)/bin/python -m pytest -m cluster tests

lint: $(VENV)/installed  ## check style, formatting and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/installed  ## repair style and formatting
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

test-backends: $(BACKENDS)/installed  ## run the golden inference cases on JAX and PyTorch
	KERAS_BACKEND=jax $(BACKENDS)/bin/python -m pytest tests -k golden
	KERAS_BACKEND=torch $(BACKENDS)/bin/python -m pytest tests -k golden

CLIENT_TESTS := tests/integrations tests/commands/test_completion.py \
  tests/commands/test_damaged_corpora.py tests/commands/test_text_command.py tests/test_onnx_model.py \
  tests/test_projector.py tests/test_saved_model.py tests/embedding/test_parquet.py \
  tests/data/test_records.py tests/storage/test_hub.py

test-clients: $(CLIENTS)/installed  ## scikit-learn, spaCy, Parquet, ONNX, hubs, TensorBoard, shells, PyTorch
	$(CLIENTS)/bin/python -m pytest $(CLIENT_TESTS)
	KERAS_BACKEND=torch $(CLIENTS)/bin/python -m pytest tests/integrations/test_torch.py

test-versions: $(OLDEST)/installed $(NEWEST)/installed  ## golden and training tests, oldest and newest versions
	$(OLDEST)/bin/python -m pytest tests -k "golden or training" -m "not slow and not cluster"
	$(NEWEST)/bin/python -m pytest tests -k "golden or training" -m "not slow and not cluster"

fuzz: $(VENV)/installed  ## 6,500 damaged inputs and models: each ends in success or one clear error
	$(VENV)/bin/python tests/fuzz_inputs.py 1 400
	$(VENV)/bin/python tests/fuzz_corpora.py 1 200
	$(VENV)/bin/python tests/fuzz_models.py 1 500
	$(VENV)/bin/python tests/fuzz_manylangs.py 1 500

test-all: lint test test-slow test-cluster test-backends test-clients test-versions fuzz  ## every test, the slow ones too

clean:  ## remove the environments, what was built, and demo_run
	rm -rf $(VENV) $(BACKENDS) $(CLIENTS) $(OLDEST) $(NEWEST) build dist *.egg-info demo_run
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BACKENDS)/installed: EXTRA := jax torch
$(CLIENTS)/installed: EXTRA := torch pandas polars tensorflow-serving-api
$(CLIENTS)/installed: EXTRAS := ,completion,hub,onnx,parquet,sklearn,spacy,tensorboard

$(OLDEST)/installed: CONSTRAINTS := constraints-oldest.txt
$(OLDEST)/installed: constraints-oldest.txt
$(NEWEST)/installed: CONSTRAINTS := /dev/null

$(VENV)/installed $(BACKENDS)/installed $(CLIENTS)/installed $(OLDEST)/installed \
$(NEWEST)/installed: $(INSTALLED_BY)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "bilm needs Python 3.10 to 3.13 and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
	  echo "Try another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing bilm and TensorFlow $(addprefix and ,$(EXTRA)) into $(@D): a minute or more."
	@test -x $(@D)/bin/pip || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python $(PIP_INSTALL) --editable '.[test$(EXTRAS)]' $(EXTRA)
	@touch $@
