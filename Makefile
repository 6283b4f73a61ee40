# make run | make test: all set-up included, on a machine with Python >= 3.11, pip and venv. make quick: while you work.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
TOGETHER := $(MAKE) --no-print-directory --keep-going --jobs=3 --output-sync=line
CHANGED := git diff --name-only --diff-filter=d $(or $(BASE),HEAD) -- '*.py'; git ls-files --others --exclude-standard -- '*.py'
TYPED ?= src
TOOLS := $(addprefix tests/unit/,toolcrib_queue toolcrib_tools toolcrib_work)
CRIB := $(addprefix tests/unit/toolcrib/,cli crib server)
PEERS := $(addprefix tests/unit/toolcrib/,jobs net policy sources store telemetry)
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
unexport PYTHONDONTWRITEBYTECODE # every process that is started would compile all it imports anew
.PHONY: run quick test lint style types types-changed long wheel image durable docs frameworks clients clients-full conformance faults soak site bench eval clean

run: .venv/ready-to-run
	$(BIN)/toolcrib demo $(if $(ONCE),--once)
quick: .venv/ready-to-test
	$(TOGETHER) --jobs=6 style types-changed $(addprefix unit-,tools crib peers rest)
test: .venv/ready-to-test
	$(TOGETHER) --jobs=4 types $(addprefix suite-,rest crib whole peers tools) style
lint: .venv/ready-to-test
	$(TOGETHER) style types TYPED=
style: .venv/ready-to-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
types: .venv/ready-to-test
	$(BIN)/pyright $(TYPED)
types-changed: .venv/ready-to-test
	@packages=$$({ $(CHANGED); } | xargs -r -n1 dirname | grep -E '^(src|tests)/.' | sort -u); \
	if [ "$$packages" ]; then $(BIN)/pyright $$(ls -d $$(printf '%s/*.py ' $$packages)); else echo 'types: no changed package (BASE=branch compares with a branch)'; fi
unit-tools suite-tools: PART = $(TOOLS)
unit-crib suite-crib: PART = $(CRIB)
unit-peers suite-peers: PART = $(PEERS)
unit-rest suite-rest: PART = $(addprefix --ignore ,$(TOOLS) $(CRIB) $(PEERS)) tests/unit tests/test_architecture.py
suite-whole: PART = tests/contract tests/scenarios tests/seeds tests/test_extension_cost.py
unit-% suite-%: .venv/ready-to-test # a part imports only its tests, every worker of xdist all; it computes while others wait
	$(BIN)/pytest -q $(if $(filter unit-%,$@),-m 'not process and not slow and not long' --ignore tests/unit/toolcrib/integrations,-m 'not long') $(PART)
long: .venv/compiled
	$(BIN)/pytest --numprocesses auto --dist worksteal -m long
durable docs frameworks clients conformance faults: .venv/compiled
	$(BIN)/pytest $(if $(filter durable docs,$@),--numprocesses auto,$(if $(filter faults,$@),--numprocesses 2 --dist loadfile)) tests/$@
clients-full: .venv/compiled
	$(BIN)/pytest tests/clients --full-size
soak: .venv/compiled
	$(BIN)/pytest tests/faults tests/conformance tests/seeds tests/scenarios tests/unit/toolcrib/policy/shell/test_fuzz.py --full-size
site: .venv/ready-to-test
	$(BIN)/zensical build --strict
bench: .venv/compiled
	missed=0; for name in dispatch parallel startup gateway growth graph search sources store jobs agent_queue commands tools wire; do $(BIN)/python bench/$$name.py || missed=1; done; exit $$missed
eval: .venv/ready-to-test
	PYTHONPATH=tests $(BIN)/python -m scenarios '$(MODEL)' --profiles '$(PROFILES)' --cases '$(CASES)' --limit '$(LIMIT)'

DIST ?= dist
IMAGE ?= toolcrib
ENGINE ?= $(or $(shell command -v docker || command -v podman),docker)
wheel: .venv/ready-to-run # for `uvx --from`, `uv tool install`, `pipx install`, `pip install --find-links` (docs/how-to/install.md)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir '$(DIST)' .
	@ls '$(DIST)'/toolcrib-*.whl
image:
	$(ENGINE) build $(if $(filter docker,$(notdir $(ENGINE))),,--format docker) --tag '$(IMAGE)' .

clean:
	rm -rf .venv .cache build dist .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv .venv
.venv/ready-to-run: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[console,samples,tokens]' && touch $@
.venv/ready-to-test: pyproject.toml constraints.txt | $(BIN)/python # half of the pins on each core, then pip resolves the rest while what all suites import is compiled
	for half in 0 1; do awk "NR % 2 == $$half" constraints.txt >.venv/$$half.txt; $(PIP) --no-compile --no-deps --requirement .venv/$$half.txt & done; wait
	$(BIN)/python -m compileall -qq src $(addprefix .venv/lib/*/site-packages/,_pytest anthropic openai pydantic pydantic_ai) & $(PIP) --no-compile --editable '.[bench,dev,docs,samples,test-peers,tokens]' && wait && touch .venv/ready-to-run $@
.venv/compiled: .venv/ready-to-test # in a sandbox, where no bytecode can be written, each process would compile what it imports
	$(BIN)/python -m compileall -qq -j 0 .venv/lib || true; touch $@ # a package may bring what is no Python of this version
