# Everything here sets itself up: all it needs is Python 3.11 or newer with pip, and make.
# Another place for the virtual environment: make VENV=/path/to/venv …

VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
SWEEP ?= sweeps/quickstart.yaml

# Tests and runs start Python many times. Without compiled modules, each start compiles ours again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart docs test faults lint format schema bench gpu ui recordings notebooks tutorial \
	screenshots wheel clean

quickstart: $(INSTALLED)  ## train, evaluate and compare four embeddings in minutes on two cores
	$(BIN)/fope-lab run $(SWEEP)

test: $(INSTALLED)  ## everything but what is killed, starved or damaged
	# In three processes, since some tests wait.
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not faults" \
		--numprocesses 3 --dist loadfile --no-loadscope-reorder

faults: $(INSTALLED)  ## kills, starves and damages for real
	# In three processes, since the tests wait a lot.
	OMP_NUM_THREADS=1 $(BIN)/pytest -m faults tests/faults \
		--numprocesses 3 --dist loadfile --no-loadscope-reorder

lint: $(INSTALLED)  ## style, types and the one-way flow of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schema: $(INSTALLED)  ## rewrite sweeps/schema.json after a change of options
	$(BIN)/fope-lab schema > sweeps/schema.json.new
	mv sweeps/schema.json.new sweeps/schema.json

bench: $(INSTALLED)  ## measure all figures about speed, for benchmarks/RESULTS.md; takes hours
	$(BIN)/python benchmarks/results.py

gpu:  ## all that needs a GPU, in eight minutes; installs nothing (see benchmarks/gpu.py)
	PYTHONPATH=.$${PYTHONPATH:+:$$PYTHONPATH} $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/gpu.py $(GPU)

ui: $(INSTALLED)  ## MLflow on the default store
	$(BIN)/fope-lab ui

docs: $(INSTALLED)  ## the documentation, in build/documentation/site; a broken link is an error
	$(BIN)/python -m docs.build

recordings: notebooks tutorial  ## run the notebooks and the tutorial, and keep their outputs

notebooks: $(INSTALLED)
	$(BIN)/python -m docs.execute_notebooks

tutorial: $(INSTALLED)
	$(BIN)/python -m docs.record_tutorial

screenshots: $(INSTALLED)  ## the README's picture, from the default store; needs Chromium
	$(BIN)/python docs/screenshots.py $(SWEEP)

$(INSTALLED): pyproject.toml setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[dev]'
	touch $@

wheel: $(INSTALLED)  ## dist/fope_lab-VERSION-py3-none-any.whl, with the sweeps
	rm -rf build  # or files of an older build would come along
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
