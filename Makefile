# quickstart   install, train the embedded benchmark on the CPU, draw the report
# test         the fast tests          test-slow  the rest
# lint         style and formatting    clean      remove what the targets made, but no runs
#
# Overridable: make test VENV=/tmp/venv PYTHON=python3.12;  make quickstart WORKDIR=runs/mine
# It needs Python 3.11 or newer with venv, and a network the first time.  It installs CPU builds.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
WORKDIR ?= runs/quickstart
# The first interpreter that runs and is new enough (a version manager's shim may exist and fail).
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

RUN := $(VENV)/bin/python -m
PIP := $(RUN) pip --disable-pip-version-check
# Stamps: each set of packages is installed when its description changed, and only for its targets.
CREATED := $(VENV)/.created
BASE := $(VENV)/.installed-base
LINT := $(VENV)/.installed-lint
TEST := $(VENV)/.installed-test
PACKAGE := setup.py pyproject.toml

# On Linux "+cpu" names the build without CUDA: if it cannot be had, pip fails and does not turn to
# PyPI's build, which brings gigabytes of CUDA.  The builds for macOS have no such suffix.
TORCH := torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: help quickstart install test test-slow lint clean

help:
	@sed -n '/^$$/q;s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

quickstart: $(BASE)
	$(RUN) genenv_jax.main --config=configs/quickstart.py --workdir=$(WORKDIR)
	$(RUN) genenv_jax.report $(WORKDIR)

install: $(BASE)

test: $(TEST)
	$(RUN) pytest

test-slow: $(TEST)
	$(RUN) pytest -m slow

lint: $(LINT)
	$(RUN) ruff check .
	$(RUN) ruff format --check .

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

# PyTorch first and without dependencies, so that only this one file comes from its index.
$(TEST): $(CREATED) $(PACKAGE)
	$(PIP) install --no-deps '$(TORCH)' || { \
		echo 'not in the configured indexes; trying $(TORCH_INDEX)'; \
		$(PIP) install --no-deps --index-url $(TORCH_INDEX) '$(TORCH)'; }
	$(PIP) install --editable '.[test]'
	touch $@
