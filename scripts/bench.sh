#!/usr/bin/env bash
# make bench: real processes in the lab (root needed), about seven minutes after the build; --quick
# is a look, in two. --only gloo (sums, codecs, changes) runs one part. make bench-topology:
# machines that are not alike, beside Gloo's ring where Gloo is; about eight minutes, --quick three;
# --only PROFILE.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2
want_gloo
if [ "$(id -u)" -ne 0 ]; then
    say "The lab needs root: run this with sudo (or as lab/lab sandbox -- make ...)."
    exit 2
fi
cargo build --release --locked -p potluck-bench ${gloo_features[@]+"${gloo_features[@]}"} >&2

build_bare_gloo "$(target_dir)/release/bare-gloo"
exec "$(target_dir)/release/potluck-bench" "$@"
