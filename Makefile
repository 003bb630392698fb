# Everything runs in virtual environments in the tree; each target creates those that it requires.
#
# On Linux pip installs PyTorch with CUDA (4 GB) for test-backends and test-clients. To install the
# build for CPUs, set PIP_EXTRA_INDEX_URL to PyTorch's index of CPU builds.

PYTHON ?= python3
VENV := .venv
EXTRAS := .venv-extras
FLAIR := .venv-flair
ENGINES := .venv-engines
DOCS := .venv-docs
OLDEST := .venv-oldest
NEWEST := .venv-newest
NUMPY := .venv-numpy
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
CONSTRAINTS := constraints.txt
INSTALLED_BY := setup.py pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo docs package test test-slow test-slow-short lint format test-backends test-backends-short test-clients test-clients-short
.PHONY: test-processors test-processors-short test-versions test-cluster test-cluster-short fuzz test-all clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1: \2/p' $(MAKEFILE_LIST)

install: $(VENV)/installed  ## create the environment .venv with bilm in it

demo: $(VENV)/installed  ## train, evaluate and export a small model and print nearest neighbours
	$(VENV)/bin/python examples/demo.py

docs: $(DOCS)/installed  ## build the documentation in build/docs and run its tutorials: 5 minutes on 2 cores
	$(DOCS)/bin/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "Open build/docs/index.html"

package: $(DOCS)/installed  ## build the distributions in dist/ and check them
	rm -rf dist build/lib build/bdist.*
	$(DOCS)/bin/python -m build
	$(DOCS)/bin/python -m twine check --strict dist/*

PARALLEL := --numprocesses auto --maxprocesses 4 --dist
PYTEST = $(VENV)/bin/python -m pytest $(PARALLEL)

DEFAULT := -m "not slow and not cluster and not clients" tests
test: $(VENV)/installed  ## run the tests except the slow ones: about 5 minutes on 2 cores
	$(PYTEST) loadfile $(DEFAULT)

# The libraries then compute as on a processor without AVX-512, in which TensorFlow has no bfloat16.
WIDE := from numpy._core._multiarray_umath import __cpu_dispatch__ as names; \
  print(*[name for name in names if "512" in name or name == "X86_V4"])
NARROW = NPY_DISABLE_CPU_FEATURES="$$($(VENV)/bin/python -c '$(WIDE)')" OPENBLAS_CORETYPE=Haswell ONEDNN_MAX_CPU_ISA=AVX2
test-processors: $(VENV)/installed  ## run the tests of test as on a processor without AVX-512, and on one core
	$(NARROW) $(PYTEST) loadfile $(DEFAULT) -k "not bfloat16 and not product_rounds"
	taskset --cpu-list 0 $(VENV)/bin/python -m pytest $(DEFAULT)

test-processors-short: $(VENV)/installed  ## run golden tests as on a processor without AVX-512, for CI
	$(NARROW) $(PYTEST) load -m "not slow" -k "golden and not bfloat16" tests/inference tests/scoring tests/training/test_step.py

test-slow: $(VENV)/installed  ## run the slow tests: demo, examples, killed runs
	$(PYTEST) load -m slow tests

LONG := benchmark or gpu_computes or fuzz or tagger or reads_ahead_ends or forks or golden or lstm or regularized or resume_is_bit or budget_that_is or proteins or classifier
test-slow-short: $(VENV)/installed  ## the same without benchmarks, fuzz, taggers and further parameters, for CI
	$(PYTEST) load -m slow -k "not ($(LONG))" tests

test-cluster: $(VENV)/installed $(ENGINES)/installed  ## run tests of several workers, Spark, Ray, Dask and object stores
	$(VENV)/bin/python -m pytest -m cluster tests
	$(ENGINES)/bin/python -m pytest -m cluster tests/cluster tests/support tests/commands

test-cluster-short: $(VENV)/installed  ## a few of the tests of test-cluster, for CI
	$(VENV)/bin/python -m pytest -m "cluster and short" tests/training

lint: $(VENV)/installed  ## check style, formatting and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/installed  ## fix style and formatting
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

ENVIRONMENTS := tests/integrations/environments.py
test-backends: $(EXTRAS)/installed $(NUMPY)/installed  ## run commands without TensorFlow, and the golden inference tests on JAX and PyTorch
	$(NUMPY)/bin/python $(ENVIRONMENTS) NumPy
	$(EXTRAS)/bin/python $(ENVIRONMENTS) PyTorch JAX TensorFlow
	KERAS_BACKEND=jax $(EXTRAS)/bin/python -m pytest $(PARALLEL) load tests -k golden
	KERAS_BACKEND=torch $(EXTRAS)/bin/python -m pytest $(PARALLEL) load tests -k golden

test-backends-short: $(EXTRAS)/installed $(NUMPY)/installed  ## the same, but on JAX only the layer
	$(NUMPY)/bin/python $(ENVIRONMENTS) NumPy
	$(EXTRAS)/bin/python $(ENVIRONMENTS) PyTorch JAX TensorFlow
	KERAS_BACKEND=jax $(EXTRAS)/bin/python -m pytest $(PARALLEL) load tests/elmo -k golden
	KERAS_BACKEND=torch $(EXTRAS)/bin/python -m pytest $(PARALLEL) load tests -k golden

test-clients: $(EXTRAS)/installed $(FLAIR)/installed  ## run the tests of optional packages: scikit-learn, spaCy, ONNX, ...
	$(EXTRAS)/bin/python -m pytest $(PARALLEL) loadfile -m clients tests
	KERAS_BACKEND=torch $(EXTRAS)/bin/python -m pytest tests/integrations/test_torch.py \
	  tests/compat/test_allennlp_interface.py
	KERAS_BACKEND=torch $(FLAIR)/bin/python -m pytest tests/compat/test_flair_interface.py

test-clients-short: $(EXTRAS)/installed  ## a few of the tests of test-clients, for CI
	$(EXTRAS)/bin/python -m pytest $(PARALLEL) loadfile -m "clients and short" tests

test-versions: $(OLDEST)/installed $(NEWEST)/installed  ## run golden and training tests with the oldest and newest dependencies
	$(OLDEST)/bin/python -m pytest $(PARALLEL) loadfile -m "not slow and not cluster" \
	  -k "golden or training" tests
	$(NEWEST)/bin/python -m pytest $(PARALLEL) loadfile -m "not slow and not cluster" \
	  -k "golden or training" tests

fuzz: $(VENV)/installed  ## try 10,000 damaged inputs and models, each of which must load or fail in one line
	$(VENV)/bin/python tests/fuzz inputs 1 400
	$(VENV)/bin/python tests/fuzz models 1 500
	$(VENV)/bin/python tests/fuzz manylangs 1 500
	$(VENV)/bin/python tests/fuzz allennlp 1 500
	$(VENV)/bin/python tests/fuzz tfhub 1 500

test-all: lint test test-slow test-cluster test-backends test-clients test-versions fuzz  ## run all tests

clean:  ## remove the environments, built files and demo_run
	rm -rf $(VENV) $(EXTRAS) $(FLAIR) $(ENGINES) $(DOCS) $(OLDEST) $(NEWEST) $(NUMPY) build dist *.egg-info demo_run
	rm -rf docs/api docs/project
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(EXTRAS)/installed: PACKAGES := jax torch pandas polars selenium gensim minicons
$(EXTRAS)/installed: OPTIONAL := ,analysis,hub,onnx,parquet,sentence-transformers,sklearn,spacy,zstd

# flair requires older versions of huggingface_hub and click than those of constraints.txt. Its tests run
# without TensorFlow, because PyTorch with CUDA crashes if TensorFlow was imported before it.
$(FLAIR)/installed: OPTIONAL := ,flair
$(FLAIR)/installed: CONSTRAINTS := /dev/null

$(ENGINES)/installed: PACKAGES := moto[server] pandas dask[distributed] datasets pyspark ray
$(ENGINES)/installed: OPTIONAL := ,parquet,remote,zstd

$(DOCS)/installed: PACKAGES := build twine
$(DOCS)/installed: OPTIONAL := ,analysis,docs,spacy

$(OLDEST)/installed: CONSTRAINTS := constraints-oldest.txt
$(OLDEST)/installed: constraints-oldest.txt
$(NEWEST)/installed: CONSTRAINTS := /dev/null

# The packages of the page, without TensorFlow and Keras.
$(NUMPY)/installed: ONLY := $(shell sed -n 's/^pip install \(numpy .*\)/\1/p' docs/embedding_only.md)
$(NUMPY)/installed: docs/embedding_only.md

RUNS := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
$(VENV)/installed $(EXTRAS)/installed $(FLAIR)/installed $(ENGINES)/installed $(DOCS)/installed \
$(OLDEST)/installed $(NEWEST)/installed $(NUMPY)/installed: $(INSTALLED_BY)
	@$(PYTHON) -c '$(RUNS)' 2>/dev/null || { \
	  echo "bilm needs Python 3.10 to 3.13 and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
	  for other in python3 python3.13 python3.12 python3.11 python3.10; do \
	    $$other -c '$(RUNS)' 2>/dev/null && echo "This one runs: make PYTHON=$$other $(MAKECMDGOALS)"; \
	  done; exit 1; }
	@echo "Installing bilm and $(or $(ONLY),TensorFlow) $(addprefix and ,$(PACKAGES)) into $(@D): a minute or more."
	@test -x $(@D)/bin/pip || $(PYTHON) -m venv $(@D)
	@$(if $(ONLY),$(@D)/bin/python $(PIP_INSTALL) $(ONLY))
	@$(@D)/bin/python $(PIP_INSTALL) $(if $(ONLY),--no-deps) --editable '.[test$(OPTIONAL)]' \
	  $(foreach package,$(PACKAGES),'$(package)')
	@touch $@
