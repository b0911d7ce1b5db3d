# make run         set up and open the dashboard
# make test        set up and check everything
# make test-long   try many more examples, for minutes
# make mutants     do the tests notice small mistakes? takes half an hour
# make reference   docs/reference from the code
PYTHON ?= python3
unexport PYTHONDONTWRITEBYTECODE  # bytecode is kept: many tests start a Python
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test test-long checks lint types contracts unit training in-order others serial mutants \
  reference lock clean

run: $(READY)
	@$(BIN)/gpudash $(ARGS)

# the checks beside the tests, which wait for processes now and then
test: $(READY)
	@$(MAKE) --no-print-directory -j 4 in-order training others checks
	@$(MAKE) --no-print-directory serial

checks: lint types contracts

# runs in the training's process, whose Python may be an older one: what is missing there. Torch,
# which takes most of the time, is left out: the first run has checked what it is used for
IN_TRAINING := $(patsubst %,gpudash/%,inject/_gpudash notebook protocol instrument script levers training \
  __init__.py errors.py exchange.py imports.py input_file.py metrics.py rendezvous.py statistics.py trace/names.py)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy
	$(BIN)/mypy --config-file= --python-version 3.10 --follow-imports=skip \
	  --cache-dir .mypy_cache/in-training $(IN_TRAINING)

contracts: $(READY)
	$(BIN)/lint-imports

unit: $(READY)
	@$(MAKE) --no-print-directory -j 3 in-order training others
	@$(MAKE) --no-print-directory serial

# these import torch, which takes seconds in each of pytest's workers: one of them is enough
# workloads first: they fork, which autograd refuses once many backward passes have failed
TRAINING := tests/workloads tests/script tests/instrument tests/training tests/worker
# a training of several ranks and an installed program: each of these folders has what all its tests
# need made once, and its tests wait most of the time
IN_ORDER := tests/torchrun tests/packaging
OTHERS := $(patsubst %,--ignore %,$(TRAINING) $(IN_ORDER) tests/serial)

training: $(READY)
	$(BIN)/python -m pytest -n 1 --dist worksteal $(TRAINING)

# more workers than cores, because many tests wait; more than four only take each other's time
others: $(READY)
	$(BIN)/python -m pytest -n 4 --dist worksteal $(OTHERS)

in-order: $(READY)
	$(BIN)/python -m pytest $(IN_ORDER)

# compares what clocks say: nothing beside it
serial: $(READY)
	$(BIN)/python -m pytest tests/serial

# properties, with other examples at every run and forty times as many; then whole installs, also of
# each Python and torch that can be had
test-long: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m hypothesis --hypothesis-profile long \
	  --timeout 1800
	$(BIN)/python -m pytest -m long

mutants: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutants.py

# docs/reference is made from the code
reference: $(READY)
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_man.py

# versions and hashes are pinned in requirements.txt; `make lock` renews it
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
	  "gpudash needs Python 3.11 or later; this is %d.%d (set PYTHON=…)" % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --quiet \
	  --no-emit-index-url --no-emit-find-links --extra workloads --group dev pyproject.toml \
	  -o requirements.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache mutants
