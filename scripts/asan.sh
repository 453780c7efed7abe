#!/usr/bin/env bash
# make asan: the unit tests of the collective, its message layer and, where Gloo is installed, the
# Gloo engine with its C++, and the calls given up or forgotten at every place, under
# AddressSanitizer, in a target folder of their own. Arguments replace the unit tests' filters.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
want_gloo
host=$(rustc -vV | sed -n 's/^host: //p')
# The sanitizer is an unstable flag of a stable compiler; build scripts and macros stay without it
# because of --target.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan"
# A test asks for more memory than there can be, and is to be refused as by any other allocator.
export ASAN_OPTIONS=allocator_may_return_null=1
filters=("$@")
[ $# -gt 0 ] || filters=(collective gloo_ffi)
cargo test --locked -p potluck ${gloo_features[@]+"${gloo_features[@]}"} --lib --target "$host" -- "${filters[@]}"
# A forgotten call is a leak by the word; what matters is who touches its buffer.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
cargo test --locked -p potluck ${gloo_features[@]+"${gloo_features[@]}"} --test forget --target "$host"
exec cargo test --locked -p potluck ${gloo_features[@]+"${gloo_features[@]}"} --test contract --target "$host" -- "s are dropped at"
