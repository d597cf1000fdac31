# The two commands a new machine needs: `make quickstart` and `make test`. Each makes its own .venv when there is none.
PYTHON ?= python3
BIN := .venv/bin
# Processes that share the tests, a file at a time; 0 runs them one after the other.
JOBS ?= 2

.PHONY: quickstart test clean

quickstart: .venv/installed
	$(BIN)/pmeta quickstart

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# Stamped after a whole install, so that an interrupted one is taken up again.
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv build *.egg-info runs/quickstart
