# `make` alone says what can be done. Each word sets up what it needs first.
JOBS ?= $(shell nproc)
BUILD := build/release
CMAKE_FLAGS ?=
# Wheels for GPUs, once there, stay (tools/setup.sh): their library is then built with the binary, or the build fails.
LOCKSTEP_GPU ?= $(if $(wildcard .venv/gpu),1)
export LOCKSTEP_GPU
BINARY := lockstep $(if $(filter 1,$(LOCKSTEP_GPU)),lockstep_cuda)

PREFIX ?= /usr/local

.PHONY: help setup build install wheel demo test check quicktest faults mutate bench lint format tidy sanitize clean

help:
	@echo 'Lockstep: fine-tune, evaluate and ask multimodal language models, in C++ on LibTorch.'
	@echo
	@echo '  make demo       set up, build, then train, evaluate and ask a small vision-language model on two local ranks'
	@echo '  make build      the binary: $(BUILD)/bin/lockstep  (try: $(BUILD)/bin/lockstep --help)'
	@echo '  make install    the binary, and the library for programs of your own (examples/), under PREFIX=$(PREFIX)'
	@echo '  make wheel      the binary and the Python module as a wheel, for machines that have torch and no compiler'
	@echo '  make test       everything that CI runs: lint, tests, the address sanitizer (1 GB of Python wheels once)'
	@echo '  make check      make test, and clang-tidy, the thread sanitizer, fuzzing, planted errors;'
	@echo '                  parts whose inputs did not change are not run again'
	@echo '  make quicktest  all tests of the release build, without lint and sanitizers'
	@echo '  make faults     every fault at 2, 3, 4 and 8 ranks, and docs/faults.md anew (20 minutes on 2 cores)'
	@echo '  make mutate     plants the errors of tests/mutations.toml one at a time: a test must catch each'
	@echo '  make bench      Lockstep beside FSDP2, DeepSpeed and transformers (about 3 GB of Python wheels once)'
	@echo '  make format     clang-format on every file       make lint   formatting, include arrows'
	@echo '  make tidy       clang-tidy on what changed       make sanitize   the tests under both sanitizers'
	@echo '  make setup      system packages (apt) and .venv with LibTorch; LOCKSTEP_GPU=1 make setup for GPUs'
	@echo '  make clean      remove build/ (keeps .venv)'
	@echo
	@echo 'A build compiles several files as one, which halves the work from nothing. Who edits much may prefer'
	@echo 'CMAKE_FLAGS=-DLOCKSTEP_UNITY=OFF make quicktest: more work once, less after each change.'

setup:
	@tools/setup.sh

build: setup
	@tools/build.sh release $(BINARY)

install: setup
	@tools/build.sh release $(BINARY) install_libraries
	@cmake --install $(BUILD) --prefix $(PREFIX)

wheel:
	@tools/setup.sh wheel
	@tools/build.sh release $(BINARY) lockstep_python
	@.venv/bin/python -B tools/wheel.py $(BUILD) build/wheels

demo: build
	@$(BUILD)/bin/lockstep demo

test:
	@tools/ci.sh test

check:
	@tools/ci.sh check

quicktest:
	@tools/setup.sh tests
	@tools/build.sh release all
	@tools/run_tests.sh release

faults: setup
	@tools/build.sh release $(BINARY) fault_worker clock_jump fault_preload
	@LOCKSTEP_BIN=$(CURDIR)/$(BUILD)/bin/lockstep python3 -B tests/faults/suite.py

mutate: setup
	@python3 -B tools/mutate.py

bench:
	@tools/setup.sh bench
	@tools/build.sh release $(BINARY)
	@.venv-bench/bin/python bench/run.py
	@.venv-bench/bin/python bench/scaling.py
	@.venv-bench/bin/python bench/inference.py
	@.venv-bench/bin/python bench/device_map.py
	@tools/build.sh release resident_memory roll_call_cost audio_features gpu_budget
	@.venv-bench/bin/python bench/gpu_budget.py
	@python3 -B bench/audio.py
	@python3 -B bench/memory.py
	@python3 -B bench/balance.py
	@python3 -B bench/roll_call.py

lint: setup
	@tools/lint.sh

tidy: setup
	@tools/build.sh tidy configure
	@tools/clang_tidy.py

format: setup
	@git ls-files '*.h' '*.cpp' | xargs -r $$(tools/llvm_tool.sh clang-format) -i

sanitize: setup
	@tools/sanitize.sh address,undefined
	@tools/sanitize.sh thread || [ $$? -eq 77 ]

clean:
	rm -rf build
