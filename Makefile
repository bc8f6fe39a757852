# Run netspec from a clone. This needs git, make and Python 3.11 or newer; make installs everything else into .venv.

PYTHON ?= python3
VENV   ?= .venv
UV     ?= uv
ARGS   ?=
WORKERS ?= auto
MARKERS ?= -m "not slow and not exhaustive"

BIN     := $(VENV)/bin
RUNTIME := $(VENV)/.netspec-runtime
DEV     := $(VENV)/.netspec-dev
BENCH   := $(VENV)-bench
PEERS   := $(BENCH)/.netspec-bench
PIP     := $(BIN)/python -m pip --disable-pip-version-check --no-input
SOURCES := netspec tests benchmarks
PYTEST  := $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal

# Tests that must pass without oneDNN: a kernel for each op, passes, training of whole nets. Kernels of other backends,
# the compiler, what the training loop does between steps and the command line do not depend on oneDNN: `make test`
# covers them.
WITHOUT_ONEDNN := tests/registry/test_every_kernel.py::test_each_call_of_each_op_finds_a_kernel \
	tests/backends/test_engine.py tests/backends/test_program.py tests/passes tests/training/test_run.py \
	tests/test_end_to_end.py

NEWER_PYTHON = { echo "netspec needs Python 3.11 or newer, and this is $$($(1) --version 2>/dev/null || echo 'no Python: $(1)')." ; \
	echo "Name a newer one:  make $(or $(MAKECMDGOALS),train) PYTHON=python3.12   (and remove $(VENV) if it exists)" ; exit 1 ; }
IS_NEW_ENOUGH = import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install train quick test test-slow test-exhaustive test-without-onednn browser peers test-peers test-gpu lint format type docs site bench bench-gpu lock wheel clean

help: ## print this list
	@echo "make TARGET [ARGS=…] [PYTHON=python3.12]"
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 23

install: $(RUNTIME) ## install netspec and its dependencies into .venv
	@echo "netspec is installed. To put it on your path:  source $(VENV)/bin/activate"

train: $(RUNTIME) ## train LeNet on MNIST; ARGS="train.max_epochs=1" changes the spec
	$(BIN)/netspec train model_zoo/lenet_mnist/train.yaml $(ARGS)

test: $(DEV) ## run the tests; ARGS="-k schema -x" goes to pytest, WORKERS=0 uses one process, MARKERS= also runs slow and exhaustive ones
	$(PYTEST) $(MARKERS) $(ARGS)

test-slow: $(DEV) ## run tests that CI runs besides `make test`: complete runs, jobs of several workers
	$(PYTEST) -m "slow and not exhaustive" $(ARGS)

test-exhaustive: $(DEV) ## run the tests that are too long for CI: more workers, larger nets, all samples of CUDA kernels
	$(PYTEST) -m exhaustive $(ARGS)

quick: $(DEV) ## run fast tests, in under a minute: graph, schema, layers, solvers, passes, architecture
	$(PYTEST) tests/graph tests/schema tests/layers tests/solvers tests/passes tests/test_architecture.py $(ARGS)

test-without-onednn: $(DEV) ## run the tests of passes, programs and training with oneDNN disabled
	NETSPEC_ONEDNN=off $(PYTEST) -m "not exhaustive" $(WITHOUT_ONEDNN) $(ARGS)

test-gpu: $(DEV) ## run the tests that need an NVIDIA GPU (.venv/bin/pip install -e '.[cuda13]'); fail without a GPU
	NETSPEC_REQUIRE_GPU=1 $(PYTEST) -m gpu $(ARGS)

browser: ## install Chromium for the tests of web pages (Debian and Ubuntu, as root)
	@command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium > /dev/null ; }

peers: ## install Keras, PyTorch and other peers into .venv-peers (1.7 GB on disk)
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip --disable-pip-version-check --no-input install --quiet -r tests/peers/requirements.txt

test-peers: $(DEV) peers ## compare with Keras on PyTorch; call CuPy and compile all CUDA kernels without a GPU
	KERAS_BACKEND=torch .venv-peers/bin/python -m tests.peers.record --output build/peers
	KERAS_BACKEND=torch .venv-peers/bin/python -m tests.peers.record_images --output build/peers
	.venv-peers/bin/python -m tests.peers.record_caffe --output build/peers
	.venv-peers/bin/python -m tests.peers.record_coco --output build/peers
	KERAS_BACKEND=torch .venv-peers/bin/python -m tests.peers.record_zoo --output build/peers
	KERAS_BACKEND=torch .venv-peers/bin/python -m tests.peers.record_keras --output build/peers/keras
	.venv-peers/bin/python -m tests.backends.cuda.names
	.venv-peers/bin/python -m tests.backends.cuda.nccl_calls
	.venv-peers/bin/python -m tests.backends.cuda.compile
	.venv-peers/bin/python -m tests.backends.cuda.check --cupy
	NETSPEC_PEER_ANSWERS=$(CURDIR)/build/peers $(PYTEST) tests/peers tests/exchange/formats/keras $(ARGS)

lint: $(DEV) ## check ruff's rules and formatting
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

format: $(DEV) ## format the code, and fix what ruff can fix
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

type: $(DEV) ## check types with mypy --strict
	$(BIN)/mypy

docs: $(RUNTIME) ## generate docs/reference, model_zoo/schema, the operator lists and the table of models
	$(BIN)/netspec schema --docs docs/reference
	$(BIN)/netspec schema net > model_zoo/schema/net.json
	$(BIN)/netspec schema train > model_zoo/schema/train.json
	$(BIN)/python -m tests.exchange.documented_lists
	$(BIN)/python -m tests.zoo.table

site: ## build the documentation as web pages in build/site
	@test -x $(VENV)-site/bin/mkdocs || { $(PYTHON) -m venv $(VENV)-site && \
		$(VENV)-site/bin/python -m pip --disable-pip-version-check --no-input install --quiet -r requirements/site.txt; }
	rm -rf build/site-pages && mkdir -p build/site-pages
	git ls-files '*.md' docs model_zoo .ci benchmarks LICENSE ':!tests' ':!netspec' ':!model_zoo/data/*/*.gz' \
		| tar -cf - -T - | tar -xf - -C build/site-pages
	$(VENV)-site/bin/mkdocs build --strict --config-file docs/mkdocs.yml

bench: $(PEERS) ## run all benchmarks, with peers in .venv-bench; ARGS="--quick --only mnist,training" selects some
	$(BENCH)/bin/python -m benchmarks.all $(ARGS)

bench-gpu: $(PEERS) ## compare training steps with PyTorch on an NVIDIA GPU; ARGS="--nets lenet" selects nets, ARGS=--dry needs no GPU
	$(BENCH)/bin/python -m benchmarks.bench_gpu $(ARGS)

lock: ## resolve pyproject.toml into requirements/*.txt; needs uv
	UV="$(UV)" requirements/lock $(ARGS)

wheel: $(RUNTIME) ## build dist/netspec-*.whl, with the model zoo inside
	$(BIN)/python -m hatchling build -t wheel

clean: ## remove all virtual environments, caches and built packages, but no run directories
	rm -rf $(VENV) $(BENCH) $(VENV)-site .venv-peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. Stamp files make a second `make` fast; a changed lock file or pyproject.toml causes a new install.

$(BIN)/python:
	@$(PYTHON) -c '$(IS_NEW_ENOUGH)' 2>/dev/null || $(call NEWER_PYTHON,$(PYTHON))
	@$(PYTHON) -m venv $(VENV) || { rm -f $@; \
		echo "$(PYTHON) could not make a virtual environment; on Debian and Ubuntu:  apt install python3-venv"; exit 1; }

$(RUNTIME): requirements/build.txt requirements/runtime.txt pyproject.toml | $(BIN)/python
	@$(BIN)/python -c '$(IS_NEW_ENOUGH)' || $(call NEWER_PYTHON,$(BIN)/python)
	@echo "Installing netspec's dependencies into $(VENV) (about 170 MB to fetch, 650 MB on disk) …"
	@$(PIP) install --quiet -r requirements/build.txt -r requirements/runtime.txt
	@$(PIP) install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

$(DEV): requirements/dev.txt $(RUNTIME)
	@echo "Installing the tools that test and check netspec …"
	@$(PIP) install --quiet -r requirements/dev.txt
	@touch $@

$(PEERS): requirements/build.txt requirements/runtime.txt requirements/bench.txt pyproject.toml
	@$(PYTHON) -c '$(IS_NEW_ENOUGH)' || $(call NEWER_PYTHON,$(PYTHON))
	@echo "Installing netspec and the frameworks it is compared with into $(BENCH) (2.2 GB on disk) …"
	@$(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		-r requirements/build.txt -r requirements/runtime.txt -r requirements/bench.txt
	@$(BENCH)/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		--no-build-isolation --no-deps --editable .
	@touch $@
