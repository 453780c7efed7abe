#!/usr/bin/env bash
# make test: builds the tests and runs them, two suites at a time. The last line counts.
# With arguments one suite, or what of it the filters name: make test ARGS="contract mismatch"
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/gloo.sh
. scripts/suites.sh
exec </dev/null

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2 nft:nftables ethtool:ethtool iptables:iptables
want_gloo
# The same every time, also what is left to chance; `POTLUCK_SEED= make test` leaves it to chance.
export POTLUCK_SEED=${POTLUCK_SEED-1}
[ -n "$POTLUCK_SEED" ] || unset POTLUCK_SEED

if [ $# -gt 0 ]; then
    # Most suites start the command line, which cargo builds with the tests of that.
    build --no-run --quiet --test cli && suite "$@"
    exit
fi

# One node without Gloo for the tests of mixed groups, one for a newer processor for the tests of
# the bits.
[ -n "$gloo_missing" ] || variant POTLUCK_BIN_WITHOUT_GLOO without-gloo
! has_x86_64_v3 || variant POTLUCK_BIN_X86_64_V3 for-x86-64-v3
must "build" build --no-run
[ "$failed" -eq 0 ] || report test

suites=$(all_suites)
# None of tests/ would be a run that shows nothing and passes.
must "suites that are built" grep -qx processes <<<"$suites"
# shellcheck disable=SC2086 # a word each
run_suites $suites
# The tests of the Gloo engine are not compiled without it: one line stands for all of them.
[ -z "$gloo_missing" ] || skip "unit tests of the Gloo engine" "$gloo_missing"
check "a build that lacks Gloo says what to install" lack_of_gloo
report test
