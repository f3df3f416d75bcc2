# `make train` and `make test` do all their own set-up, in .venv.
PYTHON := python$(shell cat .python-version)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export UV_COMPILE_BYTECODE := 1
export TF_CPP_MIN_LOG_LEVEL := 2
# What is in the package; compiled here, since every process of a run would do so where Python writes no bytecode.
MODULES := *.py agents benchmarks cli environments files launch messages networks replay runtime settings studies
# oneDNN prepares each kernel on its first use, which is a fifth of the fast suite's time; the slow suite runs with it.
# Bytecode is kept, of tests too: to rewrite the assertions of one module takes 20 ms, of all in both workers 22 s.
FAST := TF_ENABLE_ONEDNN_OPTS=0 PYTHONDONTWRITEBYTECODE=
# Three modules of tests at a time keep two cores busy: tests also wait, for processes that start and for time limits.
# A test that hangs fails, and the others run.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder --timeout=300

# Of `make test-most`: the day whose cases run, and minutes after which no further test begins.
DATE ?= $(shell date +%F)
BUDGET ?= 38
# Of `make test-slow`: a part of the tests.
SHARD ?= 1/1

.PHONY: install train test test-fast test-random test-most test-slow test-gpu lint format docs bench

# --inexact keeps the extras and packages that a user has added.
install: $(INSTALLED)

$(INSTALLED): pyproject.toml uv.lock .python-version
	@command -v $(PYTHON) > /dev/null || { echo "make install needs $(PYTHON), and there is none on PATH: install it" \
		"(uv python install $$(cat .python-version), pyenv, or your system's packages), or build examples/docker/Dockerfile"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "'$$(cat .python-version)'")' || { \
		echo "make install needs Python $$(cat .python-version), and $(PYTHON) is another one: leave PYTHON out"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv sync --locked --quiet --inexact --extra atari --extra mujoco --extra ray --extra serve --extra optuna --extra pettingzoo --extra minari --extra onnx
	$(BIN)/python -m compileall -q $(MODULES)
	touch $@

train: install
	$(BIN)/callboard train --recipe impala-cartpole

lint: install
	ln -sfn . callboard
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p callboard

# Lint and types keep one core busy for most of a minute, so the tests begin beside them.
test: install
	$(MAKE) --no-print-directory -j2 lint test-fast

test-fast: install
	$(FAST) $(BIN)/python -m pytest -m "not slow" $(PARALLEL) $(REPEAT)

# The same in an order of its own, by a seed that it prints.
test-random: install
	$(FAST) $(BIN)/python -m pytest -m "not slow" $(PARALLEL) -p randomly

# Of the slow tests the cases of a day, and what fails once more, alone.  RECORD=--record-seconds notes their durations.
test-most: install
	$(BIN)/python -m pytest --most=$(DATE) --budget=$(BUDGET) $(RECORD) --repeat-failed -n 2 --dist loadfile --no-loadscope-reorder --timeout=1200

# All tests, or with SHARD=3/8 the third of eight parts.
test-slow: install
	$(BIN)/python -m pytest --shard=$(SHARD)

# On a machine with a GPU; elsewhere they are skipped.
test-gpu: install
	$(BIN)/python -m pytest -m gpu -rs

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Only this target installs what it needs.
docs: $(INSTALLED)-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml
	@echo "The site is in build/docs/html: open build/docs/html/index.html in a browser."

$(INSTALLED)-docs: $(INSTALLED)
	$(BIN)/uv sync --locked --quiet --inexact --group docs
	touch $@

# About an hour, and half an hour more for each repeat where peers are installed (benchmarks/peers/setup); nothing else
# should run on the machine meanwhile.
bench: install
	$(BIN)/callboard-bench run
	$(BIN)/callboard-bench plot
