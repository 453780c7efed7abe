# Runs checks, goes on after a failure, and counts. Sourced by check.sh and test.sh, like gloo.sh.
# shellcheck shell=bash

# What count_results reads has no colours in it.
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

# count_results NAME STATUS LOG: adds up what every test binary in the log says; one that ended
# without a result has failed.
count_results() {
    local name=$1 status=$2 log=$3 kind text before=$failed
    while IFS=$'\t' read -r kind text; do
        case $kind in
            passed) passed=$((passed + text)) ;;
            failed) failed=$((failed + text)) ;;
            skipped) skipped=$((skipped + text)) ;;
            failure) failures+=("$text") ;;
            skip) skips+=("$text") ;;
        esac
    done < <(awk -f scripts/results.awk "$log")
    if [ "$status" -ne 0 ] && [ "$failed" -eq "$before" ]; then
        failed=$((failed + 1))
        failures+=("$name: does not compile, or ended early")
    fi
}

# report TARGET: the end of a make target, with the counts in the last line.
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
    mkdir -p "$(target_dir)" && echo "$summary" >"$(target_dir)/summary-$1"
    echo "$summary"
    [ "$failed" -eq 0 ]
    exit
}
