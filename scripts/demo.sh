#!/usr/bin/env bash
# make demo: several peers on this machine find each other and compute sums. stdout contains only
# the demo's own output.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
want_gloo
say "Building potluck (release)"
cargo build --release --locked -p potluck-cli ${gloo_features[@]+"${gloo_features[@]}"} >&2
exec "$(target_dir)/release/potluck" demo "$@"
