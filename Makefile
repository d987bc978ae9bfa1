# make demo    a real small language model through the whole of SMART, on the CPU
# make test    what this machine can test in under an hour
# make test-long    the tests that take minutes each: pools under load, kills of multi-turn trainings
# make test-faults    the whole fault matrix: some 100 kills, full disks and the like
# make bench    the benchmarks of speed with a small model on the CPU in at most ten minutes, JSON files into build/bench
# All of them install what they need into .venv first. `make cuda` installs the set for an NVIDIA card instead.

VENV := .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin

.PHONY: demo test test-long test-faults bench lint install cuda clean

demo: install
	$(BIN)/reasoner run smart-demo

# Two workers, each a test file at a time: most of a test's time is a child process that starts.
test: install lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=25

test-long: install
	$(BIN)/python -m pytest -m long

# Every cell of the fault matrix and the cuts at every write (docs/faults.md); `make test` has the short form.
test-faults: install
	$(BIN)/python -m pytest -m "faults or crash" -n 2 --dist loadgroup --durations=0 tests/crash tests/flows/faults

# Speed on two cores says little of a card's: each line says what it can't show. Bars are not asked.
bench: install
	$(BIN)/python benchmarks/suite.py cpu --out build/bench

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(VENV)/.cpu

cuda: $(VENV)/.cuda

$(VENV)/.%: locks/%.lock locks/models.lock pyproject.toml scripts/install.sh
	bash scripts/install.sh $* "$(PYTHON)" $(VENV)

clean:
	rm -rf $(VENV) build *.egg-info
