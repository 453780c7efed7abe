#!/usr/bin/env bash
# make faults: real processes in the lab (root needed), every fault in every phase: a table, and a last line that counts. Half an hour;
# --fault, --phase, --n, --engine choose, --seed replays, see CONTRIBUTING.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_lab_of_faults faults
cargo build --locked -p potluck-cli ${gloo_features[@]+"${gloo_features[@]}"} >&2
POTLUCK_BIN="$(target_dir)/debug/potluck"
export POTLUCK_BIN
# Run without cargo, whose own words would be the last ones when a cell is red.
faults=$(cargo test --locked --no-run --message-format=json -p potluck ${gloo_features[@]+"${gloo_features[@]}"} --test faults |
    sed -n 's|.*"executable":"\([^"]*/faults-[^"]*\)".*|\1|p')
exec "$faults" matrix "$@"
