# Two commands for a newcomer: `make demo` runs the main job, `make check` everything that must pass.
# Both need nothing but Python 3.11-3.13 with venv, make, and the network for what pip installs.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.magus-dev
USER   := $(VENV)/.magus
CODE   := $(VENV)/.magus-machine-code
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
SOURCES := $(shell find grammar compiler simcore runtime advisor tui examples -name '*.py' -o -name '*.lark' -o -name '*.mgs' -o -name '*.tcss' -o -name '*.model' -o -name '*.json' -o -name '*.toml' 2>/dev/null)

# Without what Python has compiled, each process of the tests would compile it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo docs check check-slow check-extras format lint types layers test test-all nightly slowest coverage bench train picture dist clean

help:
	@echo "make demo    advice for the up-projection of Llama-3.1-70B on 8 x MI300X"
	@echo "make check   format, lint, types, import contracts, tests: also alone, as make lint, types, layers, test"
	@echo "make check-slow  the tests that make check leaves out because they take long"
	@echo "make check-extras  the tests that need Triton, PyTorch, HolisticTraceAnalysis and InfraGraph; Linux"
	@echo "make test-all  the tests with the slow ones, and thirty times as many drawn examples"
	@echo "make nightly   test-all, and every core against the oracle at scale"
	@echo "make slowest   CPU seconds of the tests that make check runs, and of the fifty that take most"
	@echo "make coverage  branches that the tests take, by room; ROOM=simcore/fold: with its tests alone"
	@echo "make bench   benchmarks, as text"
	@echo "make train   fit the shipped model, which proposes schedules, to its table"
	@echo "make docs    the documentation as a site, in build/site"
	@echo "make picture   the pictures of docs drawn anew"
	@echo "make format  rewrite the code in its form"
	@echo "make clean   remove what make has built"
	@echo "make dist    sdist and wheel in dist/, and whether PyPI would take them"

# The package is installed, not linked: types, data files and import contracts are checked as users get them.
# Python compiles what is imported; compiling all that is installed takes longer than all else here.
define INSTALL
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
@$(BIN)/python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
  || { echo "Magus needs Python 3.11 to 3.13; say for instance: make PYTHON=python3.12"; exit 1; }
@rm -rf build
$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
endef

# What answers need; the tools of developers are no part of it.
$(USER): pyproject.toml setup.py __init__.py $(SOURCES)
	$(INSTALL) .
	@touch $@

$(STAMP): pyproject.toml setup.py __init__.py $(SOURCES)
	$(INSTALL) '.[dev]'
	@touch $(USER) $@

# Once: processes of the tests that find none would each make their own.
$(CODE): $(STAMP) tests/helpers/make_machine_code.py
	$(BIN)/python -m tests.helpers.make_machine_code
	@touch $@

demo: $(USER)
	$(BIN)/magus advise examples/llama70b_tp8_mi300x.mgs

# One after the other would leave cores idle: types are checked by one process.
check: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint types layers test

# With the draws of make check, for a change that is about to be merged; make nightly draws more.
check-slow: $(CODE)
	$(PYTEST) -m slow

# A venv of its own: Triton and PyTorch take some 2 GB, HolisticTraceAnalysis brings Jupyter, and nothing else needs them.
check-extras: EXTRAS := .venv-extras
check-extras:
	@test -x $(EXTRAS)/bin/python || $(PYTHON) -m venv $(EXTRAS)
	$(EXTRAS)/bin/python -m pip install --quiet --disable-pip-version-check '.[dev,peers,torch,triton]' $(PIP_OPTIONS)
	$(EXTRAS)/bin/python -m pytest -n auto --dist worksteal tests/compiler/targets tests/compiler/machine tests/advisor/oracle tests/advisor/drawing

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy -p magus
	$(BIN)/mypy --explicit-package-bases tests benchmarks

layers: $(STAMP)
	$(BIN)/lint-imports

test: $(CODE)
	$(PYTEST) -m "not slow"

test-all: $(CODE)
	$(PYTEST) --hypothesis-profile deep

nightly: test-all
	$(BIN)/python -m benchmarks.exactness

slowest: $(CODE)
	$(PYTEST) -m "not slow" -p tests.helpers.cpu_seconds

# What workers and commands run as processes of their own is not seen; what numba compiles is left out.
# ROOM=simcore or ROOM=simcore/fold runs the tests of that layer or room alone, and measures no other layer.
coverage: $(CODE)
	$(PYTEST) -m "not slow" --cov=magus$(addprefix .,$(firstword $(subst /, ,$(ROOM)))) --cov-report json:coverage.json tests/$(ROOM)
	$(BIN)/python tests/helpers/coverage_by_room.py coverage.json

bench: $(STAMP)
	$(BIN)/python -m benchmarks.simcore
	$(BIN)/python -m benchmarks.compiled
	$(BIN)/python -m benchmarks.exactness
	$(BIN)/python -m benchmarks.schedules
	$(BIN)/python -m benchmarks.layers
	$(BIN)/python -m benchmarks.layer_floor
	$(BIN)/python -m benchmarks.advisor
	$(BIN)/python -m benchmarks.api
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.answers
	$(BIN)/python -m benchmarks.tui
	$(BIN)/python -m benchmarks.te_tables
	$(BIN)/python -m benchmarks.synthesis
	$(BIN)/python -m benchmarks.moe
	$(BIN)/python -m benchmarks.steps
	$(BIN)/python -m benchmarks.cluster --questions 1000

# Every warning fails: a link that leads nowhere is one.
docs: $(USER)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going docs build/site
	@echo "build/site/index.html"

train: $(STAMP)
	$(BIN)/magus train benchmarks/data/proposals.npz --out advisor/learned/model

picture: $(STAMP)
	$(BIN)/python -m tests.helpers.tui.picture
	$(BIN)/magus simulate examples/gemm_rs_h100.mgs --schedule 'pipelined(chunks=16, engine=dma(7))' --granularity packet --svg docs/timeline.svg > /dev/null
	$(BIN)/magus simulate examples/layers/llama70b_backward.mgs --schedule late --svg docs/layer_timeline.svg > /dev/null
	$(BIN)/magus simulate examples/steps/llama3_70b_128.mgs --svg docs/steps_timeline.svg > /dev/null
	$(BIN)/magus advise examples/four_systems.mgs --bespoke 0 --svg docs/systems.svg > /dev/null
	for each in serial halves grouped; do $(BIN)/magus simulate examples/moe/experts_v4_pro.mgs --set T=2048 --schedule $$each --granularity packet --svg docs/moe_$$each.svg > /dev/null || exit 1; done

dist: $(STAMP)
	@rm -rf build dist *.egg-info
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) .venv-extras build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage coverage.json
