# The requirements of the scripts on the machine, and their installation. Sourced by the other
# scripts; all messages go to stderr.
# shellcheck shell=bash

# On Debian the PATH of a plain user lacks the sbin directories; cargo may be installed for this
# user only.
export PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin:$HOME/.cargo/bin"

say() { printf '%s\n' "$*" >&2; }

have() { command -v "$1" >/dev/null 2>&1; }

has_cc() {
    echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1
}

has_cxx() {
    echo '#include <vector>' | c++ -E -x c++ - >/dev/null 2>&1
}

# need_c_compiler: `ring` contains C code, and Rust links with the C compiler.
need_c_compiler() {
    has_cc && return
    if [ "$(uname)" = Darwin ]; then
        say "A C compiler is missing. Get it with: xcode-select --install"
        exit 2
    fi
    if ! install_packages gcc libc6-dev || ! has_cc; then
        say "A C compiler is missing. Get it from your system's packages" \
            "(Debian, Ubuntu: apt-get install gcc libc6-dev)."
        exit 2
    fi
}

# want_programs PROGRAM:PACKAGE...: installs missing programs if possible; prints a message
# otherwise.
want_programs() {
    local pair missing=()
    for pair in "$@"; do
        have "${pair%%:*}" || missing+=("${pair##*:}")
    done
    [ ${#missing[@]} -eq 0 ] && return
    install_packages "${missing[@]}" ||
        say "Not installed: ${missing[*]}. Steps that need them are skipped."
}

# skip_python_shim: puts the Python that `python3` starts first in the PATH. The `python3` of a
# version manager is a script that searches for it, which takes longer than most calls of lab/lab.
skip_python_shim() {
    local python
    python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) || return 0
    [ "$(command -v python3)" = "$python" ] || export PATH="${python%/*}:$PATH"
}

# install_packages PACKAGE...: by apt-get, as root or with sudo; never asks for a password without a
# terminal.
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
    # An unreachable package source may not matter: the installation decides.
    "${as_root[@]}" update >&2
    "${as_root[@]}" install -y --no-install-recommends "$@" </dev/null >&2
}

# shellcheck disable=SC2034 # gloo_features is for scripts that source this
# want_gloo: prepares the Gloo engine, which is optional. Sets gloo_features to cargo's options, or
# gloo_missing to the reason why they are empty. `GLOO_ROOT= make test` disables Gloo on purpose.
want_gloo() {
    gloo_features=() gloo_missing=
    if has_gloo; then
        gloo_features=(--features gloo)
        return
    fi
    if [ -n "${GLOO_ROOT+set}" ]; then
        gloo_missing="GLOO_ROOT is '$GLOO_ROOT', and CMake finds no Gloo there that fits"
    elif [ "$(uname)" = Darwin ]; then
        gloo_missing="macOS has no package of Gloo"
    elif ! install_packages libgloo-dev cmake g++ || ! has_gloo; then
        gloo_missing="there is none on this machine"
        gloo_missing+=" (Debian, Ubuntu: apt-get install libgloo-dev cmake g++)"
    else
        gloo_features=(--features gloo)
        return
    fi
    say "Without the Gloo engine, because $gloo_missing: everything else runs," \
        "and docs/gloo.md tells how to get it."
}

# Makes the same check as the build, so that both always agree: CMake, only in GLOO_ROOT if that is
# set.
has_gloo() {
    local folder status root=(-DPOTLUCK_GLOO_ROOT_ONLY=OFF)
    have cmake && has_cxx && [ -f cpp/CMakeLists.txt ] || return 1
    [ -z "${GLOO_ROOT+set}" ] || root=(-DPOTLUCK_GLOO_ROOT_ONLY=ON "-DPOTLUCK_GLOO_ROOT=$GLOO_ROOT")
    folder=$(mktemp -d) || return 1
    cmake -S cpp -B "$folder" -DPOTLUCK_CHECK=ON "${root[@]}" >/dev/null 2>&1
    status=$?
    rm -rf "$folder"
    return "$status"
}

# need_rust: requires at least the version in Cargo.toml.
need_rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' Cargo.toml | head -n 1)
    found=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9]*\.[0-9]*\).*/\1/p') || true
    if ! have cargo || [ -z "$found" ] || ! at_least "$found" "$wanted"; then
        say "potluck needs Rust $wanted or newer (found: ${found:-none}):" \
            "get it from https://rustup.rs, or run 'rustup update stable'."
        exit 2
    fi
}

# at_least FOUND WANTED, for example `at_least 1.95 1.89`
at_least() {
    local major=${1%%.*} minor=${1#*.} wanted_major=${2%%.*} wanted_minor=${2#*.}
    minor=${minor%%.*} wanted_minor=${wanted_minor%%.*}
    [ "$major" -gt "$wanted_major" ] ||
        { [ "$major" -eq "$wanted_major" ] && [ "$minor" -ge "$wanted_minor" ]; }
}

# need_cargo_tool CRATE VERSION: the program has the crate's name.
need_cargo_tool() {
    have "$1" && return
    say "Installing $1 $2 with cargo (a few minutes, once)"
    # Without optimization: it is built more often than it is run.
    cargo install --locked --debug "$1" --version "$2" --quiet >&2
}

# has_x86_64_v3: whether this processor runs such programs. Detected on Linux only.
has_x86_64_v3() {
    local feature
    [ "$(uname -m)" = x86_64 ] || return 1
    for feature in avx2 bmi1 bmi2 f16c fma abm movbe; do
        grep -qw "$feature" /proc/cpuinfo 2>/dev/null || return 1
    done
}

target_dir() {
    local dir=${CARGO_TARGET_DIR:-target}
    case $dir in
        /*) printf '%s\n' "$dir" ;;
        *) printf '%s/%s\n' "$PWD" "$dir" ;;
    esac
}

# Builds bare Gloo as the baseline of benchmarks, to the path $1, which is beside our program. Call
# want_gloo before.
build_bare_gloo() {
    local folder where=()
    if [ -n "${GLOO_ROOT:-}" ]; then
        where=(-isystem "$GLOO_ROOT/include")
        for folder in "$GLOO_ROOT/lib" "$GLOO_ROOT/lib64"; do
            where+=("-L$folder" "-Wl,-rpath,$folder")
        done
    fi
    rm -f "$1"
    if [ -z "$gloo_missing" ] &&
        ! c++ -std=c++17 -O3 -Wall -Wextra ${where[@]+"${where[@]}"} -o "$1" benches/gloo/bare.cc \
            -lgloo -pthread >&2; then
        say "benches/gloo/bare.cc does not build with this Gloo" \
            "(it needs Gloo's own TCP transport): no comparison."
    fi
}

# Prepares the machine for fault tests: the lab with everything that it breaks. $1 is the make
# target.
need_lab_of_faults() {
    need_rust
    need_c_compiler
    want_programs python3:python3 ip:iproute2 nft:nftables ethtool:ethtool iptables:iptables \
        mkfs.ext4:e2fsprogs
    want_gloo
    if [ "$(id -u)" -ne 0 ]; then
        say "The lab needs root: run this with sudo, or as lab/lab sandbox -- make $1."
        exit 2
    fi
}
