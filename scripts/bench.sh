#!/usr/bin/env bash
# make bench: real processes in the lab (root needed), about fifteen minutes; --quick is a look, in two. --only gloo (sums,
# changes) runs one part.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2
want_gloo
if [ "$(id -u)" -ne 0 ]; then
    say "The lab needs root: run this with sudo, or as lab/lab sandbox -- make bench."
    exit 2
fi
cargo build --release --locked -p potluck-bench ${gloo_features[@]+"${gloo_features[@]}"} >&2

# Gloo by itself, for the comparison; the program finds it beside itself.
bare_gloo() {
    local folder where=()
    if [ -n "${GLOO_ROOT:-}" ]; then
        where=(-isystem "$GLOO_ROOT/include")
        for folder in "$GLOO_ROOT/lib" "$GLOO_ROOT/lib64"; do
            where+=("-L$folder" "-Wl,-rpath,$folder")
        done
    fi
    c++ -std=c++17 -O3 -Wall -Wextra ${where[@]+"${where[@]}"} -o "$1" benches/gloo/bare.cc -lgloo -pthread >&2
}
bare="$(target_dir)/release/bare-gloo"
rm -f "$bare"
if [ -z "$gloo_missing" ] && ! bare_gloo "$bare"; then
    say "benches/gloo/bare.cc does not build with this Gloo (it needs Gloo's own TCP transport): no comparison."
fi
exec "$(target_dir)/release/potluck-bench" "$@"
