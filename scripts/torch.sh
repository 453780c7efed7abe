#!/usr/bin/env bash
# make test-torch: the PyTorch backend with PyTorch from PyPI, which takes 6 GB below
# target/clients, once. The counts are in the last line. ARGS="test_ends.py -k renew" goes to
# pytest.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/python-tools.sh
exec </dev/null

need_rust
need_c_compiler
# PyTorch is the one of the clients, see scripts/clients.sh.
made="$(target_dir)/torch" venv="$(target_dir)/clients/venv"
mkdir -p "$made"

want_torch
want_tools 'maturin>=1.16,<2' numpy pytest mypy scikit-learn expecttest lightning transformers \
    accelerate
heading build "the package, without optimization"
wheel=$(wheel_of "$made/dev" --profile dev) || exit
"$venv/bin/python3" -m pip install --quiet --no-index --no-deps --force-reinstall \
    --disable-pip-version-check "$wheel" || exit
heading pytest "$@"
(cd python/torch-tests && "$venv/bin/python3" -m pytest -p no:cacheprovider "$@") 2>&1 |
    tee "$made/log"
count_pytest "${PIPESTATUS[0]}" "$made/log"
if [ $# -eq 0 ]; then
    check "types of the backend" \
        "$venv/bin/python3" -m mypy --config-file python/pyproject.toml python/potluck/torch
fi
report torch
