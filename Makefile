# One virtual environment for everything. uv installs the stack in seconds; pip only brings uv.
VENV := .venv
PY := $(VENV)/bin/python
export UV_LINK_MODE ?= hardlink
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export RAY_USAGE_STATS_ENABLED := 0
# Dots appear as tests end, also in a pipe or a log.
export PYTHONUNBUFFERED := 1

.PHONY: help install style types lint test tests test-slow coverage examples simulate reproduce arena docs site bench compat release clean

help:  ## Show this help
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check uv
	$(VENV)/bin/uv pip install --quiet --python $(PY) -e '.[dev]'
	touch $@

install: $(VENV)/.installed  ## Create .venv and install everything

style: install  ## Style: ruff with numpydoc rules
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: install  ## Types: mypy strict
	$(VENV)/bin/mypy

lint: style types  ## Style and types

test: style  ## Style, types and all tests: what CI runs
	$(MAKE) --no-print-directory -j2 types tests

# One worker for what starts SuperLinks, which mostly waits, one for what starts Flower's engine, one for all other
# tests: that keeps two cores busy. Dots appear as tests end.
WORKERS ?= 3
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
tests: install  ## All tests; options in ARGS="-k report ..."
	$(PYTEST) $(ARGS)

test-slow: install  ## Tests that take many minutes: random kills, soak, brute force, in-depth fuzzing; not in CI
	FLWR_MEL_SLOW=1 $(PYTEST) -m 'slow or fuzz' $(ARGS)

coverage: install  ## All tests, with a report of the lines of flwr_mel and mel_simulation that no test reaches
	$(PYTEST) --cov --cov-report=term $(ARGS)

# Their packages stay out of `make install`: they are many.
examples: install  ## Run the projects of examples/ with their diffs; NAMES="quickstart_pytorch ..." ARGS="--plain"
	$(VENV)/bin/uv pip install --quiet --python $(PY) -e '.[examples]'
	$(PY) -m examples.run $(NAMES) $(ARGS)

simulate: install  ## Run the paper's experiment on MNIST and write a report; options in ARGS="--cycles 3 ..."
	$(VENV)/bin/flwr-mel simulate $(ARGS)

PROFILE ?= quick
reproduce: install  ## Sweep a profile (PROFILE=quick|headline|paper|rate|variations) and write its tables and figures
	$(VENV)/bin/flwr-mel sweep $(PROFILE) --out runs/sweep-$(PROFILE) $(ARGS)
	$(PY) -m mel_simulation.paper.reproduction runs/sweep-$(PROFILE)

arena: install  ## Compare our schemes with other methods on one virtual clock (PROFILE=quick|full)
	$(VENV)/bin/flwr-mel arena $(PROFILE) --out runs/arena-$(PROFILE) $(ARGS)

docs: install  ## Fill the generated blocks of the pages and draw the figures, from the committed results
	$(PY) -m mel_simulation.paper.reproduction docs
	$(PY) -m mel_simulation.arena.page results/arena.jsonl
	$(PY) docs/options.py
	$(PY) docs/generate.py
	$(PY) -m bench.page

# mkdocs-material prints advertising for its successor otherwise.
site: install  ## Build the documentation as a site, strictly, into build/site
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

bench: install  ## Measure everything and write docs/BENCHMARKS.md; LINKS=5g.csv.gz adds recorded links
	$(VENV)/bin/uv pip install --quiet --python $(PY) -e '.[examples]'
	for name in solvers strategy updates startup sweep paper_grid gallery "gallery --real" \
		"learning $(if $(LINKS),--links $(LINKS))"; do $(PY) -m bench.$$name || exit 1; done
	$(PY) -m bench.page

# The oldest Flower of pyproject.toml, and the newest that can be installed. The extra `simulation` needs Flower 1.41,
# so what the tests need of it is named here.
COMPAT := torch torchvision cvxpy clarabel matplotlib mlxtend flwr-datasets hypothesis psutil pytest pytest-timeout
OLDEST_FLWR := $(shell sed -nE 's/^ *"flwr>=([0-9.]+),.*/\1/p' pyproject.toml)
compat: install  ## Strategy tests against the oldest and the newest Flower; VERSIONS="1.30.0 ..." for others
	for version in $(or $(VERSIONS),$(OLDEST_FLWR) newest); do \
		wanted="flwr[simulation]"; [ $$version = newest ] || wanted="flwr[simulation]==$$version"; \
		rm -rf .compat/$$version && $(VENV)/bin/uv venv --quiet --python $(PY) .compat/$$version && \
		$(VENV)/bin/uv pip install --quiet --python .compat/$$version/bin/python --upgrade -e . "$$wanted" $(COMPAT) && \
		.compat/$$version/bin/python -c 'import flwr; print("Flower", flwr.__version__)' && \
		.compat/$$version/bin/python -m pytest -q -p no:cacheprovider tests/cycle tests/strategies tests/clientapp tests/engine || exit 1; \
	done

release: install  ## Build wheel and source distribution, check them, and install the wheel in a fresh environment
	rm -rf dist build/release && $(VENV)/bin/uv build --quiet --out-dir dist
	$(VENV)/bin/uvx --quiet twine check --strict dist/*
	$(VENV)/bin/uv venv --quiet build/release
	$(VENV)/bin/uv pip install --quiet --python build/release/bin/python dist/*.whl
	build/release/bin/flwr-mel --version

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .compat .pytest_cache .mypy_cache .ruff_cache
