#!/usr/bin/env bash
# make fuzz: runs every fuzz target for FUZZ_SECONDS (60). Arguments select targets; none means all.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh

seconds=${FUZZ_SECONDS:-60}
if [ ! -f fuzz/Cargo.toml ]; then
    say "There is no fuzz/ here."
    exit 2
fi
need_rust
need_c_compiler
has_cxx || install_packages g++ || say "A C++ compiler is missing (Debian, Ubuntu: apt-get install g++)."
need_cargo_tool cargo-fuzz '^0.13' || exit 2

# Coverage instrumentation is an unstable flag of a stable compiler.
export RUSTC_BOOTSTRAP=1
host=$(rustc -vV | sed -n 's/^host: //p')
passed=0 failed=0
# Names of fuzz targets are Rust identifiers: no spaces.
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(cargo fuzz list)
# Leak detection is off: some targets start threads, and a thread that is just ending looks like a
# leak. `make asan` detects real ones.
export ASAN_OPTIONS=detect_leaks=0
for target in "$@"; do
    printf '\n== %s: %s seconds\n' "$target" "$seconds"
    if cargo fuzz run --target "$host" "$target" -- -max_total_time="$seconds" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed targets without a finding, $failed with"
[ "$failed" -eq 0 ]
