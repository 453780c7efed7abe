# Builds the suites of `make test` and runs them, two at a time because most of them mostly wait.
# Sourced by the other scripts.
# shellcheck shell=bash

# The slowest suites, the slowest first: the last suites to start should be short. All others
# follow.
longest=(processes links cli units strangers faults contract lab)

# Multicast tests inside the library, each of which needs a network namespace and therefore root;
# without root they are counted as skipped.
own_namespaces=(keeps_the_contract_of_discovery a_report_names_every_interface
    without_an_interface_it_is_silent)

# build [ARGUMENT...]: used by all builds of tests, so that they share their artifacts. Call
# want_gloo before.
build() {
    # shellcheck disable=SC2154 # want_gloo sets it
    cargo test --locked --features "metrics${gloo_features:+,gloo}" "$@"
}

# build_programs: the command line, the node that most suites start, an example, and the libraries.
# cargo builds a program together with the tests of its package.
build_programs() {
    build --no-run --quiet --test cli --test peer &&
        cargo build --locked --quiet --features "metrics${gloo_features:+,gloo}" \
            --example quickstart &&
        build_libraries
}

# build_libraries: those of C, as they are shipped: with the native engine alone. cargo does not
# build them together with their tests.
build_libraries() {
    cargo build --locked --quiet -p potluck-capi -p potluck-mpi
}

# variant VARIABLE NAME: builds the node of the tests with scripts/rustc-NAME.sh for our own
# packages, and stores its path in VARIABLE. All other crates are shared with the usual build. These
# scripts are of bash: other shells drop variables such as CARGO_BIN_EXE_potluck-peer.
variant() {
    local kept
    kept="$(target_dir)/debug/potluck-peer-$2"
    RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/rustc-$2.sh" must "node $2" build --no-run --test peer
    cp "$(target_dir)/debug/potluck-peer" "$kept" && export "$1=$kept"
}

# ahead COMMAND...: runs before other programs of the machine where that is permitted. The rates
# that the tests of links measure are those of the links only while nothing else takes the
# processors.
ahead() {
    (
        renice -n -10 -p "$BASHPID" >/dev/null 2>&1 || true
        "$@"
    )
}

# suite NAME [ARGUMENT...]: runs one suite.
suite() {
    local name=$1 test skips=()
    shift
    case $name in
        units)
            if [ "$(id -u)" -eq 0 ]; then
                for test in "${own_namespaces[@]}"; do skips+=(--skip "$test"); done
            fi
            build --no-fail-fast --lib --bins -- ${skips[@]+"${skips[@]}"} "$@"
            ;;
        multicast) build --lib discovery::mdns -- --ignored "$@" ;;
        documentation) RUSTDOC="$PWD/scripts/rustdoc-with-codes.sh" build --doc -- "$@" ;;
        links) ahead build --test links -- "$@" ;;
        *) build --test "$name" -- "$@" ;;
    esac
}

# all_suites: the names of the suites in starting order. Suites in folders named tests/ are
# taken from cargo's output.
all_suites() {
    local name built
    built=$(build --no-run 2>&1 |
        sed -n 's/^ *Executable tests\/.*(.*\/\([a-z0-9_]*\)-[0-9a-f]*)$/\1/p')
    {
        printf '%s\n' "${longest[@]}"
        printf '%s\n' "$built" units documentation
        [ "$(id -u)" -ne 0 ] || echo multicast
    } | while read -r name; do
        case " units documentation multicast $(echo $built) " in *" $name "*) echo "$name" ;; esac
    done | awk '!seen[$0]++'
}

# run_suites NAME...: runs two at a time. Prints the output of each when it has ended, counts the
# results, and prints a table of seconds at the end.
run_suites() {
    local folder name
    folder=$(mktemp -d)
    printf '%s\n' "$@" >"$folder/names"
    run_suites_of "$folder" &
    run_suites_of "$folder" &
    wait
    for name in "$@"; do
        count_results "$name" "$(cat "$folder/$name.status")" "$folder/$name.log"
    done
    heading "seconds of each suite" "two at a time"
    for name in "$@"; do
        printf '%6s  %s\n' "$(cat "$folder/$name.seconds")" "$name"
    done | sort -rn
    rm -rf "$folder"
}

# One of the two workers: takes suites until none is left. `mkdir` is the lock.
run_suites_of() {
    local folder=$1 name began
    while read -r name; do
        mkdir "$folder/$name.taken" 2>/dev/null || continue
        began=$SECONDS
        suite "$name" >"$folder/$name.log" 2>&1
        echo "$?" >"$folder/$name.status"
        echo "$((SECONDS - began))" >"$folder/$name.seconds"
        # Only one worker prints at a time.
        until mkdir "$folder/printing" 2>/dev/null; do sleep 0.1; done
        heading "$name" "$((SECONDS - began)) s"
        cat "$folder/$name.log"
        rmdir "$folder/printing"
    done <"$folder/names"
}
