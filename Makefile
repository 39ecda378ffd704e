# make demo   install the core, make two built-in models, let them answer; no PyTorch
# make test   install everything, run the checks and the tests that are quick
# make test-slow  the others: killed processes, full disks, wheels, browsers, clusters, peers, the built-in models' answers
# make check  lint, format and types only
# make serve  a local server with the built-in model, and a page to try it in
# make browser BUNDLES="tiny voice-commands"  a page in which built-in models, or bundles, run inside the browser
# make docs   build the site of docs/ into site/; a broken link fails
# make bench BUNDLE=... CHECKPOINT=...  measure speed, and draw the pictures of docs/research/speed.md anew
# make fuzz N=1000 SEED=0  damaged files, each in a process of its own; then random tests, drawn anew
# make mutation  the tests against single-line changes of the program, which they have to notice; some hours
# make kills KILLS=100  export, distill, train, tune and sessions killed at random moments; nothing half-made is ever taken for whole
# make soak SPOKEN=200000  one process talks for long, its sessions saved and resumed: memory level, texts unchanged
# make zoo-parts MODELS="tiny proofread"  after a change of weights: what the built-in models are assembled from; all where none is named
# make test-matrix  the core on Python 3.11 to 3.14, with the oldest and newest of what it needs
# make test-arm64, make test-older-x86  the core on other processors, by qemu-user 10 or newer (and debootstrap)
# All of them make .venv on first use and are quick from then on.
# make graft BIN=gpu/bin GPUS=1  with a torch that knows the GPU: new data, and on from the shipped graft; goes on where it stopped

PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
# Without Python's warnings: setuptools has one for every editable install.
PIP    := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check -q

# Lean llama.cpp: the library alone, no tools, no server, no multimodal part.
export CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF -DLLAMA_CURL=OFF

.PHONY: demo serve browser zoo-parts test test-slow check docs bench fuzz mutation kills soak test-matrix test-arm64 test-older-x86 graft clean
demo: $(VENV)/.core
	@$(BIN)/hamburger-edge demo

serve: $(VENV)/.serve
	@$(BIN)/hamburger-edge serve $(BUNDLE)

BUNDLES ?= tiny
browser: $(VENV)/.core runtimes/javascript/node_modules/.package-lock.json
	@$(BIN)/python examples/browser/serve.py $(BUNDLES)

runtimes/javascript/node_modules/.package-lock.json: runtimes/javascript/package.json
	@echo "installing what the package for JavaScript needs ..."
	@npm install --ignore-scripts --no-audit --no-fund --silent --prefix runtimes/javascript
	@touch $@

test: check
	@$(BIN)/python -m pytest -q --numprocesses 2 --dist worksteal -m "not slow"

test-slow: $(VENV)/.dev
	@$(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile -m slow

check: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(VENV)/.bench
	@$(BIN)/hamburger-edge bench $(BUNDLE) --peers --against $(CHECKPOINT) --report bench.json --plot docs/images
	@$(BIN)/python -m hamburger_edge.benchmarks.speed.speed_report bench.json

MODELS ?= $(notdir $(patsubst %/,%,$(dir $(wildcard models/zoo/*/hamburger.json))))
zoo-parts: $(VENV)/.demo
	@for name in $(MODELS); do \
		$(BIN)/hamburger-edge export $$name -o runs/parts/$$name --precision int8 --assembly --no-verify --force || exit 1; \
	done

N    ?= 1000
SEED ?= 0
fuzz: $(VENV)/.dev
	@CASES=$(N) HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -v tools/fuzzing/damaged_files.py --hypothesis-seed=$(SEED)
	@HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -m hypothesis

mutation: $(VENV)/.dev
	@$(BIN)/python tools/mutation

kills: $(VENV)/.dev
	@KILLS=$(or $(KILLS),100) SEED=$(SEED) $(BIN)/python -m pytest -v tests/integration/faults -k test_kills

SPOKEN ?= 200000
soak: $(VENV)/.dev
	@SPOKEN=$(SPOKEN) $(BIN)/python -m pytest -q -s tests/integration/faults -k test_soak

test-matrix: $(VENV)/.dev
	@$(PIP) install "uv>=0.8"
	@$(BIN)/python tools/processors/matrix.py

test-arm64: $(VENV)/.dev
	@$(BIN)/python tools/processors/emulated.py arm64 $(ANSWERS)

test-older-x86: $(VENV)/.dev
	@$(BIN)/python tools/processors/emulated.py $(or $(MACHINE),x86-no-avx) $(ANSWERS)

TOKENS ?= 20000000
ROWS   ?= 512
RECIPE ?= models/zoo/smollm2-135m/recipe.toml
GPUS   ?= 1
SPREAD := $(if $(filter-out 1,$(GPUS)),--ray local --workers $(GPUS))
LAUNCH := $(if $(filter-out 1,$(GPUS)),accelerate launch --multi-gpu --num-processes $(GPUS) -m hamburger_edge,hamburger-edge)
graft:
	$(BIN)/hamburger-edge distill smollm2-135m -o data/smollm2 --tokens $(TOKENS) --rows $(ROWS) \
		--prompts models/distillation/prompts.jsonl $(SPREAD)
	$(BIN)/$(LAUNCH) train $(RECIPE) -o my-checkpoint

$(VENV)/.core: pyproject.toml
	@echo "installing hamburger-edge ..."
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.torch:
	@echo "creating $(VENV) and installing torch (CPU) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade "pip>=24" "setuptools>=77"
	@# Linux indexes may carry both a CPU and a multi-gigabyte CUDA build: take the CPU one where it exists.
	@$(PIP) install "torch==2.13.0+cpu" 2>/dev/null || $(PIP) install "torch==2.13.0"
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	@echo "installing hamburger-edge[export] ..."
	@$(PIP) install --editable ".[export]"
	@touch $@

$(VENV)/.serve: $(VENV)/.demo
	@echo "installing hamburger-edge[serve] ..."
	@$(PIP) install --editable ".[export,serve]"
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	@echo "installing hamburger-edge[dev]; the first time, llama-cpp-python is compiled (4 to 10 minutes) ..."
	@$(PIP) install --editable ".[dev]"
	@touch $@

$(VENV)/.docs: $(VENV)/.torch pyproject.toml
	@echo "installing hamburger-edge[docs] ..."
	@$(PIP) install --editable ".[docs]"
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing hamburger-edge[bench] ..."
	@$(PIP) install --editable ".[bench]"
	@touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache
