# Everything runs in .venv, made on first use. Needs Python >= 3.11 and make, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all test-engines test-extras slow-tests lint types fuzz check-resume soak check-studies bench docs clean

demo: $(VENV)/.core
	$(BIN)/cantons demo

# One process per core: compiling is most of the work. JOBS=0 runs the tests in this one.
JOBS ?= auto
# `make test` leaves out the slowest tests, which tests/slow.txt names: continuous integration runs all of them.
test: lint types
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --quick

test-all: lint types
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Time all tests, on a quiet machine and without compiled programs of earlier runs, and write tests/slow.txt anew.
slow-tests: $(VENV)/.test
	rm -rf .jax_cache
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --find-slow

lint: $(VENV)/.test
	$(BIN)/ruff check .

types: $(VENV)/.test
	$(BIN)/mypy

# What needs a cluster: the same numbers as the local engine, and processes that are killed. Ray is installed for it.
test-engines: $(VENV)/.engines
	$(BIN)/python -m pytest -n 0 tests/engines

# What needs PyTorch, with torchax, Vowpal Wabbit, or ONNX, which are installed for it.
test-extras: $(VENV)/.extras
	$(BIN)/python -m pytest -n 0 tests/pytorch tests/local_models tests/algorithm/test_algorithm_vowpal.py \
		tests/problem/test_problem_logged_vowpal.py tests/study/test_study_leave.py -k "torch or vowpal or onnx"

# Mutated studies, files, run folders and command lines: each works or is refused in a sentence. ONLY=study: one kind.
CASES ?= 10000
SEED  ?= 0
fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz/run.py --cases $(CASES) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

# Kill runs, sweeps and comparisons at 100 of their file operations, resume them, and compare the ends bit for bit.
KILLS ?= 100
check-resume: $(VENV)/.test
	$(BIN)/python tests/study/kill_and_resume.py --kills $(KILLS)

# Runs, sweeps, reports and resumes in random order: memory, open files and threads must not grow.
MINUTES ?= 20
soak: $(VENV)/.test
	$(BIN)/python tests/fuzz/soak.py --minutes $(MINUTES) --seed $(SEED)

# Every script of studies/ in its small sizes.
check-studies: $(VENV)/.test
	STUDIES=all $(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/study/test_studies.py

# Our rounds beside those of pfl-research, FedJAX and Flower, each in an environment of its own (benchmarks/.venvs).
bench: $(VENV)/.core
	$(BIN)/python benchmarks/peers.py

# The documentation as a site in build/site. A link or an anchor that leads nowhere, and a page out of reach, is an error.
docs: $(VENV)/.test
	$(BIN)/python docs/make_site.py
	@echo "open build/site/index.html"

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cantons needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/pip pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

$(VENV)/.engines: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,ray]'
	touch $@

$(VENV)/.extras: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,torch,vw,onnx]'
	touch $@

clean:
	rm -rf $(VENV) .jax_cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
