# Each target makes the virtual environment it needs and says what it does.
# PYTHON chooses the interpreter; the environments live under .venv/.

PYTHON ?= python3
PIP_QUIET = -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test lint bench demo-model clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/demo/ready: pyproject.toml
	@echo "==> Installing lm_eval (base dependencies only, no torch) into .venv/demo"
	@$(PYTHON) -m venv .venv/demo
	@.venv/demo/bin/python $(PIP_QUIET) --editable .
	@touch $@

demo: .venv/demo/ready  ## evaluate the embedded model on the embedded benchmark
	@echo "==> lm-eval run --model demo --tasks demo"
	@.venv/demo/bin/lm-eval run --model demo --tasks demo

.venv/test/ready: pyproject.toml requirements-test.txt
	@echo "==> Installing lm_eval and what its tests need (torch for the comparison) into .venv/test"
	@$(PYTHON) -m venv .venv/test
	@.venv/test/bin/python $(PIP_QUIET) --requirement requirements-test.txt --editable '.[dev]'
	@touch $@

# The parity tests read the task files of the published wheel; without PyPI they are skipped.
.venv/published-tasks/lm_eval/tasks: .venv/test/ready
	@echo "==> Fetching the published task files for the parity tests"
	@-.venv/test/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
		--dest .venv/published-tasks lm-eval==0.4.13 \
		&& .venv/test/bin/python tools/unpack_tasks.py .venv/published-tasks

test: .venv/test/ready .venv/published-tasks/lm_eval/tasks lint  ## install, check, run the tests
	@echo "==> Running the tests in parallel"
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
		LMEVAL_PUBLISHED_TASKS=$(CURDIR)/.venv/published-tasks/lm_eval/tasks \
		.venv/test/bin/python -m pytest -n auto

lint: .venv/test/ready  ## ruff and the strict type check
	@echo "==> Checking style (ruff) and types (mypy --strict)"
	@.venv/test/bin/ruff check .
	@.venv/test/bin/ruff format --check .
	@.venv/test/bin/mypy

.venv/published/ready:
	@echo "==> Installing the published harness to compare with into .venv/published"
	@$(PYTHON) -m venv .venv/published
	@.venv/published/bin/python $(PIP_QUIET) lm-eval[hf]==0.4.13
	@touch $@

bench: .venv/test/ready .venv/published/ready  ## measure speed beside the published harness
	@echo "==> Measuring both harnesses side by side"
	@.venv/test/bin/python benchmarks/start_up.py
	@.venv/test/bin/python benchmarks/catalogue.py
	@.venv/test/bin/python benchmarks/documents.py
	@.venv/test/bin/python benchmarks/scoring.py
	@[ ! -d ../shared/data ] || .venv/test/bin/python benchmarks/huggingface.py

demo-model: .venv/test/ready  ## train the embedded model anew (a GPU, or most of an hour)
	@echo "==> Generating the little world and training the embedded model on it"
	@.venv/test/bin/python -m tools.demo.train

clean:  ## remove the environments and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
