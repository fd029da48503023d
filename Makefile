# Two commands, from a bare clone: `make demo` trains a language model on a book, `make test` runs the tests.
# Both set up what they need in .venv, once; after that they need no network.

PYTHON ?= python3
TORCH ?= torch
BIN = .venv/bin
READY = .venv/ready
PYTEST = $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal
QUICK = tests/test_architecture.py tests/test_cells.py tests/test_language.py tests/test_layers.py tests/test_passes.py

.PHONY: demo check test test-slow test-all lint format generate site bench wheel clean

demo: $(READY)
	$(BIN)/fastweights train char-lm

# Style, types, words of the code, and the main properties of rules, layers and compiler passes: two minutes.
check: lint
	$(PYTEST) -m quick $(QUICK)

# Every property of every part, at some shape.
test: $(READY)
	$(PYTEST)

# What `make test` leaves out: every shape, processes that are killed, and kernels by other compilers and for other
# systems: apt install clang libomp-dev qemu-user g++-aarch64-linux-gnu
test-slow: $(READY)
	$(PYTEST) -m slow

test-all: $(READY)
	$(PYTEST) -m ""

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(READY)
	$(BIN)/python docs/exports.py
	$(BIN)/ruff check --fix --quiet src
	$(BIN)/ruff format --quiet src
	$(BIN)/python docs/generate.py

site: $(READY)
	$(BIN)/python docs/build_site.py build/site

bench: $(READY)
	$(BIN)/python benchmarks/scan.py --output-dir docs/measurements --json benchmarks/scan.json
	$(BIN)/python benchmarks/tasks.py --json benchmarks/tasks.json
	$(BIN)/python benchmarks/episodes.py

# The wheel as a user gets it, in an environment of its own: make wheel PYTHON=python3.13 TORCH=torch==2.11.0
wheel:
	rm -rf build/wheel
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH) numpy pytest
	build/wheel/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel/dist .
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check build/wheel/dist/*.whl
	build/wheel/bin/python -m pytest README.md tests/test_cells.py tests/test_compiler.py \
		-k "README or guard_of_a_library_step or float64 and delta-compiled"
	CXX=/nonexistent build/wheel/bin/fastweights explain delta-rnn
	rm -rf build/wheel

# torch comes first and alone: what follows must find it installed, and not choose another build of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$(TORCH)" numpy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[compiler,train,cluster,nlp,rl,torchrl,transformers,onnx,docs,gpu,dev]"
	touch $(READY)

clean:
	rm -rf .venv
