# Every target starts from a bare checkout: it installs what is missing, builds, then does its work.
# What needs more than one line is a script in scripts/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO_HOME ?= $(HOME)/.cargo
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
# rustup installs here, and a machine that just got it has not logged in again since.
export PATH := $(CARGO_HOME)/bin:$(PATH)
# The interpreter that the package is for; without this PyO3 takes the first python3 on PATH.
export PYO3_PYTHON := $(CURDIR)/.venv/bin/python
# The binary that integration tests, Python tests and the demo start.
export TIERFEED_BIN := $(CARGO_TARGET_DIR)/release/tierfeed

.PHONY: help setup build test test-numa fuzz model lint bench demo demo-short ci

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## install what is missing: Debian packages, Rust, the Python environment .venv
	@scripts/setup.sh

build: setup ## the tierfeed binary and the Python package, optimised
	@scripts/build.sh

test: build ## all tests: Rust, documentation examples, Python
	@scripts/test.sh

test-numa: setup ## tests on NUMA and CXL memory, in machines that QEMU emulates
	@scripts/test-numa.sh

fuzz: setup ## every parser under a fuzzer, a minute each (docs/fuzzing.md)
	@scripts/fuzz.sh

model: setup ## the ring of the hand-off under loom, shuttle and ThreadSanitizer, two million requests
	@scripts/model.sh

lint: setup ## formatting, clippy, the fence around core, documentation, Python, shell
	@scripts/lint.sh

bench: build ## criterion benches and the hand-off against the plain DataLoader
	cargo bench -p tierfeed-benchmarks
	$(TIERFEED_BIN) bench handoff

demo: build ## train on photographs: plain DataLoader, then tierfeed, then a table of both
	@scripts/demo.sh

demo-short: build ## the same on few photographs, as CI runs it
	@TIERFEED_DEMO_IMAGES=160 TIERFEED_DEMO_EPOCHS=2 scripts/demo.sh

ci: ## what CI runs: test, lint, test-numa and the short demo
	@.ci/run
