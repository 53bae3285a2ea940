# make demo: the whole pipeline on synthetic scans.   make test: the tests.   make check: style, types, layers.
# make test-real: tests on benchmark data, where it is there.   make docs: the tables of the docs, from results/.
PYTHON ?= $(firstword $(foreach candidate,python3.11 python3.12 python3,$(if $(shell $(candidate) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && echo yes),$(candidate))))
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo

.PHONY: demo demo-seeds docs test test-real check format clean

demo: $(VENV)/.installed
	rm -rf $(DEMO)
	$(BIN)/graftseg demo --out $(DEMO)

demo-seeds: $(VENV)/.installed
	rm -rf $(DEMO)-seeds
	$(BIN)/graftseg demo --seeds 10 --out $(DEMO)-seeds

docs: $(VENV)/.installed
	$(BIN)/graftseg table all --markdown docs/reference/tables.md
	$(BIN)/python docs/method_pages.py

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not real_data"

test-real: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 -q -m real_data

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "graftseg needs Python 3.11 or newer; install it or run: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) $(DEMO)-seeds .mypy_cache .ruff_cache .pytest_cache .hypothesis
