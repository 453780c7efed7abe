#!/usr/bin/env bash
# make bench: benchmarks of real processes in the lab (needs root), about ten minutes after the
# build, three with --quick. --only PART runs one part (gloo, sums, codecs, changes, growth). make
# bench-topology: heterogeneous machines, compared with Gloo's ring if Gloo is available; about
# eight minutes, three with --quick, and at most two minutes (40 s) more for each of five homes with
# shared segments; --only PROFILE runs one profile.
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
