# One obvious command for each thing; `make` alone lists them.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint gate bench clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tracekit needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile 'torch==2.13.0' -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[recorder,dashboard,postgres,dev]' -c constraints.txt
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # on every core; some packages ship templates that are no Python
	touch $@

setup: $(READY)  ## make the virtual environment with pinned versions

demo: $(READY)  ## train small split-up models here, and report where their time and memory went
	$(BIN)/tracekit demo

test: $(READY)  ## run the tests: side by side, then those that need the machine to themselves
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m 'not alone'
	$(BIN)/python -m pytest -m alone

lint: $(READY)  ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gate: $(READY)  ## hold the reference runs against what they did when .ci/baseline was kept
	$(BIN)/python .ci/gate.py

bench: $(READY)  ## speed, as ratios within one run
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

clean:  ## remove what these commands made
	rm -rf $(VENV) runs build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
