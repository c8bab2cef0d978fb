# Each target creates the virtual environment that it needs, and prints what it does.
#
# PYTHON chooses the interpreter, 3.10 or newer. The environments live under .venv:
#   .venv            lm_eval with its base dependencies; the command is .venv/bin/lm-eval
#   .venv/test       base dependencies, development tools and torch (`make test`)
#   .venv/lint       ruff and mypy (`make lint`, part of `make test`)
#   .venv/base-3.X   base dependencies and development tools, no torch (`make test-base`)
#   .venv/docs       mkdocs-material, for the documentation site (`make docs`)
#   .venv/browser    base dependencies, pytest and Playwright (`make test-browser`)
#   .venv/ray        base dependencies, development tools and Ray (`make test-ray`)
#   .venv/kernels    Triton alone, to interpret our GPU kernels (`make test-kernels`)
#   .venv/lowest     the oldest versions that pyproject.toml allows (`make test-lowest`)
#
# constraints/*.txt pin every package of these environments, so that a new release of one cannot
# break the targets; `make pins` brings the pins up to date.
#
# torch: on Linux, PyPI has the CUDA build, which also runs without a GPU but takes 5 GB of disk. If
# pip finds a CPU build of the same version (2.13.0+cpu, for instance through PIP_FIND_LINKS or
# PIP_EXTRA_INDEX_URL), it installs that instead: 0.7 GB.

PYTHON ?= python3
PIP_QUIET = -m pip install --quiet --disable-pip-version-check
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
WHERE = The command is .venv/bin/lm-eval; 'source .venv/bin/activate' puts it on the PATH.
# The tests multiply small matrices only, so one numpy thread per process is fastest. They start many
# processes, which is much faster with compiled files, also where the environment turns those off.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	LMEVAL_PUBLISHED_TASKS=$(CURDIR)/.venv/published-tasks/lm_eval/tasks

.PHONY: help install demo test test-slow test-base test-lowest test-servers test-engines test-sandbox test-browser test-ray \
	test-kernels lint docs screenshots pins bench demo-model clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Creates an environment, or keeps the existing one if it has the same Python version.
define new_environment
	@[ -n "$(VERSION)" ] || { echo "Cannot run $(PYTHON). Name a Python interpreter: make … PYTHON=python3.11"; exit 2; }
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
	@echo "==> lm-eval run --model demo --tasks demo --log_samples --output_path out/demo"
	@.venv/bin/lm-eval run --model demo --tasks demo --log_samples --output_path out/demo
	@.venv/bin/lm-eval report out/demo --output_path out/demo/report.html
	@echo "==> The report of this run is $(CURDIR)/out/demo/report.html; open it in a browser."
	@echo "==> $(WHERE)"

.venv/test/ready-$(VERSION): pyproject.toml requirements-test.txt constraints/test.txt
	@echo "==> Installing lm_eval and the packages that its tests need, with torch, into .venv/test"
	$(call new_environment,.venv/test)
	@.venv/test/bin/python $(PIP_QUIET) --constraint constraints/test.txt \
		--requirement requirements-test.txt --editable '.[dev]'
	@touch $@

.venv/base-$(VERSION)/ready-$(VERSION): pyproject.toml constraints/test.txt
	@echo "==> Installing lm_eval and the development tools, without torch, into .venv/base-$(VERSION)"
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

# The parity tests read the task files of the published wheel; without access to PyPI they are skipped.
define published_tasks
	@[ -d .venv/published-tasks/lm_eval/tasks ] || { \
		echo "==> Fetching the published task files for the parity tests"; \
		$(1)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
			--dest .venv/published-tasks lm-eval==0.4.13 \
		&& $(1)/bin/python tools/unpack_tasks.py .venv/published-tasks; } \
		|| echo "==> Cannot download the published task files from PyPI; the parity tests are skipped."
endef

test: .venv/test/ready-$(VERSION) lint  ## install, lint, and run the tests
	$(call published_tasks,.venv/test)
	@echo "==> Running the tests in parallel (Python $(VERSION))"
	@$(PYTEST) .venv/test/bin/python -m pytest -n auto -m "not slow"

test-slow: .venv/test/ready-$(VERSION)  ## run the tests that start many processes, train or wait
	@echo "==> Running the slow tests in parallel (Python $(VERSION))"
	@$(PYTEST) .venv/test/bin/python -m pytest -n auto -m slow

test-base: .venv/base-$(VERSION)/ready-$(VERSION)  ## run the tests without torch
	$(call published_tasks,.venv/base-$(VERSION))
	@echo "==> Running the tests without torch (Python $(VERSION))"
	@$(PYTEST) .venv/base-$(VERSION)/bin/python -m pytest -n auto -m "not slow"

test-lowest: .venv/lowest/ready-$(VERSION)  ## run the tests with the oldest allowed versions (PYTHON=python3.10)
	$(call published_tasks,.venv/lowest)
	@echo "==> Running the tests with the oldest allowed versions (Python $(VERSION))"
	@$(PYTEST) .venv/lowest/bin/python -m pytest -n auto -m "not slow"

# The environments of the servers are kept outside the checkout (LMEVAL_TEST_SERVERS_DIR): the first
# run compiles llama.cpp and fills 5 GB of disk, later ones reuse them.
SERVERS = vllm llama-cpp transformers-serve

test-servers: .venv/test/ready-$(VERSION)  ## run the tests with real vLLM, llama.cpp and transformers
	@echo "==> Preparing the environments of the servers: $(SERVERS)"
	@.venv/test/bin/python -m tests.servers.environments $(SERVERS)
	@echo "==> Running the tests of models behind servers and of engines (Python $(VERSION))"
	@$(PYTEST) LMEVAL_TEST_SERVERS=1 .venv/test/bin/python -m pytest tests/servers

test-sandbox: .venv/test/ready-$(VERSION)  ## run all tests of the sandbox, as several users and with less isolation
	@echo "==> Running hostile programs under each mechanism (Python $(VERSION))"
	@$(PYTEST) LMEVAL_TEST_SANDBOX=1 .venv/test/bin/python -m pytest tests/sandbox

# The tests of the report and the viewer need no torch, but Playwright, Chromium (Debian's package,
# which is installed if this user may) and axe-core (from npm, kept in ~/.cache/lm_eval_test_browser).
.venv/browser/ready-$(VERSION): pyproject.toml requirements-browser.txt constraints/test.txt
	@echo "==> Installing lm_eval, pytest and Playwright into .venv/browser"
	$(call new_environment,.venv/browser)
	@.venv/browser/bin/python $(PIP_QUIET) --constraint constraints/test.txt \
		--requirement requirements-browser.txt --editable .
	@touch $@

test-browser: .venv/browser/ready-$(VERSION)  ## drive the report and the viewer in Chromium
	@status=0; .venv/browser/bin/python -m tests.browser.environment || status=$$?; \
	if [ $$status -eq 3 ]; then exit 0; elif [ $$status -ne 0 ]; then exit $$status; fi; \
	echo "==> Running the tests in a browser (Python $(VERSION))"; \
	$(PYTEST) LMEVAL_TEST_BROWSER=1 .venv/browser/bin/python -m pytest tests/browser

screenshots: .venv/browser/ready-$(VERSION)  ## make the pictures of docs/report.md again
	@.venv/browser/bin/python -m tests.browser.environment
	@.venv/browser/bin/python -m tools.screenshots

.venv/ray/ready-$(VERSION): pyproject.toml constraints/test.txt
	@echo "==> Installing lm_eval and Ray, without torch, into .venv/ray"
	$(call new_environment,.venv/ray)
	@.venv/ray/bin/python $(PIP_QUIET) --constraint constraints/test.txt --editable '.[dev,ray]'
	@touch $@

test-ray: .venv/ray/ready-$(VERSION)  ## run the tests that need a Ray cluster, which they start
	@echo "==> Running the tests with a Ray cluster of several nodes on this machine (Python $(VERSION))"
	@$(PYTEST) LMEVAL_TEST_RAY=1 .venv/ray/bin/python -m pytest tests/ray

# Triton is used as an interpreter, in folders of its own: next to torch, without a GPU, it would be
# imported for nothing. Triton has packages for Linux only.
TRITON = triton==3.9.0
.venv/kernels/$(VERSION)/ready: .venv/test/ready-$(VERSION)
	@echo "==> Downloading Triton (1 GB) into .venv/kernels/$(VERSION)"
	@rm -rf $(@D)
	@.venv/test/bin/python $(PIP_QUIET) --no-deps --target $(@D) $(TRITON)
	@touch $@

test-kernels: .venv/kernels/$(VERSION)/ready  ## run our GPU kernels without a GPU, in Triton's interpreter
	@echo "==> Running the tests of GPU kernels in Triton's interpreter (Python $(VERSION))"
	@$(PYTEST) CUDA_VISIBLE_DEVICES= TRITON_INTERPRET=1 PYTHONPATH=$(CURDIR)/.venv/kernels/$(VERSION) \
		.venv/test/bin/python -m pytest -n auto tests/huggingface/test_kernels.py

test-engines: .venv/test/ready-$(VERSION)  ## run only those of vLLM and llama.cpp in the same process
	@.venv/test/bin/python -m tests.servers.environments $(SERVERS)
	@$(PYTEST) LMEVAL_TEST_SERVERS=1 .venv/test/bin/python -m pytest tests/servers/test_engines.py

# Type checks depend on numpy's stubs, and available numpy versions depend on the Python version. To
# give the same result on every Python, mypy reads the stubs of one numpy version, from the wheel for
# Python 3.11, which is never imported.
STUBS = numpy==2.4.6

.venv/lint/ready-$(VERSION): requirements-lint.txt Makefile
	@echo "==> Installing ruff, mypy and type stubs into .venv/lint"
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

.venv/docs/ready-$(VERSION): requirements-docs.txt constraints/docs.txt
	@echo "==> Installing mkdocs-material into .venv/docs"
	$(call new_environment,.venv/docs)
	@.venv/docs/bin/python $(PIP_QUIET) --constraint constraints/docs.txt \
		--requirement requirements-docs.txt
	@touch $@

docs: .venv/docs/ready-$(VERSION)  ## build the documentation site into site/
	@echo "==> Building the documentation site into site/ (open site/index.html)"
	@NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --strict

# The same versions of torch, transformers and so on as in .venv/test, so that only the harness differs.
.venv/published/ready-$(VERSION): Makefile constraints/test.txt
	@echo "==> Installing the published harness, for comparison, into .venv/published"
	$(call new_environment,.venv/published)
	@.venv/published/bin/python $(PIP_QUIET) --constraint constraints/test.txt \
		lm-eval[api,hf]==0.4.13
	@touch $@

# uv only resolves versions; it is installed in no other environment.
.venv/pins/ready-$(VERSION):
	$(call new_environment,.venv/pins)
	@.venv/pins/bin/python $(PIP_QUIET) uv
	@touch $@

PIN = .venv/pins/bin/uv pip compile --quiet --python-version 3.10 --no-annotate --no-header
PINNED = by 'make pins', which made this file; edit pyproject.toml or requirements-*.txt instead.

pins: .venv/pins/ready-$(VERSION)  ## update constraints/ to the newest (and oldest) allowed versions
	@echo "==> Writing constraints/test.txt, constraints/docs.txt and constraints/lowest.txt"
	@{ echo "# The newest versions for each Python, $(PINNED)"; \
		$(PIN) --universal --extra dev --extra ray pyproject.toml requirements-test.txt; \
		} > .venv/pins/test.txt && mv .venv/pins/test.txt constraints/
	@{ echo "# The newest versions for each Python, $(PINNED)"; \
		$(PIN) --universal requirements-docs.txt; \
		} > .venv/pins/docs.txt && mv .venv/pins/docs.txt constraints/
	@{ echo "# The oldest versions that pyproject.toml allows on Python 3.10, $(PINNED)"; \
		$(PIN) --resolution lowest-direct pyproject.toml \
			--extra dev --extra ifeval --extra math --extra rouge; \
		} > .venv/pins/lowest.txt && mv .venv/pins/lowest.txt constraints/

bench: .venv/test/ready-$(VERSION) .venv/published/ready-$(VERSION)  ## measure speed against the published harness
	@echo "==> Measuring our harness and the published one"
	@.venv/test/bin/python benchmarks/start_up.py
	@.venv/test/bin/python benchmarks/catalogue.py
	@.venv/test/bin/python benchmarks/documents.py
	@.venv/test/bin/python benchmarks/scoring.py
	@[ ! -d ../shared/data ] || .venv/test/bin/python benchmarks/huggingface.py
	@[ ! -d ../shared/bench ] || .venv/test/bin/python benchmarks/served.py \
		--published .venv/published/bin/python
	@.venv/test/bin/python benchmarks/engines.py

demo-model: .venv/test/ready-$(VERSION)  ## retrain the embedded model (needs a GPU or most of an hour)
	@echo "==> Generating the training text and training the embedded model on it"
	@.venv/test/bin/python -m tools.demo.train

clean:  ## remove the environments and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
