#!/usr/bin/env bash
# make test: everything CI runs. The last line counts.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/gloo.sh
exec </dev/null

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2 nft:nftables ethtool:ethtool iptables:iptables
want_gloo

run_checks

# Tests of the command line start it, and find it by this name.
# Everything is built once, with Gloo where it is; the checks above see to it that the rest compiles without.
POTLUCK_BIN="$(target_dir)/debug/potluck"
export POTLUCK_BIN
if [ ${#gloo_features[@]} -gt 0 ]; then
    # One node without Gloo, for the tests of mixed groups.
    must "command line without Gloo" cargo build --locked -p potluck-cli
    POTLUCK_BIN_WITHOUT_GLOO="$(target_dir)/debug/potluck-without-gloo"
    cp "$POTLUCK_BIN" "$POTLUCK_BIN_WITHOUT_GLOO"
    export POTLUCK_BIN_WITHOUT_GLOO
fi
if has_x86_64_v3; then
    # One node for a newer processor and optimised, for the tests of the bits. Dependencies are those of the other builds.
    must "command line for x86-64-v3" env RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/rustc-x86-64-v3.sh" \
        cargo build --locked -p potluck-cli ${gloo_features[@]+"${gloo_features[@]}"}
    POTLUCK_BIN_X86_64_V3="$(target_dir)/debug/potluck-x86-64-v3"
    cp "$POTLUCK_BIN" "$POTLUCK_BIN_X86_64_V3"
    export POTLUCK_BIN_X86_64_V3
fi
must "command line" cargo build --locked -p potluck-cli ${gloo_features[@]+"${gloo_features[@]}"}

# Tests of multicast inside the library need root for a namespace each; elsewhere they are counted as skipped.
apart=()
if [ "$(id -u)" -eq 0 ]; then
    apart=(--skip keeps_the_contract_of_discovery --skip a_report_names_every_interface)
    tests "multicast in namespaces" cargo test --workspace --locked ${gloo_features[@]+"${gloo_features[@]}"} --lib discovery::mdns -- --ignored
fi
tests "tests" env RUSTDOC="$PWD/scripts/rustdoc-with-codes.sh" cargo test --workspace --locked ${gloo_features[@]+"${gloo_features[@]}"} --no-fail-fast -- ${apart[@]+"${apart[@]}"}
tests "metrics of a program" cargo test -p potluck --locked --features metrics --test metrics

# The tests of the Gloo engine are not compiled without it: one line stands for all of them.
[ -z "$gloo_missing" ] || skip "unit tests of the Gloo engine" "$gloo_missing"
check "a build that lacks Gloo says what to install" lack_of_gloo

if [ -f fuzz/Cargo.toml ]; then
    # Only to see that the targets compile: the fuzzing engine itself, which is C++, is not built.
    check "fuzz targets" env RUSTFLAGS="--cfg fuzzing" CUSTOM_LIBFUZZER_PATH=/nowhere/libFuzzer.a \
        cargo check --manifest-path fuzz/Cargo.toml
fi
report
