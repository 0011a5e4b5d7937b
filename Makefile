# One virtual environment for everything. uv installs the stack in seconds; pip only brings uv.
VENV := .venv
PY := $(VENV)/bin/python
export UV_LINK_MODE ?= hardlink
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: help install lint test test-simulation test-strategies test-slow simulate reproduce docs bench compat clean

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
	$(PY) -m pytest -m 'not engine and not deployment' -n 2 --dist loadfile
	$(MAKE) --no-print-directory -j2 --output-sync=line test-simulation test-strategies

# Flower's engine and processes mostly wait for themselves: two at a time fit on two cores, more do not.
SIMULATION_TESTS := tests/test_simulation_runs.py tests/test_sweep.py
test-simulation: install
	$(PY) -m pytest $(SIMULATION_TESTS)

test-strategies: install
	$(PY) -m pytest -m 'engine or deployment' $(addprefix --ignore ,$(SIMULATION_TESTS))

test-slow: install  ## Tests of many minutes: 20 kills of the server at random moments, cross-validation
	FLWR_MEL_SLOW=1 $(PY) -m pytest -k 'twenty_kills or cross_validation' tests/deployment tests/test_recommend.py

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

bench: install  ## Measure solvers, strategies, simulation, learning, a soak; writes docs/BENCHMARKS.md
	$(PY) -m bench.solvers
	$(PY) -m bench.paper_grid
	$(PY) -m bench.progress
	$(PY) -m bench.strategy
	$(PY) -m bench.training
	$(PY) -m bench.simulation
	$(PY) -m bench.sweep
	$(PY) -m bench.learning
	$(PY) -m bench.soak

# The oldest Flower of pyproject.toml, and the newest that can be installed. test_asking looks into Flower 1.41,
# and so does the simulation, whose packages are named here for that reason.
COMPAT := torch torchvision cvxpy clarabel matplotlib mlxtend hypothesis pytest pytest-timeout
OLDEST_FLWR := $(shell sed -nE 's/^ *"flwr>=([0-9.]+),.*/\1/p' pyproject.toml)
compat: install  ## Strategy tests against the oldest and the newest Flower; VERSIONS="1.30.0 ..." for others
	for version in $(or $(VERSIONS),$(OLDEST_FLWR) newest); do \
		wanted="flwr[simulation]"; [ $$version = newest ] || wanted="flwr[simulation]==$$version"; \
		rm -rf .compat/$$version && $(VENV)/bin/uv venv --quiet --python $(PY) .compat/$$version && \
		$(VENV)/bin/uv pip install --quiet --python .compat/$$version/bin/python --upgrade -e . "$$wanted" $(COMPAT) && \
		.compat/$$version/bin/python -c 'import flwr; print("Flower", flwr.__version__)' && \
		.compat/$$version/bin/python -m pytest -q -p no:cacheprovider tests/test_orchestrator.py tests/flower \
			--ignore tests/flower/test_asking.py --ignore tests/flower/test_soak.py || exit 1; \
	done

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .compat .pytest_cache .mypy_cache .ruff_cache
