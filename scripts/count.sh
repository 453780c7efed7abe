# Runs checks, continues after failures, and counts. Sourced by the other scripts.
# shellcheck shell=bash

# Output without colours, so that count_results can parse it.
export CARGO_TERM_COLOR=never

passed=0 failed=0 skipped=0
failures=() skips=() said=() again=()

heading() { printf '\n== %s: %s\n' "$1" "${*:2}"; }

# check NAME COMMAND...: runs one check and counts it as passed or failed.
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

# must NAME COMMAND...: like check, but a success is not counted.
must() {
    check "$@"
    [ ${#failures[@]} -gt 0 ] && [ "${failures[${#failures[@]} - 1]}" = "$1" ] ||
        passed=$((passed - 1))
}

# skip NAME REASON: counts a check that cannot run here.
skip() {
    skipped=$((skipped + 1))
    skips+=("$1: $2")
}

# shellcheck disable=SC2154 # want_gloo sets both
# with_gloo NAME COMMAND...: runs a check if Gloo is available (see want_gloo), else skips it.
with_gloo() {
    if [ ${#gloo_features[@]} -gt 0 ]; then check "$@"; else skip "$1" "$gloo_missing"; fi
}

# count_results NAME STATUS LOG: adds the results of every test binary in the log; a binary that
# ended without a result has failed.
count_results() {
    local name=$1 status=$2 log=$3 kind text before=$failed
    while IFS=$'\t' read -r kind text; do
        case $kind in
            passed) passed=$((passed + text)) ;;
            failed) failed=$((failed + text)) ;;
            skipped) skipped=$((skipped + text)) ;;
            failure) failures+=("$text") ;;
            skip) skips+=("$text") ;;
            again) again+=("$text") ;;
            said) said+=("$text") ;;
        esac
    done < <(awk -f scripts/results.awk "$log")
    if [ "$status" -ne 0 ] && [ "$failed" -eq "$before" ]; then
        failed=$((failed + 1))
        failures+=("$name: does not compile, or ended early")
    fi
}

# add_summary TARGET: adds the counts of another target, from its summary.
add_summary() {
    local file counts
    file="$(target_dir)/summary-$1"
    [ -f "$file" ] || echo "0 passed, 1 failed, 0 skipped" >"$file"
    read -r -a counts <"$file"
    passed=$((passed + counts[0])) failed=$((failed + counts[2])) skipped=$((skipped + counts[4]))
    [ "${counts[2]}" -eq 0 ] || failures+=("$1: ${counts[2]} failed, see above")
    [ "${counts[4]}" -eq 0 ] || skips+=("$1: ${counts[4]} skipped, see above")
}

# report TARGET: ends a make target, with the counts in the last line.
report() {
    local line summary
    echo
    if [ "$skipped" -gt 0 ]; then
        echo "Skipped, because this machine cannot run them, or by choice:"
        for line in ${skips[@]+"${skips[@]}"}; do echo "  $line"; done
    fi
    if [ ${#again[@]} -gt 0 ]; then
        echo "Failed while this machine stood still, and run again:"
        for line in "${again[@]}"; do echo "  $line"; done
    fi
    if [ "$failed" -gt 0 ]; then
        # Repeated, because the output of all suites is long and may be cut.
        for line in ${said[@]+"${said[@]}"}; do echo "  $line"; done
        echo "Failed:"
        for line in ${failures[@]+"${failures[@]}"}; do echo "  $line"; done
    fi
    summary="$passed passed, $failed failed, $skipped skipped"
    mkdir -p "$(target_dir)" && echo "$summary" >"$(target_dir)/summary-$1"
    echo "$summary"
    [ "$failed" -eq 0 ]
    exit
}
