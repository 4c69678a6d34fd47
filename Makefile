PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MODEL  ?= smollm2:135m
PROMPT ?= Explain in three sentences why the sky is blue.

.PHONY: run test check setup clean

run: $(VENV)/.run            ## set up, fetch the default model once, stream an answer to PROMPT
	@$(BIN)/unsay run --model "$(MODEL)" "$(PROMPT)"

test: $(VENV)/.dev           ## set up and run all tests
	@$(BIN)/python -m pytest -n auto --dist loadfile

check: $(VENV)/.dev          ## ruff, pyright, import-linter, tests
	@scripts/check

setup: $(VENV)/.dev

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "unsay needs Python 3.11 or newer, found " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25'  # older ones fetch a wheel to say where it is

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@scripts/test-packages
	@touch $@ $(VENV)/.run
