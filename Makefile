# Two commands do everything, set-up included:
#   make bench             the comparison table of a tiny llama on this machine
#   make test              ruff, mypy and the tests
# Pass overrides with ARGS:  make bench ARGS="model=bert 'mode=[eager,inductor]'"

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
PYTEST_ARGS ?= -n 2
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: bench test lint clean

bench: $(VENV)/.bench
	$(BIN)/python -m benchbench $(ARGS)

test: lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch comes first and pinned: a bare requirement would be free to take another build.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch==2.13.0
	touch $@

$(VENV)/.bench: $(VENV)/.torch pyproject.toml
	$(INSTALL) -e '.[models]'
	touch $@

# torch_npu has no build for some platforms; the tests over the simulated NPU are skipped there.
$(VENV)/.test: $(VENV)/.bench
	$(INSTALL) -e '.[models,test,dev]'
	$(INSTALL) -e '.[npu]' || echo "torch-npu: no build for this platform"
	touch $@

clean:
	rm -rf $(VENV) build dist
