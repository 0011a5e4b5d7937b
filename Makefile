# One virtual environment for everything. uv installs the stack in seconds; pip only brings uv.
VENV := .venv
PY := $(VENV)/bin/python
# The versions that all commands use: `make lock` renews them, LOCK= installs the newest instead.
LOCK ?= requirements.lock
LOCKED := $(addprefix -c ,$(LOCK))
UV := $(VENV)/bin/uv
INSTALL := $(UV) pip install --quiet
export UV_LINK_MODE ?= hardlink
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export RAY_USAGE_STATS_ENABLED := 0
# Dots appear as tests end, also in a pipe or a log.
export PYTHONUNBUFFERED := 1

.PHONY: help install style types lint test tests test-slow coverage examples simulate reproduce arena docs site bench compat lock release clean

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s%s\n", $$1, $$2 }' Makefile

# The library with all extras, and the app in simulation/, which adds commands to it.
PROJECTS := '.[paper,energy,report]' ./simulation
$(VENV)/.installed: pyproject.toml simulation/pyproject.toml $(LOCK)
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check $(LOCKED) uv
	$(INSTALL) --python $(PY) $(LOCKED) $(addprefix -e ,$(PROJECTS)) --group dev
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
	$(INSTALL) --python $(PY) $(LOCKED) --group examples
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
	$(INSTALL) --python $(PY) $(LOCKED) --group examples
	for name in solvers fleet strategy updates startup sweep paper_grid gallery "gallery --real" \
		"learning $(if $(LINKS),--links $(LINKS))"; do $(PY) -m bench.$$name || exit 1; done
	$(PY) -m bench.page

# The lower bounds of pyproject.toml, and the newest Flower. mel-simulation needs Flower 1.41, so what the tests need of
# its packages is named here; newer pyarrow needs numpy 2. The override is for indexes without the certifi that Flower
# 1.42 asks for.
OLDEST := $(shell sed -nE 's/^ *"flwr>=([0-9.]+),.*/\1/p' pyproject.toml)
VERSIONS ?= $(OLDEST) newest
COMPAT := torch torchvision opacus cvxpy clarabel matplotlib mlxtend flwr-datasets hypothesis psutil pytest pytest-timeout
compat: $(addprefix compat-,$(VERSIONS))  ## Strategy tests with the oldest packages and with the newest Flower; VERSIONS="1.30.0 ..." for others

compat-%: install
	rm -rf .compat/$* && $(UV) venv --quiet --python $(PY) .compat/$*
	echo 'certifi>=2024' | $(INSTALL) --python .compat/$*/bin/python --override /dev/stdin \
		$(if $(filter $(OLDEST),$*),--resolution lowest-direct) -e . 'flwr[simulation]$(if $(filter-out newest,$*),==$*)'
	$(UV) pip freeze --python .compat/$*/bin/python --exclude-editable >.compat/$*/base.txt
	$(INSTALL) --python .compat/$*/bin/python -c .compat/$*/base.txt $(COMPAT) $(if $(filter $(OLDEST),$*),'pyarrow<20')
	$(INSTALL) --python .compat/$*/bin/python --no-deps -e ./simulation
	.compat/$*/bin/python -c 'import flwr, numpy, scipy; print("Flower", flwr.__version__, "numpy", numpy.__version__, "scipy", scipy.__version__)'
	.compat/$*/bin/python -m pytest -q -p no:cacheprovider tests/cycle tests/strategies tests/clientapp tests/engine

lock: $(VENV)/.installed  ## Take the newest versions of all packages, for every platform and Python, into requirements.lock
	printf -- '-e %s\n' $(PROJECTS) | $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate \
		--custom-compile-command 'make lock' --no-emit-package flwr-mel --no-emit-package mel-simulation \
		--group dev --group examples --output-file requirements.lock -

release: install  ## Build wheel and source distribution of both packages, check them, and install the wheels in a fresh environment
	rm -rf dist build/release
	for project in . simulation; do $(UV) build --quiet --out-dir dist $$project || exit 1; done
	$(VENV)/bin/uvx --quiet twine check --strict dist/*
	$(UV) venv --quiet --python $(PY) build/release
	$(INSTALL) --python build/release/bin/python dist/flwr_mel-*.whl
	build/release/bin/flwr-mel --version
	$(INSTALL) --python build/release/bin/python $(LOCKED) dist/*.whl
	build/release/bin/flwr-mel simulate --help >build/release/help

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .compat .pytest_cache .mypy_cache .ruff_cache
