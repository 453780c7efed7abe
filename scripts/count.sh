# Runs steps one after the other, goes on after a failure, and counts. Sourced by check.sh and test.sh, like gloo.sh.
# shellcheck shell=bash

# What tests() reads has no colours in it.
export CARGO_TERM_COLOR=never

passed=0 failed=0 skipped=0
failures=() skips=()

heading() { printf '\n== %s: %s\n' "$1" "${*:2}"; }

# check NAME COMMAND...: one check, passed or failed.
check() {
    local name=$1
    heading "$@"
    if "${@:2}" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        failures+=("$name")
    fi
}

# must NAME COMMAND...: counts only when it fails.
must() {
    check "$@"
    [ ${#failures[@]} -gt 0 ] && [ "${failures[${#failures[@]} - 1]}" = "$1" ] || passed=$((passed - 1))
}

# skip NAME REASON: counts what cannot run here.
skip() {
    skipped=$((skipped + 1))
    skips+=("$1: $2")
}

# shellcheck disable=SC2154 # want_gloo sets both
# with_gloo NAME COMMAND...: a check where there is Gloo, see want_gloo; skipped where there is not.
with_gloo() {
    if [ ${#gloo_features[@]} -gt 0 ]; then check "$@"; else skip "$1" "$gloo_missing"; fi
}

# tests NAME COMMAND...: adds up what every test binary says; one that ends without a result has failed.
tests() {
    local name=$1 log status kind text
    log=$(mktemp)
    heading "$@"
    "${@:2}" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    local before=$failed
    while IFS=$'\t' read -r kind text; do
        case $kind in
            passed) passed=$((passed + text)) ;;
            failed) failed=$((failed + text)) ;;
            skipped) skipped=$((skipped + text)) ;;
            failure) failures+=("$text") ;;
            skip) skips+=("$text") ;;
        esac
    done < <(awk -f scripts/results.awk "$log")
    rm -f "$log"
    if [ "$status" -ne 0 ] && [ "$failed" -eq "$before" ]; then
        failed=$((failed + 1))
        failures+=("$name: does not compile, or ended early")
    fi
}

# The checks that `make check` and `make test` share. Both ways to build must hold: with Gloo and without.
run_checks() {
    local lints=(cargo clippy --workspace --all-targets --locked)
    local documentation=(env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked)
    check "format" cargo fmt --all --check
    check "lints" "${lints[@]}" -- -D warnings
    with_gloo "lints with Gloo" "${lints[@]}" --features gloo -- -D warnings
    check "lints with metrics" cargo clippy -p potluck --all-targets --locked --features metrics -- -D warnings
    check "documentation" "${documentation[@]}"
    with_gloo "documentation with Gloo" "${documentation[@]}" --features gloo
    check "no C++ by default" no_cxx
    check "lock files of the packages apart" locked_apart
    check "licences and sources" deny
}

# Packages outside of the workspace have lock files of their own, which a new dependency of the library has to be in.
locked_apart() {
    cargo update --workspace --locked --quiet --manifest-path fuzz/Cargo.toml &&
        cargo update --workspace --locked --quiet --manifest-path examples/train-digits/Cargo.toml
}

deny() {
    need_cargo_tool cargo-deny cargo-deny '^0.20' &&
        cargo fetch --locked --quiet && # for every platform, since what follows stays offline
        cargo deny --workspace --offline check --hide-inclusion-graph bans licenses sources
}

report() {
    local line summary
    echo
    if [ "$skipped" -gt 0 ]; then
        echo "Skipped, because this machine cannot run them, or by choice:"
        for line in ${skips[@]+"${skips[@]}"}; do echo "  $line"; done
    fi
    if [ "$failed" -gt 0 ]; then
        echo "Failed:"
        for line in ${failures[@]+"${failures[@]}"}; do echo "  $line"; done
    fi
    summary="$passed passed, $failed failed, $skipped skipped"
    mkdir -p "$(target_dir)" && echo "$summary" >"$(target_dir)/summary"
    echo "$summary"
    [ "$failed" -eq 0 ]
    exit
}
