#!/usr/bin/env bash
# make sim: the real driver of whole groups in virtual time. SEEDS=n runs n seeds (500), SEED=n
# repeats one, LOGS=folder keeps its logs. All groups have HOSTS=n hosts, or two to five by chance.
# MUTANT=engine|sync|replay|ledger|silent breaks a rule that one of twenty seeds must find. With
# MUTANT=lies one member of each group lies to the others, which must keep their promises to each
# other.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
export POTLUCK_SIM_SEEDS="${SEEDS:-500}"
[ -z "${SEED:-}" ] || export POTLUCK_SIM_SEED="$SEED"
[ -z "${HOSTS:-}" ] || export POTLUCK_SIM_HOSTS="$HOSTS"
[ -z "${MUTANT:-}" ] || export POTLUCK_SIM_MUTANT="$MUTANT"
[ -z "${LOGS:-}" ] || export POTLUCK_SIM_LOGS="$LOGS"
# With the first flag tokio's random choices are seeded too, and a panic in any task ends its run.
# All crates must be built with it. With the second one queues, lists and other bounds are so small
# that the programs reach them.
CARGO_TARGET_DIR="$(target_dir)/sim"
export RUSTFLAGS="--cfg tokio_unstable --cfg potluck_tight" CARGO_TARGET_DIR
cargo test --release --locked -p potluck --lib --features metrics --no-run >&2
status=0
log=$(mktemp)
cargo test --release --locked -p potluck --lib --features metrics -- --nocapture --exact \
    sim::groups::seeds::groups_in_virtual_time_never_differ_and_find_together 2>&1 |
    tee "$log" || status=1
tail -n 1 <(grep '^sim: ' "$log" || echo "sim: ended without a result")
rm -f "$log"
exit "$status"
