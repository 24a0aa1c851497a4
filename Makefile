# quickstart   install, train the embedded benchmark on the CPU, draw the report
# test         the tests that need no benchmark data and no torch: some minutes on two cores
# test-rest    what `test` leaves out: slow tests, tests on the real data, torch and PEFT, official scorers, games
# test-all     both          references  write the stored numbers of torch and torchmetrics anew
# docs         the documentation as a site in build/docs
# fuzz         generated texts through every parser, check and scorer, MINUTES=10 of CPU time
# lint         style and formatting    clean      remove what the targets made, but no runs
#
# Overridable: make test VENV=/tmp/venv PYTHON=python3.12;  make quickstart WORKDIR=runs/mine;  make fuzz MINUTES=60
# It needs Python 3.11 or newer with venv, and a network the first time.  It installs CPU builds.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
WORKDIR ?= runs/quickstart
MINUTES ?= 10
# The first interpreter that runs and is new enough (a version manager's shim may exist and fail).
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

RUN := $(VENV)/bin/python -m
PIP := $(RUN) pip --disable-pip-version-check
# Test files are divided among processes, so that a file's fixtures are made once, in the order of conftest.py.
PYTEST := $(RUN) pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
# Stamps: each set of packages is installed when its description changed, and only for its targets.
CREATED := $(VENV)/.created
BASE := $(VENV)/.installed-base
LINT := $(VENV)/.installed-lint
TEST := $(VENV)/.installed-test
REST := $(VENV)/.installed-rest
PACKAGE := setup.py pyproject.toml

# The oracle of the model tests.  PyPI's Linux wheel brings gigabytes of CUDA; name an index of CPU builds in
# TORCH_INDEX to avoid that.
TORCH ?= torch==2.13.0
TORCH_INDEX ?=

# The official checkers of BFCL, without the packages that it pins.
BFCL_EVAL ?= bfcl-eval==2026.3.23

.PHONY: help quickstart install test test-rest test-all docs fuzz references lint clean

help:
	@sed -n '/^$$/q;s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

quickstart: $(BASE)
	$(RUN) genenv_jax.main --config=configs/quickstart.py --workdir=$(WORKDIR)
	$(RUN) genenv_jax.report $(WORKDIR)

install: $(BASE)

test: $(TEST)
	$(PYTEST)

test-rest: $(REST)
	$(PYTEST) -m 'slow or data'

test-all: test test-rest

docs: $(CREATED)
	$(PIP) install --editable '.[docs]'
	$(RUN) mkdocs build

fuzz: $(TEST)
	$(RUN) tests.benchmarks.small build/small
	$(RUN) bench.fuzz --minutes=$(MINUTES) --small=build/small

references: $(REST)
	$(RUN) tests.models.make_references
	$(RUN) tests.benchmarks.bamboogle_references

lint: $(LINT)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(VENV)/bin/shellcheck launch/*.sh launch/slurm.sbatch .ci/run
	$(VENV)/bin/hadolint Dockerfile

clean:
	@if [ -f $(CREATED) ]; then rm -rf $(VENV); fi
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# The pip that Python 3.11 bundles is new enough for an editable install, so it is not upgraded.
$(CREATED):
	@if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo 'Python 3.11 or newer is needed; name it with PYTHON=/path/to/python' >&2; exit 1; fi
	"$(PYTHON)" -m venv $(VENV)
	touch $@

$(BASE): $(CREATED) $(PACKAGE)
	$(PIP) install --editable .
	touch $@

$(LINT): $(CREATED) $(PACKAGE)
	$(PIP) install --editable '.[lint]'
	touch $@

$(TEST): $(CREATED) $(PACKAGE)
	$(PIP) install --editable '.[test]'
	touch $@

$(REST): $(TEST)
	$(PIP) install $(if $(TORCH_INDEX),--index-url '$(TORCH_INDEX)') '$(TORCH)'
	$(PIP) install --editable '.[test,test-rest]'
	$(PIP) install --no-deps '$(BFCL_EVAL)'
	# ALFWorld's engine is compiled from source; where that fails, the tests of its games skip.
	$(PIP) install --editable '.[alfworld]' || echo 'The games are left out: their engine could not be built.' >&2
	touch $@
