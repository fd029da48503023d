# Two commands, from a bare clone: `make demo` trains a language model on a book, `make test` runs all tests.
# Both set up what they need in .venv, once; after that they need no network.

PYTHON ?= python3
BIN = .venv/bin
READY = .venv/ready

.PHONY: demo test lint format generate site bench clean

demo: $(READY)
	$(BIN)/fastweights train oz

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

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
	$(BIN)/python benchmarks/scan.py --json benchmarks/scan.json
	$(BIN)/python benchmarks/tasks.py --json benchmarks/tasks.json
	$(BIN)/python benchmarks/episodes.py --json benchmarks/episodes.json

# torch comes first and alone: what follows must find it installed, and not choose another build of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[train,cluster,nlp,rl,torchrl,transformers,onnx,docs,gpu,dev]"
	touch $(READY)

clean:
	rm -rf .venv
