ifneq ($(filter 3.%,$(MAKE_VERSION)),)
$(error tinyweb: this needs GNU make 4 or newer, here is $(MAKE_VERSION), as on macOS: `brew install make`, then `gmake` for `make`)
endif
# `make help` lists what there is. Every target prepares what it needs and skips what is up to date.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Where Python is told to keep no bytecode, each of some hundred processes would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

PORT ?= 8080
TASK ?= chat
# What each task's page is shown with: the embedded default models.
TASKS := chat detect image embed
MODEL_chat := assets/models/tinychat-7m
MODEL_detect := assets/models/tinyyolo
MODEL_image := assets/models/tinysd
MODEL_embed := assets/models/tinyembed
DEMO = build/demo/$(TASK)
DEMOS := $(TASKS:%=build/demo/%/model/manifest.json)
BIN := .venv/bin
SITE := tinyweb/export/site
WATCHED := .venv/bin/python tools/watchdog.py
QUIETLY := tools/quietly.sh
# Python and Node seldom wait for the same: a processor, a disk, the network, a browser.
SIDE_BY_SIDE = $(MAKE) -j2 --output-sync=line
OFFLINE := is the package registry reachable?
# what is never imported needs no bytecode: half of the time that installing takes
PIP := $(BIN)/pip install --no-compile
NPM := npm --no-audit --no-fund --no-update-notifier --loglevel=error

WEB_SOURCES := $(shell find web -type d \( -name node_modules -o -name dist -o -name test -o -name test-results \) -prune -o -type f -print 2>/dev/null)
PYTHON_SOURCES := $(shell find tinyweb -path $(SITE) -prune -o -type f -not -name '*.pyc' -print)
PACKAGE_JSONS := package.json package-lock.json $(wildcard web/*/package.json)

##@ Use
.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

.PHONY: setup
setup: ## Prepare everything: Python and Node packages, the built pages, a browser for the tests
	+@$(SIDE_BY_SIDE) setup-run setup-dev
	@echo "tinyweb: ready; try 'make demo'"

.PHONY: demo
demo: ## Export an embedded model and serve its page: make demo TASK=chat|detect|image|embed PORT=8080
	+@$(SIDE_BY_SIDE) $(DEMO)/model/manifest.json
	@exec $(BIN)/tinyweb serve $(DEMO) --port $(PORT)

.PHONY: $(TASKS:%=demo-%)
$(TASKS:%=demo-%): demo-%:
	@$(MAKE) demo TASK=$*

##@ Check
.PHONY: test
test: setup ## Lint, then every test but the slow ones, and the sizes of the pages
	@$(WATCHED) 40 $(MAKE) checks PYTEST="-m 'not slow'"

.PHONY: test-all
test-all: export TINYWEB_TEST_SEED ?= random
test-all: export TINYWEB_BROWSER ?= whole
test-all: export GALLIVM_PERF ?=
test-all: export TINYWEB_OPENCL_OPTIONS ?=
test-all: setup ## Everything `make test` does, with the slow tests and the strictest checks of graphs; SHARD=2/8: a part
	@SPEC=2 $(WATCHED) $(if $(SHARD),120,960) $(MAKE) checks PYTEST="-o timeout=3600 -o faulthandler_timeout=4000"

# Every second try at starting a program is noted in one file, by Python and JavaScript alike. What is linted is linted
# beside the tests of the pages, which wait for browsers most of the time.
.PHONY: checks
checks: export TINYWEB_RETRY_LOG := $(CURDIR)/build/second-tries.log
checks:
	@rm -f "$$TINYWEB_RETRY_LOG"
	@$(BIN)/python tools/browser.py --all >/dev/null # what is missing is installed once, not by each worker of pytest
	+@$(if $(filter-out 1/%,$(SHARD)),,$(SIDE_BY_SIDE) lint test-web)
	@echo "tinyweb: Python tests$(if $(SHARD), (part $(SHARD)))"
	$(BIN)/pytest -n auto --dist worksteal $(PYTEST) $(if $(SHARD),--shard $(SHARD))
	@$(BIN)/python -m tests.control.starting

.PHONY: test-web
test-web: setup-dev
	@echo "tinyweb: JavaScript tests"
	CHROME=$$($(BIN)/python tools/browser.py) tools/plain_path.sh $(NPM) test
	@echo "tinyweb: sizes of the pages"
	$(BIN)/python tools/page_size.py

.PHONY: lint
lint: setup-dev ## Formatting, lint and types of Python and TypeScript, import contracts
	@echo "tinyweb: ruff, mypy, import contracts, biome, tsc"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(NPM) run lint
	$(NPM) run typecheck --workspaces --if-present

.PHONY: bench bench-all bench-peers
bench: setup ## Measure speed against peers, 15 minutes: adds to benchmarks/history.jsonl, writes RESULTS.md
	@echo "tinyweb: benchmarks (peers that are not installed are left out: make bench-peers)"
	$(BIN)/python -m benchmarks

bench-all: setup ## The same without a limit of time
	@echo "tinyweb: all benchmarks"
	$(BIN)/python -m benchmarks --seconds inf

bench-peers: setup .venv-bench/.stamp benchmarks/browser/node_modules/.stamp ## Install what `make bench` measures against: onnxruntime, llama.cpp, wllama, …

.PHONY: screenshots
screenshots: setup $(DEMOS) ## Take docs/images/ anew: every page on desktop and phone, light and dark
	@echo "tinyweb: screenshots"
	$(BIN)/python tools/screenshots.py docs/images $(foreach task,$(TASKS),$(task)=build/demo/$(task))

.PHONY: wheel
wheel: setup-run ## Build the sdist and the wheel into dist/, the same bytes for the same commit
	@rm -rf dist && mkdir dist
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	  $(QUIETLY) "packing dist/*.tar.gz" "see above" $(BIN)/python tools/build_backend.py dist; \
	  $(QUIETLY) "building dist/*.whl from it" "see above" $(BIN)/pip wheel --no-deps --no-build-isolation --no-cache-dir -w dist dist/*.tar.gz
	@ls -l dist

.PHONY: docs
docs: setup-dev ## Write docs/reference/ anew from the docstrings
	@$(BIN)/python tools/reference.py

.PHONY: clean
clean: ## Remove what was built; .venv and node_modules stay
	@echo "tinyweb: removing build/, $(SITE)/ and caches"
	rm -rf build dist $(SITE) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache test-results web/*/dist

##@ Steps
.PHONY: setup-run setup-dev
setup-run: .venv/.run build/web.stamp ## Only what running and exporting needs: Python packages, built pages
setup-dev: setup-run .venv/.dev .venv/.browser ## What the tests need on top: PyTorch, linters, a browser, a Vulkan driver

.venv/bin/python:
	@python=$$(tools/prerequisites.sh python); \
	  $(QUIETLY) "making .venv with $$python" "is there room on the disk?" "$$python" -m venv .venv

.venv/.run: requirements.lock pyproject.toml | .venv/bin/python
	@$(QUIETLY) "installing Python packages" "$(OFFLINE)" $(PIP) --no-deps --require-hashes -r requirements.lock
	@$(QUIETLY) "installing tinyweb itself, editable" "see above" $(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# pip would take PyPI's PyTorch before a build without CUDA in a folder, whose hash it does not know beforehand
.venv/.dev: requirements-dev.lock requirements-cpu.lock requirements-cuda.lock .venv/.run
	@echo "tinyweb: looking for a PyTorch without CUDA"
	@$(PIP) --quiet --no-deps --require-hashes -r requirements-cpu.lock 2>/dev/null || true
	@$(QUIETLY) "installing Python packages for the tests (PyTorch, linters)" "$(OFFLINE)" \
	  $(PIP) --no-deps --require-hashes -r requirements-dev.lock
	@$(BIN)/python -c "import torch" 2>/dev/null || $(QUIETLY) "installing CUDA's libraries: this PyTorch does not start without" \
	  "$(OFFLINE)" $(PIP) --no-deps --require-hashes -r requirements-cuda.lock
	@$(QUIETLY) "starting PyTorch, which tests compare with" "is there a PyTorch for this platform?" $(BIN)/python -c "import torch"
	@touch $@

.venv/.browser: tools/browser.py tools/vulkan.py tools/debian.py .venv/.dev
	@echo "tinyweb: looking for a browser and a Vulkan driver for the tests"
	@$(BIN)/python tools/browser.py --all
	@$(BIN)/python tools/vulkan.py
	@$(BIN)/python tools/debian.py qemu-aarch64 qemu-user /etc/OpenCL/vendors/pocl.icd pocl-opencl-icd oclgrind oclgrind
	@touch $@

# llama.cpp is compiled for this machine's processor, as its users do; its build tools are in the list
.venv-bench/.stamp: benchmarks/requirements.lock benchmarks/requirements-build.lock | .venv/bin/python
	@$(QUIETLY) "making .venv-bench" "is there room on the disk?" $(BIN)/python -m venv .venv-bench
	@$(QUIETLY) "installing build tools for the peers" "$(OFFLINE)" \
	  .venv-bench/bin/pip install --no-deps --require-hashes -r benchmarks/requirements-build.lock
	@PATH="$$PWD/.venv-bench/bin:$$PATH" CMAKE_ARGS=-DGGML_NATIVE=ON \
	  $(QUIETLY) "installing the peers; building llama.cpp takes some minutes" "$(OFFLINE) is there a C++ compiler?" \
	  .venv-bench/bin/pip install --no-deps --require-hashes --no-build-isolation --no-binary llama-cpp-python -r $<
	@touch $@

# no install scripts: one of them would download a native library that no page uses
benchmarks/browser/node_modules/.stamp: benchmarks/browser/package-lock.json
	@$(QUIETLY) "installing the peers that run in pages" "$(OFFLINE)" $(NPM) ci --ignore-scripts --prefix benchmarks/browser
	@touch $@

node_modules/.stamp: $(PACKAGE_JSONS)
	@tools/prerequisites.sh node
	@$(QUIETLY) "installing Node packages" "$(OFFLINE)" $(NPM) ci
	@touch $@

build/web.stamp: node_modules/.stamp tools/build_web.sh $(WEB_SOURCES)
	@$(QUIETLY) "building the pages from web/" "see above" tools/build_web.sh
	@mkdir -p build && touch $@

.SECONDEXPANSION:
$(DEMOS): build/demo/%/model/manifest.json: .venv/.run build/web.stamp $(PYTHON_SOURCES) $$(wildcard $$(MODEL_$$*)/*)
	@echo "tinyweb: exporting $(MODEL_$*) to build/demo/$*"
	@$(BIN)/tinyweb export $* $(MODEL_$*) --force -o build/demo/$*
