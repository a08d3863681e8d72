# Two commands: `make run` starts the product, `make test` runs everything that must hold.
# Both install what they need.

CARGO ?= cargo
NEXTEST_VERSION := 0.9.143
DENY_VERSION := 0.20.2

.PHONY: run release build test lint unit deny bench docs tools system

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
	$(CARGO) nextest run --workspace

deny:
	scripts/check-dependencies $(DENY_VERSION)

bench: system
	$(CARGO) build --release --workspace --bins
	$(CARGO) run --release --package proctor-bench

## Rewrites the documents that come from the code.
docs:
	PROCTOR_UPDATE_DOCS=1 $(CARGO) nextest run --package proctor-server errors

## A C compiler for SQLite and the TLS library; what the tests use from the system.
system:
	@scripts/install-system-packages

tools:
	@command -v cargo-nextest > /dev/null || $(CARGO) install --locked cargo-nextest@$(NEXTEST_VERSION)
