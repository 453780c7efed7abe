#!/usr/bin/env bash
# make asan: runs under AddressSanitizer the unit tests of the collectives, of their memory and of
# one View's operations, of the Gloo engine with its C++ code (if Gloo is installed), the tests of
# dropped and leaked calls, and programs in C and C++ on the C interface, with calls of it in any
# order for MINUTES=n (1). Uses a target directory of its own. Arguments replace the filters of the
# unit tests.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
want_gloo
host=$(rustc -vV | sed -n 's/^host: //p')
# The sanitizer is an unstable flag of a stable compiler. Because of --target, build scripts and
# macros are compiled without it.
cargo build --locked -p potluck-capi
POTLUCK_SANITIZE=address POTLUCK_SECONDS=$((60 * ${MINUTES:-1})) \
    cargo test --locked -p potluck-capi --test capi
export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan"
# A test requests more memory than possible, and expects an error as from any other allocator.
export ASAN_OPTIONS=allocator_may_return_null=1
filters=("$@")
[ $# -gt 0 ] || filters=(collective gloo_ffi memory os protocol session)
cargo test --locked -p potluck ${gloo_features[@]+"${gloo_features[@]}"} --lib --target "$host" \
    -- "${filters[@]}"
# A leaked call is a memory leak by definition; these tests are about accesses to its buffer.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
cargo test --locked -p potluck ${gloo_features[@]+"${gloo_features[@]}"} --test forget \
    --target "$host"
exec cargo test --locked -p potluck ${gloo_features[@]+"${gloo_features[@]}"} --test contract \
    --target "$host" -- "s are dropped at"
