#!/usr/bin/env bash
# make soak: real processes in the lab (needs root) with every kind of call and fault for MINUTES=n
# (5), and a check of their logs. SEED=n repeats the choices of a run, ENGINE=native|gloo selects
# the engine. MUTANT=engine|sync|replay|ledger|silent breaks a rule that the check must find, in a
# build of its own. MEMORY=1 lets all nodes exchange their data through shared memory, though each
# has a network of its own, in the same build.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh
. scripts/suites.sh

need_lab_of_faults soak
words=(--minutes "${MINUTES:-5}")
[ -z "${SEED:-}" ] || words+=(--seed "$SEED")
[ -z "${ENGINE:-}" ] || words+=(--engine "$ENGINE")
if [ -n "${MUTANT:-}${MEMORY:-}" ]; then
    export RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/rustc-with-mutants.sh"
fi
[ -z "${MUTANT:-}" ] || words+=(--mutant "$MUTANT")
[ -z "${MEMORY:-}" ] || export POTLUCK_HOST=soak
# Run without cargo: after a failure cargo would append its own message.
built=$(build --no-run --test soak 2>&1) || { say "$built"; exit 1; }
exec "$(sed -n 's|^ *Executable tests/soak/main.rs (\(.*\))$|\1|p' <<<"$built")" run \
    "${words[@]}" "$@"
