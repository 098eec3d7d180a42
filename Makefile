# `make` alone says what can be done. Each word sets up what it needs first.
JOBS ?= $(shell nproc)
BUILD := build/release
CMAKE_FLAGS ?=

.PHONY: help setup build demo test quicktest faults bench lint format tidy sanitize clean

help:
	@echo 'Lockstep: fine-tune, evaluate and ask multimodal language models, in C++ on LibTorch.'
	@echo
	@echo '  make demo       set up, build, then train, evaluate and ask a small vision-language model on two local ranks'
	@echo '  make build      the binary: $(BUILD)/bin/lockstep  (try: $(BUILD)/bin/lockstep --help)'
	@echo '  make test       everything that CI runs: lint, sanitizers, all tests (from nothing: up to 40 minutes on 2 cores)'
	@echo '  make quicktest  all tests of the release build, without lint and sanitizers'
	@echo '  make faults     every fault at 2, 3, 4 and 8 ranks, and docs/faults.md anew (20 minutes on 2 cores)'
	@echo '  make bench      Lockstep beside FSDP2, DeepSpeed and transformers (fetches about 3 GB of Python wheels once)'
	@echo '  make format     clang-format on every file       make lint   formatting, include arrows, clang-tidy'
	@echo '  make sanitize   the tests under address+undefined and thread sanitizers'
	@echo '  make setup      system packages (apt) and .venv with LibTorch; LOCKSTEP_GPU=1 make setup for GPUs'
	@echo '  make clean      remove build/ (keeps .venv)'

setup:
	@tools/setup.sh

build: setup
	@tools/build.sh release all

demo: build
	@$(BUILD)/bin/lockstep demo

test:
	@tools/ci.sh

quicktest: build
	@tools/run_tests.sh release

faults: build
	@LOCKSTEP_BIN=$(CURDIR)/$(BUILD)/bin/lockstep python3 -B tests/faults/suite.py

bench:
	@tools/setup.sh bench
	@tools/build.sh release all
	@.venv-bench/bin/python bench/run.py
	@.venv-bench/bin/python bench/inference.py
	@.venv-bench/bin/python bench/device_map.py

lint: setup
	@tools/lint.sh

tidy: setup
	@tools/build.sh release configure
	@tools/clang_tidy.py

format: setup
	@git ls-files '*.h' '*.cpp' | xargs -r $$(tools/llvm_tool.sh clang-format) -i

sanitize: setup
	@tools/sanitize.sh address,undefined
	@tools/sanitize.sh thread

clean:
	rm -rf build
