#!/usr/bin/env bash
# make check: formatting, lints, documentation, licences. Never changes the sources, and runs no
# test. Installs no tool of cargo, but like `make test` a missing C compiler and Gloo.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/gloo.sh
exec </dev/null

need_rust
need_c_compiler
want_gloo

lints=(cargo clippy --workspace --all-targets --locked)
documentation=(env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked)

# cargo-clippy is itself a wrapper of the compiler, so this one has to do the same. It also covers
# the feature `metrics` where Gloo is not available.
lints_of_threads() {
    CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__" \
        RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/clippy-for-threads.sh \
        cargo check --lib --profile test --locked --features metrics
}

# Checks only that the targets compile: the fuzzing engine, which is C++, is not built.
fuzz_targets() {
    RUSTFLAGS="--cfg fuzzing" CUSTOM_LIBFUZZER_PATH=/nowhere/libFuzzer.a \
        cargo check --locked --manifest-path fuzz/Cargo.toml
}

# Packages outside of the workspace have their own lock files, which must contain every new
# dependency of the library.
locked_apart() {
    cargo update --workspace --locked --quiet --manifest-path fuzz/Cargo.toml &&
        cargo update --workspace --locked --quiet --manifest-path examples/train-digits/Cargo.toml
}

licences() {
    cargo fetch --locked --quiet && # for all platforms, because the following commands are offline
        cargo deny --workspace --offline check --hide-inclusion-graph bans licenses sources
}

check "format" cargo fmt --all --check
# All feature sets must build: all features (where Gloo is available), and none.
with_gloo "lints of all features" "${lints[@]}" --features gloo,metrics -- -D warnings
check "lints" "${lints[@]}" -- -D warnings
check "lints of the schedule checker" lints_of_threads
with_gloo "documentation of all features" "${documentation[@]}" --features gloo,metrics
check "documentation" "${documentation[@]}"
check "no C++ by default" no_cxx
check "lock files of the packages apart" locked_apart
check "fuzz targets" fuzz_targets
if have cargo-deny; then
    check "licences and sources" licences
else
    skip "licences and sources" \
        "needs cargo-deny: cargo install --locked cargo-deny --version '^0.20'"
fi
report check
