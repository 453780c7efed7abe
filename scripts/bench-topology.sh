#!/usr/bin/env bash
# make bench-topology: unequal machines in the lab (root needed), beside Gloo's ring where Gloo is; about five minutes, --quick two; --only PROFILE.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2
want_gloo
if [ "$(id -u)" -ne 0 ]; then
    say "The lab needs root: run this with sudo, or as lab/lab sandbox -- make bench-topology."
    exit 2
fi
cargo build --release --locked -p potluck-bench >&2
build_bare_gloo "$(target_dir)/release/bare-gloo"
exec "$(target_dir)/release/potluck-bench" topology "$@"
