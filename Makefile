# Every target does its own set-up. `make help` lists them.
# ARGS goes to the command: make up ARGS="--port 9000", make test ARGS="-k transfer".

SHELL := /bin/bash
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help up test test-kernels check format proto lock bench-transfer bench-serving bench-grid bench-engine bench-memory bench-schedules gpu-check clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

up: .venv/.serve  ## Serve the default model: router, prefill and decode on this machine
	@$(BIN)/pdspan up $(ARGS) || [ $$? -eq 130 ]  # Ctrl-C is how to stop it

test: .venv/.dev  ## Run the tests
	@scripts/test_tools.sh
	@$(BIN)/pdspan models fetch
	@$(BIN)/python -m pytest $(ARGS)

test-kernels: .venv/.dev  ## Check attention kernels over their whole space (12 000 cases)
	$(BIN)/python -m pytest -m matrix tests/unit/pdengine/test_kernel_matrix.py $(ARGS)

check: .venv/.dev  ## Check format, lint, types, import rules, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@generated=$$(mktemp -d) && trap 'rm -rf "$$generated"' EXIT \
	  && scripts/generate_proto.sh "$$generated" \
	  && diff --recursive --exclude=__pycache__ "$$generated/pdwire" src/pdwire \
	  || { echo "src/pdwire differs from proto/: run 'make proto'" >&2; exit 1; }

format: .venv/.dev  ## Format the code and fix what the linter can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

proto: .venv/.dev  ## Generate src/pdwire from proto/
	scripts/generate_proto.sh src

lock: .venv/.dev  ## Write constraints.txt anew with the newest versions
	$(BIN)/python scripts/lock.py

bench-transfer: .venv/.dev  ## Judge every bar of a transfer (20 minutes, root)
	$(BIN)/pdspan lab transfer --suite bars --out docs/results $(ARGS)

bench-serving: .venv/.dev  ## Judge the bars of serving over a link (10 to 30 minutes, root)
	$(BIN)/pdspan lab serving-bars --out docs/results/serving $(ARGS)

bench-grid: .venv/.dev  ## Measure every link, page size and mode once, for the verdicts (root)
	$(BIN)/pdspan lab transfer --suite grid --out docs/results $(ARGS)

bench-engine: .venv/.dev  ## Compare our engine with vLLM's CPU build, 2 threads each (15 minutes)
	$(BIN)/pdspan lab engine --out docs/results $(ARGS)

bench-memory: .venv/.dev  ## Compare admission on demand with reserving all, on a trace (5 minutes)
	$(BIN)/python -m decode_node.benchmark --model "$$($(BIN)/pdspan models fetch)" \
	  --trace deploy/traces/mixed_lengths.jsonl $(ARGS) > docs/results/memory.part
	@mv docs/results/memory.part docs/results/memory.jsonl

bench-schedules: .venv/.dev  ## Compare attention schedules on five workloads, 2 threads
	$(BIN)/python -m pdengine.benchmark.schedules --model "$$($(BIN)/pdspan models fetch)" \
	  --threads 2 --out docs/results/schedules.json $(ARGS)

gpu-check:  ## Compare FlashInfer with the reference and serve, on a machine with a GPU
	deploy/gpu_check.sh

clean:  ## Remove .venv and what tools left behind (models stay in the cache)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp per set of extras: installs again when the dependencies change.
.venv/.serve: pyproject.toml constraints.txt scripts/install.sh
	@scripts/install.sh convert,lab
	@touch $@

.venv/.dev: pyproject.toml constraints.txt scripts/install.sh
	@scripts/install.sh dev
	@touch $@ .venv/.serve
