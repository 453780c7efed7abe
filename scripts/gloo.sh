# Checks on builds without Gloo. Sourced by the other scripts.
# shellcheck shell=bash

cxx_crates='^(autocxx[a-z-]*|bindgen|cmake|cpp[a-z_]*|cxx|cxx-[a-z]+'
cxx_crates+='|cxxbridge-[a-z]+|link-cplusplus) v'

# no_cxx: the default build contains no C++ code and no tool that compiles any.
no_cxx() {
    local package crates status=0
    for package in potluck potluck-cli; do
        crates=$(crates_of "$package") || return
        if printf '%s\n' "$crates" | grep -E "$cxx_crates"; then
            echo "$package: its default features pull in the above"
            status=1
        fi
        # One crate contains some C code.
        crates=$(crates_of "$package" --invert cc --depth 1) || return
        if printf '%s\n' "$crates" | grep -Ev '^(cc|ring) v'; then
            echo "$package: by default the above also compile something"
            status=1
        fi
    done
    # A counter-check: with the feature the pattern must match. No pipe, because grep -q exits at
    # the first match, and the writer would then fail.
    crates=$(crates_of potluck --features gloo) || return
    if ! grep -Eq "$cxx_crates" <<<"$crates"; then
        echo "potluck: the feature gloo does not bring C++ under any name that is looked for"
        status=1
    fi
    return "$status"
}

# crates_of PACKAGE ARGUMENT...: the crates compiled for it on any platform, one per line.
crates_of() {
    cargo tree --locked --target all -e normal,build --prefix none --format '{p}' -p "$@"
}

# lack_of_gloo: the error message of the feature without Gloo. Without Gloo a build shows it. With
# Gloo, a failing build would make cargo rebuild the library twice. So the compiled build script is
# run as cargo runs it, but with an empty GLOO_ROOT: then it searches nowhere.
lack_of_gloo() {
    local log script said
    log=$(mktemp)
    if script=$(
        cargo test --locked --features gloo,metrics --no-run --message-format=json 2>"$log" |
            build_script
    ); then
        said=$(run_build_script "$script")
    else
        said=$(cat "$log")
    fi
    rm -f "$log"
    printf '%s\n' "$said"
    # `cargo::error=` is shown by cargo as an error of the package, without a panic message.
    said=$(printf '%s\n' "$said" | grep -E '^cargo::error=|^error: potluck@')
    [ "$(printf '%s\n' "$said" | grep -c .)" -eq 1 ] &&
        [[ $said == *libgloo-dev* && $said == *docs/gloo.md* ]]
}

# build_script: extracts the path of the build script from cargo's messages.
build_script() {
    local said
    said=$(cat)
    case $said in *'"reason":"build-finished","success":true'*) ;; *) return 1 ;; esac
    printf '%s\n' "$said" | grep -F '{"reason":"compiler-artifact"' |
        grep -F '"kind":["custom-build"]' |
        grep -F "\"manifest_path\":\"$PWD/Cargo.toml\"" |
        sed -n 's/.*"filenames":\["\([^"]*\)".*/\1/p'
}

run_build_script() {
    local host scratch
    host=$(rustc -vV | sed -n 's/^host: //p')
    scratch=$(mktemp -d) || return
    GLOO_ROOT='' OUT_DIR=$scratch CARGO_MANIFEST_DIR=$PWD CARGO_FEATURE_GLOO=1 \
        CARGO_ENCODED_RUSTFLAGS='' HOST=$host TARGET=$host PROFILE=debug OPT_LEVEL=0 DEBUG=true \
        NUM_JOBS=1 "$1" 2>&1
    rm -rf "$scratch"
}
