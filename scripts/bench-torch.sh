#!/usr/bin/env bash
# make bench-torch: the backend of PyTorch beside gloo on four machines of the lab (needs root),
# about a quarter of an hour after the build. PyTorch is that of make test-torch. ARGS="mixed4" runs
# one profile.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/python-tools.sh
exec </dev/null

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2
if [ "$(id -u)" -ne 0 ]; then
    say "The lab needs root: run this with sudo."
    exit 2
fi
made="$(target_dir)/torch" venv="$(target_dir)/clients/venv"
mkdir -p "$made"
want_torch
want_tools 'maturin>=1.16,<2' numpy
wheel=$(wheel_of "$made/release" --release) || exit
"$venv/bin/python3" -m pip install --quiet --no-index --no-deps --force-reinstall \
    --disable-pip-version-check "$wheel" >&2 || exit

home=$(mktemp -d)
export LAB="torch_$$"
trap 'lab/lab down >/dev/null 2>&1; rm -rf "$home"' EXIT
"$venv/bin/python3" python/benches/beside_gloo.py "$home" "$@"
