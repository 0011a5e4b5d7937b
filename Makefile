# One virtual environment for everything. uv installs the stack in seconds; pip only brings uv.
VENV := .venv
PY := $(VENV)/bin/python
export UV_LINK_MODE ?= hardlink
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: help install lint test simulate reproduce docs bench compat clean

help:  ## Show this help
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check uv
	$(VENV)/bin/uv pip install --quiet --python $(PY) -e '.[dev]'
	touch $@

install: $(VENV)/.installed  ## Create .venv and install everything

lint: install  ## Style (ruff, numpydoc rules) and types (mypy strict)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: lint  ## Lint, types and all tests: what CI runs
	$(PY) -m pytest -m 'not engine' -n 2 --dist loadfile
	$(PY) -m pytest -m engine

simulate: install  ## Run the main job on MNIST and leave a report; options in ARGS="--cycles 3 ..."
	$(VENV)/bin/flwr-mel simulate $(ARGS)

RESULTS := $(wildcard results/headline.jsonl results/past.jsonl results/paper.jsonl)
PROFILE ?= quick
reproduce: install  ## Sweep a profile (PROFILE=quick|headline|paper|past) and draw its figures and table
	$(VENV)/bin/flwr-mel sweep $(PROFILE) --out runs/sweep-$(PROFILE) $(ARGS)
	$(PY) -m simulation.lemma --out runs/sweep-$(PROFILE)/lemma.jsonl
	$(PY) -m simulation.reproduction runs/sweep-$(PROFILE) --lemma runs/sweep-$(PROFILE)/lemma.jsonl \
		--out runs/sweep-$(PROFILE)

docs: install  ## Write the pages and figures that come from the committed results
	$(PY) -m simulation.reproduction $(RESULTS) --lemma results/lemma.jsonl --out docs
	$(PY) -m simulation.past $(RESULTS) --out docs --readme README.md

bench: install  ## Measure solvers, strategy, training and simulation; writes docs/BENCHMARKS.md
	$(PY) -m bench.solvers
	$(PY) -m bench.paper_grid
	$(PY) -m bench.strategy
	$(PY) -m bench.training
	$(PY) -m bench.simulation

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
