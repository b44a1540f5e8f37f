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
# Where `make install` puts things.
PREFIX ?= $(HOME)/.local
# The interpreter that the package is for; without this PyO3 takes the first python3 on PATH.
export PYO3_PYTHON := $(CURDIR)/.venv/bin/python
# Users get the optimised binary; tests start that which is built with them, so that the gate compiles
# each crate once, and with every check of arithmetic and every drill in it.
export TIERFEED_PROFILE ?= release
test test-benchmarks test-cluster test-frameworks imagenet-example test-launchers test-kubernetes stress sanitize demo-short: export TIERFEED_PROFILE := dev
# The binary that Python tests, benches and the demo start.
export TIERFEED_BIN = $(CARGO_TARGET_DIR)/$(if $(filter dev,$(TIERFEED_PROFILE)),debug,release)/tierfeed

.PHONY: help setup build build-benchmarks wheel first-batch image release install uninstall test test-benchmarks test-cluster test-frameworks imagenet-example test-launchers test-numa test-kubernetes fuzz model sanitize stress stress-long lint bench experiments experiments-quick demo demo-short ci

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## install what is missing: Debian packages, Rust, the Python environment .venv
	@scripts/setup.sh

build: setup ## the tierfeed binary and the Python package, optimised (TIERFEED_PROFILE=dev: quickly)
	@scripts/build.sh

build-benchmarks: build ## `tierfeed-bench` and what it starts, from the workspace benchmarks/
	@scripts/build-benchmarks.sh

wheel: setup ## a wheel with program and Python package, for any Linux with glibc 2.34, in target/wheel
	@scripts/setup-tools.sh wheel
	@scripts/wheel.sh

first-batch: wheel ## times the way from an empty environment to the first batch
	@scripts/first-batch.sh

image: build ## the container image with the program, as an OCI layout, in target/image
	@scripts/setup-tools.sh image
	@scripts/image.sh

release: ## checks, builds the wheel and tags: make release VERSION=0.2.0
	@scripts/release.sh "$(VERSION)"

install: build ## programs, manual pages and completions below PREFIX (default ~/.local)
	@PREFIX="$(PREFIX)" scripts/install.sh

uninstall: ## removes what install put below PREFIX
	@PREFIX="$(PREFIX)" scripts/install.sh uninstall

test: build ## all tests of the product: Rust, documentation examples, Python
	@scripts/setup-tools.sh test
	@scripts/test.sh

test-benchmarks: build-benchmarks ## tests of benches, experiments and fault injection
	@scripts/setup-tools.sh test
	cd benchmarks && cargo nextest run --workspace $${CI:+--profile ci}

test-cluster: build ## trainings on several nodes: a private Slurm of four, Open MPI, MPICH, torchrun
	@scripts/setup-tools.sh cluster
	@scripts/test-cluster.sh

test-frameworks: build ## the Python package under PyTorch, TensorFlow, JAX, Keras and their neighbours (5 GB)
	@scripts/test-frameworks.sh

imagenet-example: build ## PyTorch's own example with tierfeed in place of its loader (EXAMPLES: a clone of pytorch/examples)
	@scripts/frameworks/setup.sh newest >/dev/null
	@TIERFEED_EXE=$(TIERFEED_BIN) python3 scripts/frameworks/imagenet_example.py $(EXAMPLES)

test-launchers: build ## ranks under the torchrun and accelerate of a current PyTorch, Slurm and MPI (3.4 GB)
	@scripts/test-launchers.sh

test-numa: setup ## tests on NUMA and CXL memory, in machines that QEMU emulates
	@scripts/test-numa.sh

test-kubernetes: build ## the Helm chart: schemas, and its training in containers
	@scripts/setup-tools.sh kubernetes
	@scripts/test-kubernetes.sh

fuzz: setup ## every parser under a fuzzer, a minute each (docs/testing.md)
	@scripts/fuzz.sh

model: setup ## the ring of the hand-off under loom, shuttle and ThreadSanitizer, two million requests
	@scripts/model.sh

stress: build-benchmarks ## live runs under random faults, benches with their floors
	@scripts/setup-tools.sh test
	@scripts/stress.sh short

stress-long: build-benchmarks ## more of it, models and every parser under a fuzzer, for a night
	@scripts/setup-tools.sh test
	@scripts/stress.sh long

sanitize: build ## tests of the data plane under ThreadSanitizer, the Python package under AddressSanitizer
	@scripts/setup-tools.sh sanitize
	@scripts/sanitize.sh

lint: setup ## formatting, clippy, the fence around core, documentation, Python, shell
	@scripts/setup-tools.sh lint
	@scripts/lint.sh

bench: build-benchmarks ## criterion benches, the hand-off against the plain DataLoader, the transport between nodes against a plain TCP copy, frameworks with and without tierfeed
	cd benchmarks && cargo bench -p tierfeed-benchmarks
	$(TIERFEED_BIN)-bench handoff --python .venv/bin/python
	$(TIERFEED_BIN)-bench peers --transport
	$(TIERFEED_BIN)-bench frameworks --python "$$(scripts/frameworks/setup.sh newest)/bin/python"

experiments: build-benchmarks ## figures of papers as real trainings, and other loaders beside tierfeed; writes experiments.json
	@scripts/setup-tools.sh experiments
	python="$$(scripts/frameworks/setup.sh peers)/bin/python" && \
	  $(TIERFEED_BIN)-bench paper all --python "$$python" --figures experiments.json && \
	  $(TIERFEED_BIN)-bench loaders --python "$$python" --figures experiments.json

experiments-quick: build-benchmarks ## the same in about ten minutes, against what they reached before
	@scripts/setup-tools.sh experiments
	python="$$(scripts/frameworks/setup.sh peers)/bin/python" && \
	  $(TIERFEED_BIN)-bench paper all --quick --python "$$python" --figures experiments.json \
	    --floors benchmarks/experiments/floors.json && \
	  $(TIERFEED_BIN)-bench loaders --quick --python "$$python" --figures experiments.json --floors benchmarks/experiments/floors.json

demo: build ## train on photographs: plain DataLoader, then tierfeed, then a table of both
	@scripts/demo.sh

demo-short: build ## the same on few photographs, as CI runs it
	@TIERFEED_DEMO_IMAGES=160 TIERFEED_DEMO_EPOCHS=2 scripts/demo.sh

ci: ## what CI runs: test, test-benchmarks, test-cluster, test-frameworks, lint, test-numa, test-kubernetes, stress and the short demo
	@.ci/run
