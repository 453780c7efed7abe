#!/usr/bin/env bash
# make reliability: runs the fault matrix, then measures a hundred times each how long a group takes
# to form and to recover, and lets sixteen processes sum for five minutes; writes all of it to
# docs/reliability.md. Takes an hour and a half on an idle machine. --quick measures only the times,
# in a minute, --crowd only the sixteen processes; both write nothing.
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
# The document contains failed cells too.
scripts/faults.sh --out "$matrix" || green=$?
"$bench" reliability "$matrix" || exit
exit "$green"
