# Recipes of everfold; each sets up what it needs by itself. `make` lists them.
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.everfold-ready
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all bench docs lock clean

help: # list the recipes
	@awk -F ':.*# ' '/^[a-z-]+:.*# / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(READY) # make the environment in .venv: Python packages as locked, and everfold itself

$(READY): pyproject.toml requirements.lock .ci/setup
	@.ci/setup $(VENV)
	@touch $@

demo: $(READY) # run the main jobs: windows of six bids, OVER and group windows of eight orders
	@$(BIN)/everfold check-setup --quiet
	@$(BIN)/everfold run examples/bids/demo.sql
	@$(BIN)/everfold run examples/orders/demo.sql

test: $(READY) # check everything that takes minutes: style, types, layers, every case in memory, some on Spark and Kafka
	@$(BIN)/everfold check-setup --quiet
	@$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-all: $(READY) # check everything: every case on Spark too, and the slow tests that kill processes
	@$(BIN)/everfold check-setup --quiet
	@$(PYTEST) --everfold-engine=all $(PYTEST_ARGS)

bench: $(READY) # compare everfold with Flink and with Spark's own aggregation
	@$(BIN)/uv pip install --quiet --python $(BIN)/python "matplotlib>=3.10,<4"
	@$(BIN)/python benchmarks/run.py
	@$(BIN)/python benchmarks/growth.py
	@$(BIN)/python benchmarks/plot_growth.py scratch/bench/growth.jsonl --out benchmarks/growth.svg
	@$(BIN)/python benchmarks/flat_state.py
	@$(BIN)/python benchmarks/plot_flat_state.py scratch/bench/flat_state.jsonl --out benchmarks/flat_state.svg

docs: $(READY) # write the reference pages in docs/ out of the registries
	@$(BIN)/python docs/generate.py

lock: $(READY) # resolve the dependencies anew into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --group dev pyproject.toml -o requirements.lock

clean: # remove what the recipes made, .venv too
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist scratch spark-warehouse
	find . -name __pycache__ -type d -not -path './benchmarks/.venv-flink/*' -prune -exec rm -rf {} +
