#!/usr/bin/env bash
# make fuzz-schedules: random elections in virtual time. SEEDS=n runs n seeds (100000); SEED=n runs
# one, with a trace.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
need_rust
need_c_compiler

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export POTLUCK_SEEDS=${SEEDS:-100000}
[ -z "${SEED:-}" ] || export POTLUCK_SEED=$SEED POTLUCK_SEEDS=${SEEDS:-1}
cargo test -p potluck --locked --profile checks --lib random_schedules_keep_the_claims -- --nocapture 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
echo "fuzz-schedules: $(grep -E '^[0-9]+ schedules, ' "$log" || echo "ended early")"
[ "$status" -eq 0 ] && grep -qE '^[0-9]+ schedules, 0 failed' "$log"
