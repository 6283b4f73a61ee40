# make run | make test: all set-up included, on a machine with Python >= 3.11, pip and venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
unexport PYTHONDONTWRITEBYTECODE # every process that is started would compile all it imports anew
.PHONY: run test lint durable docs frameworks clients conformance faults soak bench eval clean

run: .venv/ready-to-run
	$(BIN)/toolcrib demo $(if $(ONCE),--once)

test: lint
	$(BIN)/pytest --numprocesses auto --dist worksteal

lint: .venv/ready-to-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/pyright

durable docs frameworks clients conformance faults: .venv/ready-to-test
	$(BIN)/pytest $(if $(filter durable docs frameworks,$@),--numprocesses auto) tests/$@
soak: .venv/ready-to-test
	$(BIN)/pytest tests/faults tests/conformance --full-size
bench: .venv/ready-to-test
	set -e; for name in dispatch parallel startup gateway search sources store jobs tools; do $(BIN)/python bench/$$name.py; done
eval: .venv/ready-to-test
	PYTHONPATH=tests $(BIN)/python -m scenarios '$(MODEL)' --profiles '$(PROFILES)' --cases '$(CASES)' --limit '$(LIMIT)'

clean:
	rm -rf .venv .cache build dist .pytest_cache .ruff_cache .import_linter_cache

.venv/ready-to-run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) '.[samples,tokens]'
	touch $@

.venv/ready-to-test: .venv/ready-to-run
	$(PIP) '.[bench,dev,samples,test-peers,tokens]'
	touch $@
