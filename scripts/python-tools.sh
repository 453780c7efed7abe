# Sourced: the Pythons of this machine, the wheel of the package, and the counts of pytest. Needs
# machine.sh and count.sh; `made` and `venv` name folders.
# shellcheck shell=bash disable=SC2154

# The Pythons of this machine that the package is for, one for each version.
pythons() {
    local python version seen=" "
    for python in ${PYTHONS:-} python3.11 python3.12 python3.13 python3.14 python3; do
        version=$("$python" -c \
            'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
            continue
        at_least "$version" 3.11 || continue
        [[ $seen == *" $version "* ]] && continue
        seen+="$version "
        "$python" -c 'import sys; print(sys.executable)'
    done
}

# want_pythons: installs the module venv, which Debian's Python lacks, and fails if there is no
# Python for the package.
want_pythons() {
    [ -n "$(pythons)" ] || install_packages python3-venv
    [ -n "$(pythons)" ]
}

# want_tools PACKAGE...: the tools, in an environment of their own.
want_tools() {
    if [ ! -x "$venv/bin/python" ]; then
        if ! want_pythons; then
            say "There is no Python from 3.11 on with venv" \
                "(Debian, Ubuntu: apt-get install python3-venv); PYTHONS= names one."
            exit 2
        fi
        python=$(pythons | tail -n 1)
        "$python" -m venv "$venv" >&2 || exit
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2 || exit
}

# want_torch: PyTorch, if there is room for it.
want_torch() {
    local free
    if ! "$venv/bin/python" -c \
        'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' \
        2>/dev/null; then
        free=$(df --output=avail -k "$made" | tail -n 1)
        if [ "$free" -lt 12000000 ]; then
            say "PyTorch needs 12 GB for its installation, and $((free / 1000000)) GB are free."
            exit 2
        fi
        say "Installing PyTorch with pip (once)"
    fi
    want_tools 'torch>=2.6'
}

# wheel_of FOLDER OPTION...: builds the wheel there, and prints its path.
wheel_of() {
    local folder=$1
    rm -rf "$folder"
    PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv" "$venv/bin/maturin" build --locked \
        --manifest-path python/Cargo.toml --out "$folder" "${@:2}" >&2 && ls "$folder"/*.whl
}

# count_pytest STATUS LOG
count_pytest() {
    local count kind before=$failed
    while read -r count kind; do
        case $kind in
            passed) passed=$((passed + count)) ;;
            failed | error | errors) failed=$((failed + count)) ;;
            skipped) skipped=$((skipped + count)) ;;
        esac
    done < <(tail -n 1 "$2" | grep -oE '[0-9]+ (passed|failed|errors?|skipped)')
    while read -r kind; do failures+=("${kind#* }"); done < <(grep -E '^(FAILED|ERROR) ' "$2")
    if [ "$1" -ne 0 ] && [ "$failed" -eq "$before" ]; then
        failed=$((failed + 1))
        failures+=("pytest: ended early")
    fi
}
