#!/usr/bin/env bash
# make asan: the collective's unit tests and the calls given up half way under AddressSanitizer, in a target folder of
# their own. Arguments replace the unit tests' filter.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
host=$(rustc -vV | sed -n 's/^host: //p')
# The sanitizer is an unstable flag of a stable compiler; build scripts and macros stay without it because of --target.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan"
cargo test --locked -p potluck --lib --target "$host" "${@:-collective}"
exec cargo test --locked -p potluck --test forget --target "$host"
