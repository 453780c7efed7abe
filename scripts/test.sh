#!/usr/bin/env bash
# make test: builds the tests and runs them, two suites at a time; the counts are in the last line.
# With arguments it runs one suite, filtered: make test ARGS="contract mismatch"
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/gloo.sh
. scripts/suites.sh
. scripts/python-tools.sh
exec </dev/null

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2 nft:nftables ethtool:ethtool iptables:iptables \
    mkfs.ext4:e2fsprogs faketime:faketime pkg-config:pkg-config mcs:mono-mcs mono:mono-runtime
skip_python_shim
want_gloo
# A fixed seed, so that every run makes the same choices; `POTLUCK_SEED= make test` makes random
# ones.
export POTLUCK_SEED=${POTLUCK_SEED-1}
[ -n "$POTLUCK_SEED" ] || unset POTLUCK_SEED

if [ $# -gt 0 ]; then
    build_programs && suite "$@"
    exit
fi

# One build without Gloo for the tests of mixed groups, one for a newer processor for the tests of
# bit-identical results, and one in which the environment can break a rule.
[ -n "$gloo_missing" ] || variant POTLUCK_BIN_WITHOUT_GLOO without-gloo
! has_x86_64_v3 || variant POTLUCK_BIN_X86_64_V3 for-x86-64-v3
variant POTLUCK_BIN_WITH_MUTANTS with-mutants
must "build" build --no-run
must "libraries" build_libraries
[ "$failed" -eq 0 ] || report test

suites=$(all_suites)
# Without suites from tests/, the run would pass without testing anything.
must "suites that are built" grep -qx processes <<<"$suites"
# shellcheck disable=SC2086 # a word each
run_suites $suites
# Without Gloo the tests of the Gloo engine are not compiled: one line counts for all of them.
[ -z "$gloo_missing" ] || skip "unit tests of the Gloo engine" "$gloo_missing"
check "a build that lacks Gloo says what to install" lack_of_gloo
if want_pythons; then
    heading python "the Python package"
    scripts/python.sh
    add_summary python
else
    skip "the Python package" "there is no Python from 3.11 on with venv"
fi
report test
