PYTHON ?= $(firstword $(foreach candidate,python3.11 python3.12 python3,$(if $(shell $(candidate) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && echo yes),$(candidate))))
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation
DEMO := demo

.PHONY: demo demo-seeds web test test-slow test-real test-web campaign check format docs lock dist clean help

demo: $(VENV)/.installed  ## train, test and report on synthetic scans (the default target)
	rm -rf $(DEMO)
	$(BIN)/graftseg demo --out $(DEMO)

demo-seeds: $(VENV)/.installed  ## run the demo with ten seeds
	rm -rf $(DEMO)-seeds
	$(BIN)/graftseg demo --seeds 10 --out $(DEMO)-seeds

web: $(VENV)/.web  ## build the pages of graftseg view and graftseg annotate
	$(BIN)/python tools/web.py

# Python may write bytecode: pytest then rewrites the assertions of a file only once, and collecting takes half the time.
test: $(VENV)/.installed  ## run all tests except slow tests and tests on benchmark data
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow and not real_data and not web"

test-slow: $(VENV)/.installed  ## run the slow tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal -q -m "slow and not real_data and not web"

test-real: $(VENV)/.installed  ## run the tests on benchmark data, if it is present
	$(BIN)/python -m pytest -n 2 -q -m real_data

# Chromium without a GPU may be slow, so failed tests are tried once more.
test-web: web  ## test the pages in Chromium, if it is installed
	$(BIN)/python tools/web.py test
	$(BIN)/python -m pytest -q -m web || $(BIN)/python -m pytest -q -m web --last-failed --last-failed-no-failures none

campaign: $(VENV)/.installed  ## attack the program in many ways and write the counts to docs/explanation/reliability.md
	PYTHONPATH=tests OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= $(BIN)/python tests/campaign/campaign.py --page docs/explanation/reliability.md

check: $(VENV)/.installed  ## check style, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed  ## format the code and apply ruff's automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed  ## update the generated pages: tables, methods, errors, licenses
	$(BIN)/graftseg table all --markdown docs/reference/tables.md
	$(BIN)/python docs/method_pages.py
	$(BIN)/python docs/errors.py > docs/reference/errors.md
	$(BIN)/python docs/licenses.py > docs/reference/licenses.md

lock:  ## pin the newest allowed versions with hashes (KEEP=--keep renews the hashes only)
	$(PYTHON) -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --upgrade pip packaging
	$(VENV)-lock/bin/python tools/lock.py $(KEEP)
	rm -rf $(VENV)-lock

dist: $(VENV)/.installed  ## build the sdist and the wheel twice and compare the bytes
	$(BIN)/python tools/dist.py

clean:  ## remove the environment, the demo and all caches
	rm -rf $(VENV) $(DEMO) $(DEMO)-seeds dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Among several builds of torch, pip prefers one whose hash the index states. So torch is chosen first, then verified.
$(VENV)/.installed: pyproject.toml $(wildcard requirements/*.txt)
	@test -n "$(PYTHON)" || { echo "graftseg needs Python 3.11 or newer; install it or run: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installing graftseg into $(VENV). This takes some minutes and 3 GB, once."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r requirements/build.txt
	$(INSTALL) --require-hashes -r requirements/tested.txt
	@echo "Installing torch."
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest $(VENV)/torch "$$(grep -o '^torch==[^ ]*' requirements/torch.txt)"
	$(INSTALL) --require-hashes --no-index --find-links $(VENV)/torch -r requirements/torch.txt
	rm -r $(VENV)/torch
	$(BIN)/python -m pip check >/dev/null || $(INSTALL) --require-hashes -r requirements/cuda.txt
	$(INSTALL) --editable .
	$(BIN)/python -m pip check
	touch $@

$(VENV)/.web: $(VENV)/.installed requirements/web.txt
	$(INSTALL) --require-hashes -r requirements/web.txt
	touch $@
