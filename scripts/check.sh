#!/usr/bin/env bash
# make check: formatting, lints, documentation, licences. Never writes to the sources.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/gloo.sh

need_rust
need_c_compiler
want_gloo
run_checks
report
