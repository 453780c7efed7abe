#!/usr/bin/env bash
# make first-minutes: from nothing to a verified all_reduce on two machines of the lab (needs root),
# with two commands on each, within a minute. ARGS=code: the second machine enters by the code of
# `potluck invite`; ARGS=key: by a key that is piped, as with ssh. POTLUCK and QUICKSTART name the
# programs; without them both are built.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

by=${1:-code}
if [ -z "${POTLUCK:-}" ] || [ -z "${QUICKSTART:-}" ]; then
    need_rust
    need_c_compiler
    want_programs python3:python3 ip:iproute2
    cargo build --release --locked -p potluck-cli >&2
    cargo build --release --locked -p potluck --example quickstart >&2
    POTLUCK=$(target_dir)/release/potluck
    QUICKSTART=$(target_dir)/release/examples/quickstart
fi
if [ "$(id -u)" -ne 0 ]; then
    say "The lab needs root: run this with sudo, or as lab/lab sandbox -- make first-minutes."
    exit 2
fi

export LAB="first_minutes_$$"
folder=$(mktemp -d)
started=()
end() {
    for pid in ${started[@]+"${started[@]}"}; do kill "$pid" 2>/dev/null || true; done
    lab/lab down >/dev/null
    rm -rf "$folder"
}
trap end EXIT
lab/lab up loop --nodes 2 --owner $$ >/dev/null

# on MACHINE COMMAND...: as that machine, whose home is empty at the beginning.
on() {
    local machine=$1
    shift
    HOME="$folder/$machine" XDG_CONFIG_HOME='' XDG_STATE_HOME='' lab/lab exec "$machine" "$@"
}

# until_printed FILE TEXT: waits until the file has the text, for half a minute at most.
until_printed() {
    local tries=300
    until grep -q "$2" "$1" 2>/dev/null; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { say "'$2' was not printed:" && cat "$1" >&2 && exit 1; }
        sleep 0.1
    done
}

began=$SECONDS
case $by in
    code)
        on n1 "$POTLUCK" invite >"$folder/invite" &
        started+=($!)
        until_printed "$folder/invite" 'potluck join '
        code=$(sed -n 's/.*potluck join \([0-9-]*\)$/\1/p' "$folder/invite")
        on n2 "$POTLUCK" join "$code"
        ;;
    key)
        on n1 "$POTLUCK" up >"$folder/up" &
        started+=($!)
        until_printed "$folder/up" 'Made a new cluster key'
        on n1 "$POTLUCK" key --show | on n2 "$POTLUCK" join
        ;;
    *)
        say "code or key, not $by"
        exit 2
        ;;
esac
on n1 "$QUICKSTART" >"$folder/n1.sum" &
first=$!
started+=("$first")
on n2 "$QUICKSTART" >"$folder/n2.sum"
wait "$first"
took=$((SECONDS - began))
cat "$folder/n1.sum" "$folder/n2.sum"
# 1 + 1, 2 + 2, 3 + 3, and the ranks 0 + 1.
printf 'rank %s of 2: [2.0, 4.0, 6.0, 1.0]\n' 0 1 >"$folder/wanted"
sort "$folder/n1.sum" "$folder/n2.sum" | cmp - "$folder/wanted"
[ "$took" -lt 60 ] || { say "It took $took s."; exit 1; }
echo "From nothing to a verified sum by $by: two machines, two commands each, $took s."
