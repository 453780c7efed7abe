# What holds of builds without Gloo. Sourced by check.sh and test.sh.
# shellcheck shell=bash

cxx_crates='^(autocxx[a-z-]*|bindgen|cmake|cpp[a-z_]*|cxx|cxx-[a-z]+|cxxbridge-[a-z]+|link-cplusplus) v'

# no_cxx: what potluck builds with unless told otherwise has no C++ in it, and no tool to build any.
no_cxx() {
    local package crates status=0
    for package in potluck potluck-cli; do
        crates=$(crates_of "$package") || return
        if printf '%s\n' "$crates" | grep -E "$cxx_crates"; then
            echo "$package: its default features pull in the above"
            status=1
        fi
        # Some C there is, of one crate.
        crates=$(crates_of "$package" --invert cc --depth 1) || return
        if printf '%s\n' "$crates" | grep -Ev '^(cc|ring) v'; then
            echo "$package: by default the above also compile something"
            status=1
        fi
    done
    # With the feature they are there, or this check would find nothing ever. No pipe: grep ends at
    # the first one it finds, and who still writes then has failed.
    crates=$(crates_of potluck --features gloo) || return
    if ! grep -Eq "$cxx_crates" <<<"$crates"; then
        echo "potluck: the feature gloo does not bring C++ under any name that is looked for"
        status=1
    fi
    return "$status"
}

# crates_of PACKAGE ARGUMENT...: what is compiled for it on any platform, a line each.
crates_of() {
    cargo tree --locked --target all -e normal,build --prefix none --format '{p}' -p "$@"
}

# lack_of_gloo: what somebody reads who turns the feature on and has no Gloo. Where there is none, a
# build tells. Elsewhere one that fails would make cargo build the library anew, twice; so the build
# script that cargo made is run as cargo runs it, with a GLOO_ROOT that is set and empty: then
# nothing is searched.
lack_of_gloo() {
    local log script said
    log=$(mktemp)
    if script=$(cargo test --locked --features gloo,metrics --no-run --message-format=json 2>"$log" | build_script); then
        said=$(run_build_script "$script")
    else
        said=$(cat "$log")
    fi
    rm -f "$log"
    printf '%s\n' "$said"
    # `cargo::error=` is what cargo shows as an error of the package, without a panic around it.
    said=$(printf '%s\n' "$said" | grep -E '^cargo::error=|^error: potluck@')
    [ "$(printf '%s\n' "$said" | grep -c .)" -eq 1 ] && [[ $said == *libgloo-dev* && $said == *docs/gloo.md* ]]
}

# build_script: its path, out of what cargo says of a build.
build_script() {
    local said
    said=$(cat)
    case $said in *'"reason":"build-finished","success":true'*) ;; *) return 1 ;; esac
    printf '%s\n' "$said" | grep -F '{"reason":"compiler-artifact"' | grep -F '"kind":["custom-build"]' |
        grep -F "\"manifest_path\":\"$PWD/Cargo.toml\"" |
        sed -n 's/.*"filenames":\["\([^"]*\)".*/\1/p'
}

run_build_script() {
    local host scratch
    host=$(rustc -vV | sed -n 's/^host: //p')
    scratch=$(mktemp -d) || return
    GLOO_ROOT='' OUT_DIR=$scratch CARGO_MANIFEST_DIR=$PWD CARGO_FEATURE_GLOO=1 CARGO_ENCODED_RUSTFLAGS='' \
        HOST=$host TARGET=$host PROFILE=debug OPT_LEVEL=0 DEBUG=true NUM_JOBS=1 "$1" 2>&1
    rm -rf "$scratch"
}
