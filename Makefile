# Start with `make run` (the product, locally) and `make test` (all checks); `make help` lists the targets.
# Targets install the tools they need.

CARGO ?= cargo
NEXTEST_VERSION := 0.9.143
DENY_VERSION := 0.20.2
FUZZ_VERSION := 0.13.2
DEB_VERSION := 3.8.0
MUSL_TARGETS ?= x86_64-unknown-linux-musl aarch64-unknown-linux-musl
PACKAGES_PROFILE ?= release
FUZZ_SECONDS ?= 300
SCHEMATHESIS_EXAMPLES ?= 40
BIN_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))/debug
FUZZ_TARGETS ?= pidfile proc cron ledger frames

.DEFAULT_GOAL := run

.PHONY: help run release packages packages-test build test test-fork test-otel test-skew quick lint unit deny bench soak fuzz docs schemathesis tools system web web-test web-e2e screenshots

## List the targets
help:
	@awk '/^## /{text=substr($$0,4)} /^[a-z0-9-]+:/&&text{split($$0,name,":"); printf "%-14s%s\n",name[1],text; text=""}' $(MAKEFILE_LIST)

## Start a server, a local agent and a demo process on an embedded store
run: system web
	$(CARGO) run --bin proctor -- dev $(DEV_ARGS)

## Build the optimised programs in target/release
release: system web
	CARGO="$(CARGO)" scripts/build-release

## Build .deb packages, the static agents and the OCI image in target/packages
packages: system web
	scripts/install-packaging-tools $(DEB_VERSION) $(MUSL_TARGETS)
	scripts/build-packages $(PACKAGES_PROFILE) $(MUSL_TARGETS)

## Install, upgrade and remove the packages of target/packages in a copy of this system, and check units and chart
packages-test:
	scripts/test-packages target/packages

## Build the whole workspace, tests included
build:
	$(CARGO) build --workspace --all-targets

## Run all checks: format, lints, crate direction, all tests, dependency audit
test: system tools web-test lint unit web-e2e deny

## Check format, clippy, the direction of crate dependencies, the chart, alert rules and maintainer scripts
lint:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/check-direction
	scripts/check-paths
	scripts/check-chart packaging/helm/proctor packaging/compose/compose.yaml
	scripts/check-rules
	scripts/check-maintainer-scripts

## Check the format, and lint and unit-test the crates that differ from BASE (default: the last commit)
quick:
	scripts/quick $(BASE)

## Run unit, property, conformance and end-to-end tests, and list skipped ones
unit: build
	@find $${CARGO_TARGET_DIR:-target}/skipped-tests -type f ! -name 'check-*' -delete 2> /dev/null || true
	$(CARGO) nextest run --workspace
	$(CARGO) nextest run --package proctor-traces --features otlp
	@scripts/report-skips

## Run the tests that start processes again, with plain forks instead of shared memory
test-fork: build
	PROCTOR_SPAWN=fork $(CARGO) nextest run --package proctor-host --package proctor-agent --package proctor-e2e

## Build with OpenTelemetry, and test that traces reach a collector
test-otel: system tools
	$(CARGO) clippy --package proctor-traces --package proctor-cli --package proctor-agent --package proctor-e2e --all-targets --features proctor-traces/otlp,proctor-cli/otel,proctor-agent/otel,proctor-e2e/otel -- -D warnings
	$(CARGO) build --bins --features proctor-cli/otel,proctor-agent/otel
	$(CARGO) nextest run --package proctor-traces --package proctor-e2e --features proctor-traces/otlp,proctor-e2e/otel traces:: otlp::

## Run end-to-end tests across versions: agents of SKEW_BASE (a commit or tag) on this server, and the other way round
test-skew: system tools
	scripts/test-skew $(SKEW_BASE)

## Check licences, bans, sources and advisories of the dependencies
deny:
	scripts/check-dependencies $(DENY_VERSION)

## Benchmark against peers, which are installed under target; see docs/benchmarks.md
bench: system
	scripts/install-bench-peers target/bench-peers
	CARGO="$(CARGO)" scripts/build-release
	target/release/proctor-bench all $(BENCH_ARGS) | tee target/benchmarks.md

## Run faults that take minutes against real programs and check the invariants; see docs/faults.md
soak: system
	scripts/install-soak-packages
	$(CARGO) build --bins
	$(BIN_DIR)/proctor-soak $(SOAK_ARGS)

## Fuzz each of FUZZ_TARGETS for FUZZ_SECONDS; new inputs go to fuzz/target/corpus
fuzz: system
	@rustup run nightly rustc --version > /dev/null 2>&1 || rustup toolchain install nightly --profile minimal
	@command -v cargo-fuzz > /dev/null || $(CARGO) install --locked cargo-fuzz@$(FUZZ_VERSION)
	@set -e; for target in $(FUZZ_TARGETS); do \
		new=fuzz/target/corpus/$$target; words=fuzz/dictionaries/$$target.dict; mkdir -p $$new; \
		$(CARGO) +nightly fuzz run $$target $$new fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) \
			-timeout=10 -print_final_stats=1 $$(test ! -f $$words || echo -dict=$$words); \
	done

## Regenerate docs/errors.md, docs/messages.json and docs/openapi.json from the code
docs:
	PROCTOR_UPDATE_DOCS=1 $(CARGO) nextest run --package proctor-server errors openapi

## Install missing system packages: a C compiler for SQLite and TLS, and what the tests use
system:
	@scripts/install-system-packages

## Test the API against its OpenAPI document for longer than `make test` does
schemathesis: system build
	SCHEMATHESIS_EXAMPLES=$(SCHEMATHESIS_EXAMPLES) $(CARGO) nextest run --package proctor-e2e openapi

## Install schemathesis and cargo-nextest
tools:
	@scripts/schemathesis
	@command -v cargo-nextest > /dev/null || $(CARGO) install --locked cargo-nextest@$(NEXTEST_VERSION)

## Build the console into web/dist, where Node is installed
web:
	@scripts/build-console

## Check the console: format, lints, types, component tests, build and size
web-test:
	@if scripts/has-node; then scripts/install-console-packages && cd web && npm run check; \
	else echo "skipped the console's tests: they need npm and Node 20.19 or newer"; fi

## Test the console in Chromium against the real server
web-e2e:
	@if ! scripts/has-node; then echo "skipped the console's browser tests: they need npm and Node 20.19 or newer"; \
	else scripts/install-chromium && cd web && PROCTOR_BIN=$(BIN_DIR)/proctor npm run e2e; fi

## Take a picture of every page of the console, into web/screenshots
screenshots: build web
	@scripts/install-chromium
	cd web && PROCTOR_BIN=$(BIN_DIR)/proctor npm run screenshots
