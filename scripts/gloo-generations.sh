#!/usr/bin/env bash
# make gloo-generations ARGS="DIR...": builds the Gloo sources in each DIR, without optional
# transports, into a prefix under target/, and tests potluck against it. Nothing is downloaded. Use
# it for versions that no distribution has yet, for example a checkout of the newest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/machine.sh

if [ $# -eq 0 ]; then
    say "Name one or more folders with the sources of Gloo: make gloo-generations ARGS=\"DIR...\""
    exit 2
fi
need_rust
need_c_compiler
want_programs cmake:cmake c++:g++

work=$(target_dir)/gloo-generations
for sources in "$@"; do
    if [ ! -f "$sources/gloo/CMakeLists.txt" ]; then
        say "$sources holds no sources of Gloo"
        exit 2
    fi
    name=$(basename "$sources")
    say "== $name: building Gloo"
    rm -rf "${work:?}/$name"
    mkdir -p "$work/$name"
    cp -R "$sources" "$work/$name/sources"
    # The TCP transport is built automatically on Linux. On other systems there is none, and potluck
    # does not need one.
    sed -i.orig 's/STREQUAL "Linux"/STREQUAL "none"/' "$work/$name/sources/gloo/CMakeLists.txt"
    {
        cmake -S "$work/$name/sources" -B "$work/$name/build" -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_INSTALL_PREFIX="$work/$name/prefix" -DCMAKE_POLICY_VERSION_MINIMUM=3.5
        cmake --build "$work/$name/build" --parallel 2
        cmake --install "$work/$name/build"
    } >"$work/$name/log" 2>&1 || {
        tail -n 20 "$work/$name/log" >&2
        say "$name: Gloo does not build, see $work/$name/log"
        exit 1
    }
    say "== $name: testing potluck"
    GLOO_ROOT="$work/$name/prefix" cargo test --locked -p potluck --features gloo --lib gloo_ffi
done
