#!/usr/bin/env bash
# make model: all histories of small groups, random walks through larger ones, and mutants,
# each of which must be found.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
need_rust
need_c_compiler

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export POTLUCK_SEEDS=${SEEDS:-10000}
[ -z "${SEED:-}" ] || export POTLUCK_SEED=$SEED POTLUCK_SEEDS=1
began=$SECONDS
cargo test -p potluck --locked --profile checks --lib sim::model -- --include-ignored --nocapture \
    --test-threads 1 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
unique=$(awk -F '|' '$NF ~ /^ *$/ && $9 ~ /^ *[0-9]+ *$/ { n += $9 } END { printf "%d", n }' "$log")
found=$(grep -oE '^[0-9]+ of [0-9]+ mutants found' "$log" || echo "no mutants looked for")
walks=$(grep -o '[0-9]* walks, ' "$log" | awk '{ n += $1 } END { printf "%d", n }')
echo "model: $([ "$status" -eq 0 ] && echo "all claims hold" || echo FAILED):" \
    "$unique unique states, $walks walks, $found, $((SECONDS - began)) s"
[ "$status" -eq 0 ] && [[ $found =~ ^([0-9]+)\ of\ ([0-9]+) ]] &&
    [ "${BASH_REMATCH[1]}" -eq "${BASH_REMATCH[2]}" ]
