#!/usr/bin/env bash
# make faults: real processes in the lab (root needed), every fault in every phase: a table, and a
# last line that counts. Half an hour; --fault, --phase, --n, --engine choose, --seed replays, see
# CONTRIBUTING.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh
. scripts/suites.sh

need_lab_of_faults faults
# Run without cargo, whose own words would be the last ones when a cell is red.
built=$(build --no-run --test cli --test faults 2>&1) || { say "$built"; exit 1; }
exec "$(sed -n 's|^ *Executable tests/faults/main.rs (\(.*\))$|\1|p' <<<"$built")" matrix "$@"
