#!/usr/bin/env bash
# make security: every threat of docs/security.md by the tests that provoke it, as a table, in the
# lab (needs root). The storms are long: JOINS=n (100) newcomers in each. Then LIARS=n (1000) groups
# in virtual time, of which one member lies. ARGS="T2 T10" chooses rows.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/gloo.sh
. scripts/suites.sh
exec </dev/null

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2 nft:nftables ethtool:ethtool
want_gloo
export POTLUCK_SEED=1 POTLUCK_STORM_JOINS="${JOINS:-100}"

# A row: threat, suite, words that choose its tests.
rows=$(sed -n 's/^| \(T[0-9]*\) | .* | `\([a-z]*\)` | `\(.*\)` |$/\1\t\2\t\3/p' docs/security.md)
[ "$(cut -f1 <<<"$rows" | sort -u | wc -l)" -eq 19 ] || {
    say "docs/security.md does not have T1 to T19."
    exit 2
}

must "build" build --no-run
must "programs" build_programs
[ "$failed" -eq 0 ] || report security
variant POTLUCK_BIN_WITH_MUTANTS with-mutants
table="" log=$(mktemp)
while IFS=$'\t' read -r threat name words; do
    case " $* " in "  " | *" $threat "*) ;; *) continue ;; esac
    before=$failed had=$passed
    heading "$threat" "$name: $words"
    suite "$name" "$words" >"$log" 2>&1
    status=$?
    cat "$log"
    count_results "$threat" "$status" "$log"
    if [ "$failed" -eq "$before" ] && [ "$passed" -eq "$had" ]; then
        # A row without a test proves nothing.
        [ "$skipped" -gt 0 ] || {
            failed=$((failed + 1)) && failures+=("$threat: no test is called $words")
        }
        verdict="not run"
    elif [ "$failed" -gt "$before" ]; then
        verdict="FAILED"
    else
        verdict="$((passed - had)) passed"
    fi
    table+="$(printf '%-4s %-12s %-10s %s' "$threat" "$verdict" "$name" "$words")"$'\n'
done <<<"$rows"
rm -f "$log"
case " $* " in
    "  " | *" liars "*)
        check "members beside a liar" env SEEDS="${LIARS:-1000}" MUTANT=lies scripts/sim.sh
        ;;
esac
printf '\n%s' "$table"
report security
