#!/usr/bin/env bash
# make test-python: builds the Python package without optimization, and tests it and its types; the
# counts are in the last line. Its tools come from PyPI, once. ARGS="test_ends.py -k fork" goes to
# pytest. `scripts/python.sh wheel` makes the wheel for other machines (optimized, without torch or
# NumPy) and runs it on every Python from 3.11 on: PYTHONS="/a/python /b/python" names more of them.
# shellcheck disable=SC2317 # check runs functions by their names
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/python-tools.sh
exec </dev/null

need_rust
need_c_compiler
made="$(target_dir)/python" venv="$(target_dir)/python/venv"
mkdir -p "$made"
rm -f "$(target_dir)/summary-python"

# sums_in_two PYTHON...: the example in two processes, on the loopback interface alone.
sums_in_two() {
    local first second status home
    home=$(mktemp -d) || return
    POTLUCK_HOME="$home" timeout 60 "$@" python/examples/sum.py --here &
    first=$!
    POTLUCK_HOME="$home" timeout 60 "$@" python/examples/sum.py --here &
    second=$!
    wait "$first" && wait "$second"
    status=$?
    rm -rf "$home"
    return "$status"
}

# installs PYTHON WHEEL: in an empty environment, from no index and without a compiler.
installs() {
    local own
    own="$made/empty-$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    rm -rf "$own"
    "$1" -m venv "$own" || return
    PATH="$own/bin" "$own/bin/python" -m pip install --quiet --no-index \
        --disable-pip-version-check "$2" || return
    [ -n "$(PATH="$own/bin" "$own/bin/potluck" --version)" ] || return
    sums_in_two env "PATH=$own/bin" "$own/bin/python" -I -W error
}

is_small() { [ "$(stat -c %s "$1")" -lt 8000000 ]; }

# is_for_old_systems WHEEL: runs with glibc 2.28, by the symbol versions that its library needs.
is_for_old_systems() {
    local minor
    minor=$("$venv/bin/auditwheel" show "$1" | tee /dev/stderr | tr '\n' ' ' |
        sed -n 's/.*platform tag: *"manylinux_2_\([0-9]*\)_.*/\1/p')
    [ -n "$minor" ] && [ "$minor" -le 28 ]
}

if [ "${1:-}" = wheel ]; then
    want_tools 'maturin>=1.16,<2' auditwheel ziglang
    wheel=$(wheel_of "$made/wheel" --release --strip --zig --compatibility manylinux_2_28) || exit
    ls -l "$wheel"
    check "the wheel is smaller than 8 MB" is_small "$wheel"
    check "the wheel runs on systems with glibc 2.28" is_for_old_systems "$wheel"
    while read -r python; do
        check "$("$python" --version) installs it, and two processes sum" \
            installs "$python" "$wheel"
    done < <(pythons)
    report wheel
fi

want_tools 'maturin>=1.16,<2' numpy pytest mypy
heading build "the package, without optimization"
wheel=$(wheel_of "$made/dev" --profile dev) || exit
"$venv/bin/python" -m pip install --quiet --no-index --no-deps --force-reinstall \
    --disable-pip-version-check "$wheel" || exit
heading pytest "$@"
# From another folder: the package is the installed one.
(cd python/tests && "$venv/bin/python" -m pytest -p no:cacheprovider "$@") 2>&1 | tee "$made/log"
count_pytest "${PIPESTATUS[0]}" "$made/log"
if [ $# -eq 0 ]; then
    check "types of the package and of the examples" \
        "$venv/bin/python" -m mypy --config-file python/pyproject.toml --exclude potluck/torch \
        python/potluck python/examples
    check "the stubs are those of the module" "$venv/bin/python" -m mypy.stubtest potluck._native
    check "the example of the documentation" sums_in_two "$venv/bin/python"
fi
report python
