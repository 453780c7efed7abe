#!/usr/bin/env bash
# make threads: the code in which threads meet, in many orders of its threads, and seeded races that
# must be found. SEEDS=n explores the schedules of n seeds in each test (200), SEED=n those of one
# seed again. Arguments are names of tests.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/suites.sh
need_rust
need_c_compiler
want_gloo

# explore NAME: runs tests. Others than those of schedules.rs and memory_model.rs use the same code
# with the system's threads, which this build does not have.
explore() {
    # More than one thread, or the tests would not know their names.
    RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc-for-threads.sh \
        build --lib -- --show-output --test-threads 4 "$1" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export POTLUCK_SEEDS=${SEEDS:-200}
[ -z "${SEED:-}" ] || export POTLUCK_SEED=$SEED
# It would replace every seed.
unset SHUTTLE_RANDOM_SEED
began=$SECONDS
status=0
if [ $# -gt 0 ]; then
    for name in "$@"; do
        case $name in
            *schedules::* | *memory_model::*) explore "$name" ;;
            *) say "No test of make threads: $name" && status=1 ;;
        esac
    done
else
    # loom in a process of its own: shuttle would report every thread that loom ends.
    explore schedules::
    explore result_buffer::memory_model::
fi
schedules=$(sed -n 's/^threads: .*: \([0-9]*\) schedules hold.*/\1/p' "$log" |
    awk '{ n += $1 } END { printf "%d", n }')
ran=$(awk '
    /^test result:/ { for (i = 2; i <= NF; i++) if ($i ~ /^passed/) n += $(i - 1) }
    END { printf "%d", n }' "$log")
seeded=$(grep -c '^    [A-Z][A-Za-z]*,$' src/os/race.rs)
found=$(sed -n 's/^threads: found \([A-Za-z]*\).*/\1/p' "$log" | sort -u | wc -l)
[ $# -gt 0 ] || [ "$found" -eq "$seeded" ] || status=1
[ "$ran" -gt 0 ] || status=1
grep '^threads: .*, again with: ' "$log"
echo "threads: $([ "$status" -eq 0 ] && echo "all claims hold" || echo FAILED):" \
    "$schedules schedules, $found of $seeded seeded races found, $((SECONDS - began)) s"
[ "$status" -eq 0 ]
