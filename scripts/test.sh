#!/usr/bin/env bash
# make test: everything CI runs. The last line counts.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
exec </dev/null

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2 nft:nftables ethtool:ethtool

run_checks

# Tests of the command line start it, and find it by this name.
must "command line" cargo build --locked -p potluck-cli
POTLUCK_BIN="$(target_dir)/debug/potluck"
export POTLUCK_BIN

tests "tests" cargo test --workspace --locked --no-fail-fast

if [ -f fuzz/Cargo.toml ]; then
    # Only to see that the targets compile: the fuzzing engine itself, which is C++, is not built.
    check "fuzz targets" env RUSTFLAGS="--cfg fuzzing" CUSTOM_LIBFUZZER_PATH=/nowhere/libFuzzer.a \
        cargo check --manifest-path fuzz/Cargo.toml
fi
report
