# The front door. `make demo` and `make test` do everything, set-up included.
PREFIX ?= /usr/local
# So many files are compiled as one, which halves the time of the first build. 0, or `cmake --preset release`
# before the first build: each for itself, for those who change code.
UNITY ?= 8

.PHONY: help setup configured build test demo bench bench-guard compare check alone lint lint-all format fuzz asan asan-layers tsan aarch64 install clean
.DEFAULT_GOAL := help

help:      ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 18

setup:     ## install missing packages (Debian 12)
	@scripts/setup.sh
configured: setup
	@[ -f build/release/build.ninja ] || cmake --preset release -DMOEWE_UNITY=$(UNITY)
build: configured ## build the program: build/release/moewe
	@cmake --build --preset release --target moewe_program
demo: build ## convert the demonstration model and let it speak
	@scripts/demo.sh
test: configured ## run every test
	@cmake --build --preset release
	@scripts/test.sh build/release
bench: build ## speed of a synthetic Qwen3-30B-A3B with 4 layers (1.4 GB of disk) and of the demo model
	@if [ -f build/bench.cmf ]; then build/release/moewe bench build/bench.cmf; else \
	  build/release/moewe bench --shape qwen3-30b-a3b --layers 4 --vocab 32768 --quant q4tp --out build/bench.cmf; fi
	@build/release/moewe bench models/demo
bench-guard: build ## which kernels are slower, beside a scan of memory, than bench/guard.json says
	@python3 bench/guard.py
compare: configured ## beside llama.cpp, cortiq and the machine's limits: installs the first two, 20 minutes after that
	@cmake -DMOEWE_BUILD_BENCH=ON build/release > /dev/null
	@cmake --build --preset release --target moewe_program kernels_bench
	@bench/compare/table.py
asan: setup ## all tests under the address and undefined-behaviour sanitizers
	@scripts/setup.sh lint
	@[ -f build/asan/build.ninja ] || cmake --preset asan
	@cmake --build --preset asan
	@scripts/test.sh build/asan '.'
tsan: setup ## platform, experts and engine tests under the thread sanitizer
	@scripts/setup.sh lint && scripts/sanitize.sh tsan platform experts engine
asan-layers: setup ## the layers' tests alone, without the whole-program ones, under the first two
	@# a process for every file operation, gigabytes of noise, and the longest prompt take too long under a sanitizer; make test has these
	@scripts/setup.sh lint && GTEST_FILTER='-*FaultTest*:Synthetic.EveryShape*:LongPrefill*' scripts/sanitize.sh asan base platform quant formats kernels text experts model engine api convert
aarch64: ## tests of the layers up to kernels for 64-bit Arm, under qemu
	@scripts/aarch64.sh
check: ## formatting and include directions
	@scripts/setup.sh lint && scripts/lint.sh quick
alone: setup ## does each file that changed in a day compile without the seven others
	@scripts/compile_alone.sh changed
lint: setup ## formatting, include directions, clang-tidy over what changed in a day
	@scripts/setup.sh lint && scripts/lint.sh changed
lint-all: setup ## the same over all files
	@scripts/setup.sh lint && scripts/lint.sh all
format: ## clang-format everything
	@scripts/setup.sh lint && git ls-files '*.cc' '*.h' | grep -v '^tests/golden/' | xargs clang-format-19 -i
fuzz: setup ## build the fuzz targets, replay their corpus, fuzz each for FUZZ_SECONDS (10)
	@scripts/setup.sh lint && scripts/fuzz.sh
install: build ## binary, library, headers, CMake package into PREFIX (/usr/local)
	@cmake --install build/release --prefix $(PREFIX)
clean:     ## remove everything built
	@rm -rf build
