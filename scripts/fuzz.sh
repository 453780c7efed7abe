#!/usr/bin/env bash
# make fuzz: runs every fuzz target for MINUTES=n (1), from the inputs in fuzz/kept. Arguments
# select targets; none means all. With KEEP=1 the smallest set of inputs that reaches as much
# replaces the kept ones, which `make test` replays.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh

seconds=$((60 * ${MINUTES:-1}))
if [ ! -f fuzz/Cargo.toml ]; then
    say "There is no fuzz/ here."
    exit 2
fi
need_rust
need_c_compiler
has_cxx || install_packages g++ ||
    say "A C++ compiler is missing (Debian, Ubuntu: apt-get install g++)."
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
# keep TARGET: at most 40 inputs of at most a kibibyte that matter, short ones and long ones alike.
keep() {
    local found="fuzz/corpus/$1" least each
    least=$(mktemp -d)
    cargo fuzz run --target "$host" "$1" -- -merge=1 -max_len=1024 "$least" "$found" \
        "fuzz/kept/$1" || return
    rm -rf "fuzz/kept/$1"
    mkdir -p "fuzz/kept/$1"
    each=$((($(find "$least" -type f | wc -l) + 39) / 40))
    find "$least" -type f -printf '%s %p\n' | sort -n |
        awk -v each="$each" 'NR % each == 0' | cut -d' ' -f2 |
        xargs -r cp -t "fuzz/kept/$1"
    rm -rf "$least"
}

for target in "$@"; do
    mkdir -p "fuzz/corpus/$target" "fuzz/kept/$target"
    printf '\n== %s: %s seconds\n' "$target" "$seconds"
    if cargo fuzz run --target "$host" "$target" "fuzz/corpus/$target" "fuzz/kept/$target" -- \
        -max_total_time="$seconds" 2>&1 && { [ -z "${KEEP:-}" ] || keep "$target"; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed targets without a finding, $failed with"
[ "$failed" -eq 0 ]
