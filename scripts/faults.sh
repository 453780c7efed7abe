#!/usr/bin/env bash
# make faults: every fault in every phase, with real processes in the lab (needs root). Prints a
# table, and the counts in the last line. Takes forty minutes. --fault, --phase, --n and --engine
# select cells, --seed repeats a run, see CONTRIBUTING.md. MEMORY=1 lets all nodes exchange their
# data through shared memory, though each has a network of its own, in a build of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh
. scripts/suites.sh

need_lab_of_faults faults
if [ -n "${MEMORY:-}" ]; then
    export RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/rustc-with-mutants.sh" POTLUCK_HOST=faults
fi
# Run without cargo: after a failure cargo would append its own message.
built=$(build --no-run --test peer --test faults 2>&1) || { say "$built"; exit 1; }
exec "$(sed -n 's|^ *Executable tests/faults/main.rs (\(.*\))$|\1|p' <<<"$built")" matrix "$@"
