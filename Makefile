# Two commands do everything: `make demo` and `make test`. Both install into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types install clean

demo: install
	$(BIN)/sddm demo --out demo

# Where CI is set, the tests also measure which lines they reach, and fail below 95%. It takes a third more time.
test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal $(if $(CI),--cov --cov-report=term)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) demo .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
