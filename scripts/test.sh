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

# Tests of multicast inside the library need root for a namespace each; elsewhere they are counted as skipped.
apart=()
if [ "$(id -u)" -eq 0 ]; then
    apart=(--skip keeps_the_contract_of_discovery --skip a_report_names_every_interface)
    tests "multicast in namespaces" cargo test --workspace --locked --lib discovery::mdns -- --ignored
fi
tests "tests" cargo test --workspace --locked --no-fail-fast -- ${apart[@]+"${apart[@]}"}

if [ -f fuzz/Cargo.toml ]; then
    # Only to see that the targets compile: the fuzzing engine itself, which is C++, is not built.
    check "fuzz targets" env RUSTFLAGS="--cfg fuzzing" CUSTOM_LIBFUZZER_PATH=/nowhere/libFuzzer.a \
        cargo check --manifest-path fuzz/Cargo.toml
fi
report
