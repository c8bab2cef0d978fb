# Each target makes the virtual environment it needs and says what it does.
#
# PYTHON chooses the interpreter, 3.10 or newer. The environments live under .venv:
#   .venv            lm_eval with its base dependencies; the command is .venv/bin/lm-eval
#   .venv/test       what `make test` needs: the base, the development tools, torch
#   .venv/lint       ruff and mypy (`make lint`, part of `make test`)
#   .venv/base-3.X   the base and the development tools, no torch (`make test-base`)
#   .venv/lowest     the oldest versions that pyproject.toml allows (`make test-lowest`)
#
# constraints/*.txt pin every package of these environments, so that a new release of one cannot
# break the targets; `make pins` brings the pins up to date.
#
# torch: on Linux the one on PyPI is the CUDA build, which runs without a GPU but takes 5 GB of
# disk. Where pip finds a CPU build of the same version (2.13.0+cpu, for instance with
# PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL), it takes that: 0.7 GB.

PYTHON ?= python3
PIP_QUIET = -m pip install --quiet --disable-pip-version-check
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
WHERE = The command is .venv/bin/lm-eval; 'source .venv/bin/activate' puts it on the PATH.
# Numpy's products in the tests are small: one thread per process is fastest.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	LMEVAL_PUBLISHED_TASKS=$(CURDIR)/.venv/published-tasks/lm_eval/tasks

.PHONY: help install demo test test-base test-lowest lint pins bench demo-model clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# A new environment, or the one that is there if it was made with the same Python.
define new_environment
	@[ -n "$(VERSION)" ] || { echo "$(PYTHON) does not run; name a Python: make … PYTHON=python3.11"; exit 2; }
	@[ -e $(1)/bin/python$(VERSION) ] || rm -rf $(1)/bin $(1)/include $(1)/lib $(1)/lib64 $(1)/ready-*
	@$(PYTHON) -m venv $(1)
endef

.venv/ready-$(VERSION): pyproject.toml constraints/test.txt
	@echo "==> Installing lm_eval (base dependencies only, no torch) into .venv"
	$(call new_environment,.venv)
	@.venv/bin/python $(PIP_QUIET) --constraint constraints/test.txt --editable .
	@touch $@

install: .venv/ready-$(VERSION)  ## install lm_eval into .venv
	@echo "==> $(WHERE)"

demo: .venv/ready-$(VERSION)  ## evaluate the embedded model on the embedded benchmark
	@echo "==> lm-eval run --model demo --tasks demo"
	@.venv/bin/lm-eval run --model demo --tasks demo
	@echo "==> $(WHERE)"

.venv/test/ready-$(VERSION): pyproject.toml requirements-test.txt constraints/test.txt
	@echo "==> Installing lm_eval and what its tests need (torch for the comparison) into .venv/test"
	$(call new_environment,.venv/test)
	@.venv/test/bin/python $(PIP_QUIET) --constraint constraints/test.txt \
		--requirement requirements-test.txt --editable '.[dev]'
	@touch $@

.venv/base-$(VERSION)/ready-$(VERSION): pyproject.toml constraints/test.txt
	@echo "==> Installing lm_eval and the development tools, no torch, into .venv/base-$(VERSION)"
	$(call new_environment,.venv/base-$(VERSION))
	@.venv/base-$(VERSION)/bin/python $(PIP_QUIET) --constraint constraints/test.txt \
		--editable '.[dev]'
	@touch $@

.venv/lowest/ready-$(VERSION): pyproject.toml constraints/lowest.txt
	@echo "==> Installing the oldest versions that pyproject.toml allows into .venv/lowest"
	$(call new_environment,.venv/lowest)
	@.venv/lowest/bin/python $(PIP_QUIET) --constraint constraints/lowest.txt \
		--editable '.[dev,ifeval,math,rouge]'
	@touch $@

# The parity tests read the task files of the published wheel; without PyPI they are skipped.
define published_tasks
	@[ -d .venv/published-tasks/lm_eval/tasks ] || { \
		echo "==> Fetching the published task files for the parity tests"; \
		$(1)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
			--dest .venv/published-tasks lm-eval==0.4.13 \
		&& $(1)/bin/python tools/unpack_tasks.py .venv/published-tasks; } \
		|| echo "==> They cannot be fetched; the parity tests are skipped."
endef

test: .venv/test/ready-$(VERSION) lint  ## install, check, run the tests
	$(call published_tasks,.venv/test)
	@echo "==> Running the tests in parallel (Python $(VERSION))"
	@$(PYTEST) .venv/test/bin/python -m pytest -n auto

test-base: .venv/base-$(VERSION)/ready-$(VERSION)  ## run the tests without torch
	$(call published_tasks,.venv/base-$(VERSION))
	@echo "==> Running the tests without torch (Python $(VERSION))"
	@$(PYTEST) .venv/base-$(VERSION)/bin/python -m pytest -n auto

test-lowest: .venv/lowest/ready-$(VERSION)  ## tests with the oldest versions (PYTHON=python3.10)
	$(call published_tasks,.venv/lowest)
	@echo "==> Running the tests with the oldest versions that are allowed (Python $(VERSION))"
	@$(PYTEST) .venv/lowest/bin/python -m pytest -n auto

# Types depend on numpy's stubs, and numpy's versions on Python's. So that the check says the same on
# every Python, it reads the stubs of one version, from the wheel for Python 3.11 (never imported).
STUBS = numpy==2.4.6

.venv/lint/ready-$(VERSION): requirements-lint.txt Makefile
	@echo "==> Installing ruff, mypy and the types they read into .venv/lint"
	$(call new_environment,.venv/lint)
	@.venv/lint/bin/python $(PIP_QUIET) --requirement requirements-lint.txt
	@.venv/lint/bin/python $(PIP_QUIET) --no-deps --upgrade --ignore-requires-python \
		--python-version 3.11 --only-binary :all: \
		--target .venv/lint/lib/python$(VERSION)/site-packages $(STUBS)
	@touch $@

lint: .venv/lint/ready-$(VERSION)  ## ruff and the strict type check
	@echo "==> Checking style (ruff) and types (mypy --strict)"
	@.venv/lint/bin/ruff check .
	@.venv/lint/bin/ruff format --check .
	@.venv/lint/bin/mypy

.venv/published/ready-$(VERSION):
	@echo "==> Installing the published harness to compare with into .venv/published"
	$(call new_environment,.venv/published)
	@.venv/published/bin/python $(PIP_QUIET) lm-eval[hf]==0.4.13
	@touch $@

# uv is asked for versions only; it is installed nowhere else.
.venv/pins/ready-$(VERSION):
	$(call new_environment,.venv/pins)
	@.venv/pins/bin/python $(PIP_QUIET) uv
	@touch $@

PIN = .venv/pins/bin/uv pip compile --quiet --python-version 3.10 --no-annotate --no-header
PINNED = by 'make pins', which made this file; edit pyproject.toml or requirements-test.txt instead.

pins: .venv/pins/ready-$(VERSION)  ## pin the newest versions for the tests, and the oldest
	@echo "==> Writing constraints/test.txt and constraints/lowest.txt"
	@{ echo "# The newest versions for each Python, $(PINNED)"; \
		$(PIN) --universal --extra dev pyproject.toml requirements-test.txt; \
		} > .venv/pins/test.txt && mv .venv/pins/test.txt constraints/
	@{ echo "# The oldest versions that pyproject.toml allows on Python 3.10, $(PINNED)"; \
		$(PIN) --resolution lowest-direct pyproject.toml \
			--extra dev --extra ifeval --extra math --extra rouge; \
		} > .venv/pins/lowest.txt && mv .venv/pins/lowest.txt constraints/

bench: .venv/test/ready-$(VERSION) .venv/published/ready-$(VERSION)  ## measure speed beside the published harness
	@echo "==> Measuring both harnesses side by side"
	@.venv/test/bin/python benchmarks/start_up.py
	@.venv/test/bin/python benchmarks/catalogue.py
	@.venv/test/bin/python benchmarks/documents.py
	@.venv/test/bin/python benchmarks/scoring.py
	@[ ! -d ../shared/data ] || .venv/test/bin/python benchmarks/huggingface.py

demo-model: .venv/test/ready-$(VERSION)  ## train the embedded model anew (a GPU, or most of an hour)
	@echo "==> Generating the little world and training the embedded model on it"
	@.venv/test/bin/python -m tools.demo.train

clean:  ## remove the environments and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
