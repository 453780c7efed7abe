#!/usr/bin/env bash
# make train: four processes train on handwritten digits in the lab (needs root), about five
# minutes; --quick is shorter. The digits are part of scikit-learn's wheel, which pip downloads
# once. Without them the run uses synthetic pictures and does not judge the accuracy.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2 pip3:python3-pip
if [ "$(id -u)" -ne 0 ]; then
    say "The lab needs root: run this with sudo, or as lab/lab sandbox -- make train."
    exit 2
fi

digits="$(target_dir)/digits.csv.gz"
fetch_digits() {
    local folder
    folder=$(mktemp -d)
    say "Fetching the digits (scikit-learn's wheel, 10 MB, once)"
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$folder" \
        scikit-learn >&2 &&
        python3 - "$folder" "$digits.new" <<'PYTHON' && mv "$digits.new" "$digits"
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
digits = zipfile.ZipFile(wheel).read("sklearn/datasets/data/digits.csv.gz")
pathlib.Path(sys.argv[2]).write_bytes(digits)
PYTHON
    local status=$?
    rm -rf "$folder"
    return "$status"
}
given=()
mkdir -p "$(target_dir)"
if [ -s "$digits" ] || fetch_digits; then
    given=(--digits "$digits")
else
    say "The digits cannot be had here."
fi

# A separate workspace with its own target directory.
export CARGO_TARGET_DIR
CARGO_TARGET_DIR="$(target_dir)/digits"
cargo test --release --locked --quiet --manifest-path examples/train-digits/Cargo.toml >&2
cargo build --release --locked --manifest-path examples/train-digits/Cargo.toml >&2
exec "$CARGO_TARGET_DIR/release/train-digits" run "$@" ${given[@]+"${given[@]}"} docs
