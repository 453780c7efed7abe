#!/usr/bin/env bash
# make sim: the real driver of whole groups in virtual time. SEEDS=n runs n seeds (500), SEED=n
# repeats one.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
export POTLUCK_SIM_SEEDS="${SEEDS:-500}"
[ -z "${SEED:-}" ] || export POTLUCK_SIM_SEED="$SEED"
# With the first flag tokio's random choices are seeded too, and a panic in any task ends its run. All
# crates must be built with it. With the second one queues, lists and other bounds are so small that
# the programs reach them.
CARGO_TARGET_DIR="$(target_dir)/sim"
export RUSTFLAGS="--cfg tokio_unstable --cfg potluck_tight" CARGO_TARGET_DIR
cargo test --release --locked -p potluck --lib --no-run >&2
status=0
log=$(mktemp)
cargo test --release --locked -p potluck --lib -- --nocapture --exact \
    simulation::seeds::groups_in_virtual_time_never_differ_and_find_together 2>&1 | tee "$log" || status=1
tail -n 1 <(grep '^sim: ' "$log" || echo "sim: ended without a result")
rm -f "$log"
exit "$status"
