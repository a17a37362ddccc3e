# Recipes for everfold; each one sets up what it needs. `make` lists them.
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.everfold-ready
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
PYTEST_ARGS ?=
# Parts of test-all. A file here marks a part that has passed; its time is when that run started.
# A part runs again when a file changes that it depends on.
PASSED := scratch/passed
files_in = $(shell find $(1) -type f -not -path '*/__pycache__/*')
SHARED := $(call files_in,src) $(wildcard tests/*.py) pyproject.toml requirements.lock
CASES := $(filter-out tests/cases/compat,$(patsubst %/,%,$(sort $(dir $(wildcard tests/cases/*/*.case.yaml)))))
BEGIN = mkdir -p $(@D) && touch $@.begun
SLOWEST := --durations=5
END = $(if $(PYTEST_ARGS),,mv $@.begun $@)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-cases test-cases-catalyst test-spark test-servers test-kills test-properties test-cluster test-flink bench docs build release lock clean

help: # list the recipes
	@awk -F ':.*# ' '/^[a-z-]+:.*# / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(READY) # create the environment in .venv: the locked Python packages and everfold itself

$(READY): pyproject.toml requirements.lock .ci/setup
	@.ci/setup $(VENV)
	@touch $@

demo: $(READY) # run the main jobs: windows of six bids, OVER and group windows of eight orders
	@$(BIN)/everfold check-setup --quiet
	@$(BIN)/everfold run examples/bids/demo.sql
	@$(BIN)/everfold run examples/orders/demo.sql

test: $(READY) # run the checks that take minutes: style, types, layers, every case in memory, some on Spark and Kafka
	@$(BIN)/everfold check-setup --quiet
	@$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-all: test test-cases test-cases-catalyst test-spark test-servers test-kills test-properties test-cluster test-flink # run all checks, hours: `make test` and the parts below that have not passed yet; -k continues after a failure

# How test-cases computes the input of operators on Spark: `auto` in workers where possible, or `catalyst`, which runs the cases that this
# changes. Verdicts (tests/cases/compat) do not need Spark.
SCAN ?= auto
test-cases: $(CASES:tests/%=$(PASSED)/$(SCAN)/%) # a part of test-all: every case on Spark, folder by folder

test-cases-catalyst: # a part of test-all: the cases with a worker scan again without it
	@$(MAKE) --no-print-directory test-cases SCAN=catalyst

test-spark: $(PASSED)/spark # a part of test-all: slow tests on Spark

test-servers: $(PASSED)/servers # a part of test-all: slow tests with Kafka and PostgreSQL

test-kills: $(PASSED)/kills # a part of test-all: killed processes, full disks, servers that disappear

test-properties: $(PASSED)/properties # a part of test-all: many random queries

test-cluster: $(PASSED)/cluster # a part of test-all: a standalone cluster of two workers

# Arguments of test-flink: it generates COUNT queries from SEED, and runs them on ENGINE, memory or spark.
SEED ?= 1
COUNT ?= 500
ENGINE ?= memory
FLINK := $(PASSED)/flink-$(SEED)-$(COUNT)-$(ENGINE)

test-flink: $(FLINK) # a part of test-all: random queries compared with Flink; SEED=2 COUNT=100 ENGINE=spark run others

.SECONDEXPANSION:
$(PASSED)/$(SCAN)/cases/%: $(SHARED) $$(call files_in,tests/cases/$$*) | $(READY)
	@$(BEGIN)
	@$(PYTEST) $(SLOWEST) --everfold-engine=spark --everfold-scan=$(SCAN) tests/cases/$* $(PYTEST_ARGS)
	@$(END)

NOWHERE_ELSE := --ignore=tests/cases --ignore=tests/faults --ignore=tests/property --ignore=tests/flink --ignore=tests/cluster
$(PASSED)/spark: SLOW := -m "slow and not (kafka or postgres)" $(NOWHERE_ELSE)
$(PASSED)/servers: SLOW := -m "slow and (kafka or postgres)" $(NOWHERE_ELSE)
$(PASSED)/kills: SLOW := -m slow tests/faults
$(PASSED)/cluster: SLOW := -m slow tests/cluster
$(PASSED)/properties: SLOW := -m slow tests/property
$(FLINK): PYTEST := $(BIN)/python -m pytest
$(FLINK): SLOW := -m slow tests/flink
$(FLINK): export FLINK_SEED := $(SEED)
$(FLINK): export FLINK_COUNT := $(COUNT)
$(FLINK): export FLINK_ENGINE := $(ENGINE)

$(PASSED)/spark $(PASSED)/servers: $(call files_in,tests/spark tests/unit tests/property tests/golden tests/cases)
$(PASSED)/kills $(PASSED)/cluster: $(call files_in,tests/faults)
$(PASSED)/cluster: $(call files_in,tests/cluster)
$(PASSED)/properties: $(call files_in,tests/property tests/unit/aggregates tests/cases)
$(FLINK): $(call files_in,tests/flink)
$(PASSED)/%: $(SHARED) | $(READY)
	@$(BEGIN)
	@$(PYTEST) $(SLOWEST) $(SLOW) $(PYTEST_ARGS)
	@$(END)

# `make bench` uses short inputs; `make bench LONG=1` measures what benchmarks/README.md reports.
# With LONG=1 MINUTES=120 it ends after about that time, and the same command continues.
LONG ?=
MINUTES ?=
RUN := $(BIN)/python benchmarks/run.py $(if $(LONG),,--quick --results scratch/bench/quick.jsonl) $(if $(MINUTES),--minutes $(MINUTES))
RATES = $(if $(LONG),$$(ls -t benchmarks/history/*.jsonl | head -1),scratch/bench/quick.jsonl)

bench: $(READY) # compare everfold with Flink and Spark, and check the other performance targets; an hour, with LONG=1 a night
	@$(BIN)/uv pip install --quiet --python $(BIN)/python "matplotlib>=3.10,<4"
	@mkdir -p scratch/bench
	@rm -f scratch/bench/quick.jsonl
	@$(RUN) --data-sets 1k-keys 1m-keys nexmark
	@$(RUN) --data-sets 1k-keys --kafka --engines flink spark everfold
	@$(BIN)/python benchmarks/plot_rates.py $(RATES) --out $(if $(LONG),benchmarks,scratch/bench)/rates.svg
	@$(BIN)/python benchmarks/latency.py $(if $(LONG),--repeat 3,--seconds 20 --results scratch/bench/quick.jsonl)
	@$(BIN)/python benchmarks/floor.py
	@$(BIN)/python benchmarks/buckets.py --results scratch/bench/quick.jsonl
	@$(BIN)/python benchmarks/kafka_parts.py
	@$(BIN)/python benchmarks/first_result.py
	@$(BIN)/python benchmarks/profile_batch.py tumble group over_range
	@$(BIN)/python benchmarks/check_times.py
ifneq ($(LONG),)
	@$(BIN)/python benchmarks/growth.py
	@$(BIN)/python benchmarks/plot_growth.py scratch/bench/growth.jsonl --out benchmarks/growth.svg
	@$(BIN)/python benchmarks/flat_state.py
	@$(BIN)/python benchmarks/plot_flat_state.py scratch/bench/flat_state.jsonl --out benchmarks/flat_state.svg
endif

# The other pictures show the shell, and a job on Spark: `make docs PICTURES=1` takes minutes, Chromium, Neovim and JupyterLab.
PICTURES ?=

docs: $(READY) # generate the reference pages and recordings in docs/, and build the site in site/; PICTURES=1 records the other pictures again
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/recordings.py
ifneq ($(PICTURES),)
	@$(BIN)/python tests/record_shell.py
	@$(BIN)/python tests/record_pictures.py
endif
	@$(BIN)/zensical build --strict
ifneq ($(PICTURES),)
	@$(BIN)/python tests/record_pictures.py site
endif

build: $(READY) # build sdist and wheel in dist/
	@rm -rf dist
	@$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist

release: $(READY) # fold changes/ into CHANGELOG.md under the version in src/everfold/__init__.py, build sdist and wheel in dist/
	@$(BIN)/towncrier build --yes --version "$$($(BIN)/python -c 'import everfold; print(everfold.__version__)')"
	@$(MAKE) --no-print-directory build

lock: $(READY) # resolve the dependencies again into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --group dev pyproject.toml -o requirements.lock

clean: # remove everything that the recipes created, .venv too
	rm -rf $(VENV) .cache site .mypy_cache .pytest_cache .ruff_cache .hypothesis dist scratch spark-warehouse
	find . -name __pycache__ -type d -not -path './benchmarks/.venv-flink/*' -prune -exec rm -rf {} +
