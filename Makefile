# Two commands: `make run` starts the product, `make test` runs everything that must hold.
# Both install what they need.

CARGO ?= cargo
NEXTEST_VERSION := 0.9.143
DENY_VERSION := 0.20.2
FUZZ_VERSION := 0.13.2
FUZZ_SECONDS ?= 300
SCHEMATHESIS_EXAMPLES ?= 40
FUZZ_TARGETS ?= pidfile proc cron ledger frames

.PHONY: run release build test lint unit deny bench fuzz docs schemathesis tools system

## Starts a server, a local agent and a demo process, on an embedded store.
run: system
	$(CARGO) run --bin proctor -- dev $(DEV_ARGS)

## Optimised programs for a real installation, in target/release.
release: system
	$(CARGO) build --release --bins

build:
	$(CARGO) build --workspace --all-targets

## Everything: format, lints, dependency rules, unit, property, conformance and end-to-end tests.
test: system tools lint unit deny

lint:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/check-direction

unit: build
	@rm -rf $${CARGO_TARGET_DIR:-target}/skipped-tests
	$(CARGO) nextest run --workspace
	@scripts/report-skips

## Licences, bans and sources of the dependencies, and advisories where the database can be fetched.
deny:
	scripts/check-dependencies $(DENY_VERSION)

## Measures everything beside peers, which it installs under target; see docs/benchmarks.md.
bench: system
	scripts/install-bench-peers target/bench-peers
	$(CARGO) build --release --bins
	target/release/proctor-bench all $(BENCH_ARGS) | tee target/benchmarks.md

## Fuzzes every target for FUZZ_SECONDS, one after the other. What is new goes to fuzz/target/corpus.
fuzz: system
	@rustup run nightly rustc --version > /dev/null 2>&1 || rustup toolchain install nightly --profile minimal
	@command -v cargo-fuzz > /dev/null || $(CARGO) install --locked cargo-fuzz@$(FUZZ_VERSION)
	@set -e; for target in $(FUZZ_TARGETS); do \
		new=fuzz/target/corpus/$$target; words=fuzz/dictionaries/$$target.dict; mkdir -p $$new; \
		$(CARGO) +nightly fuzz run $$target $$new fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) \
			-timeout=10 -print_final_stats=1 $$(test ! -f $$words || echo -dict=$$words); \
	done

## Rewrites the documents that come from the code.
docs:
	PROCTOR_UPDATE_DOCS=1 $(CARGO) nextest run --package proctor-server errors openapi

## A C compiler for SQLite and the TLS library; what the tests use from the system.
system:
	@scripts/install-system-packages

## Puts the OpenAPI document to the test for longer than `make test` does.
schemathesis: system build
	SCHEMATHESIS_EXAMPLES=$(SCHEMATHESIS_EXAMPLES) $(CARGO) nextest run --package proctor-e2e openapi

tools:
	@scripts/schemathesis
	@command -v cargo-nextest > /dev/null || $(CARGO) install --locked cargo-nextest@$(NEXTEST_VERSION)
