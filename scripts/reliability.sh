#!/usr/bin/env bash
# make reliability: the fault matrix, then how long a group takes to form and to go on, a hundred
# times each, and docs/reliability.md with both. An hour on a machine with nothing else to do;
# --quick is a look at the times, in a minute, and writes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_lab_of_faults reliability
cargo build --release --locked -p potluck-bench ${gloo_features[@]+"${gloo_features[@]}"} >&2
bench="$(target_dir)/release/potluck-bench"
if [ $# -gt 0 ]; then
    exec "$bench" reliability "$@"
fi
matrix="$(target_dir)/faults.md"
rm -f "$matrix"
green=0
# What is red there is in the document too.
scripts/faults.sh --out "$matrix" || green=$?
"$bench" reliability "$matrix" || exit
exit "$green"
