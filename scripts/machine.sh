# What a machine must have, and how it gets it. Sourced by the other scripts; everything is said on stderr.
# shellcheck shell=bash

# A plain user's path on Debian has neither; cargo may be installed for this user only.
export PATH="$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin"

say() { printf '%s\n' "$*" >&2; }

have() { command -v "$1" >/dev/null 2>&1; }

has_cc() {
    echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1
}

has_cxx() {
    echo '#include <vector>' | c++ -E -x c++ - >/dev/null 2>&1
}

# has_gloo: whether the feature `gloo` can be built here; asks the build's own CMake file.
has_gloo() {
    have cmake && has_cxx || return 1
    local folder status=0
    folder=$(mktemp -d)
    cmake -S cpp -B "$folder" -DPOTLUCK_CHECK=ON \
        ${GLOO_ROOT+-DPOTLUCK_GLOO_ROOT_ONLY=ON "-DPOTLUCK_GLOO_ROOT=$GLOO_ROOT"} >/dev/null 2>&1 || status=1
    rm -rf "$folder"
    return $status
}

# need_c_compiler: `ring` holds some C, and Rust links with it.
need_c_compiler() {
    has_cc && return
    if [ "$(uname)" = Darwin ]; then
        say "A C compiler is missing. Get it with: xcode-select --install"
        exit 2
    fi
    if ! install_packages gcc libc6-dev || ! has_cc; then
        say "A C compiler is missing. Get it from your system's packages (Debian, Ubuntu: apt-get install gcc libc6-dev)."
        exit 2
    fi
}

# want_program PROGRAM:PACKAGE...: installs what is missing where that is possible; says so where it is not.
want_programs() {
    local pair missing=()
    for pair in "$@"; do
        have "${pair%%:*}" || missing+=("${pair##*:}")
    done
    [ ${#missing[@]} -eq 0 ] && return
    install_packages "${missing[@]}" || say "Not installed: ${missing[*]}. What needs them is skipped."
}

# install_packages PACKAGE...: by apt-get, as root or by sudo; without a question where nobody can answer.
install_packages() {
    have apt-get || return 1
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || return 1
        as_root=(sudo)
        [ -t 0 ] && [ -z "${CI:-}" ] || as_root=(sudo -n)
    fi
    say "Installing from the system's packages: $*"
    as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120)
    # One unreachable source need not matter: installing says whether it did.
    "${as_root[@]}" update >&2
    "${as_root[@]}" install -y --no-install-recommends "$@" </dev/null >&2
}

# need_rust: at least the version that Cargo.toml states.
need_rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' Cargo.toml | head -n 1)
    found=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p') || true
    if ! have cargo || [ -z "$found" ] || ! at_least "$found" "$wanted"; then
        say "potluck needs Rust $wanted or newer (found: ${found:-none}): get it from https://rustup.rs, or run 'rustup update stable'."
        exit 2
    fi
}

# at_least 1.95 1.89
at_least() {
    local major=${1%%.*} minor=${1#*.} wanted_major=${2%%.*} wanted_minor=${2#*.}
    minor=${minor%%.*} wanted_minor=${wanted_minor%%.*}
    [ "$major" -gt "$wanted_major" ] || { [ "$major" -eq "$wanted_major" ] && [ "$minor" -ge "$wanted_minor" ]; }
}

# need_cargo_tool PROGRAM CRATE VERSION
need_cargo_tool() {
    have "$1" && return
    say "Installing $2 $3 with cargo (a few minutes, once)"
    cargo install --locked "$2" --version "$3" --quiet >&2
}

target_dir() {
    local dir=${CARGO_TARGET_DIR:-target}
    case $dir in
        /*) printf '%s\n' "$dir" ;;
        *) printf '%s/%s\n' "$PWD" "$dir" ;;
    esac
}
