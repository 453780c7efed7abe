# What `make test` builds, and how it runs it: two suites at a time, as most of them wait most of
# the time. Sourced by test.sh. shellcheck shell=bash

# The suites that take longest, longest first: what begins last should be short. All others follow.
longest=(processes links faults contract views units lab)

# Tests of multicast inside the library need root for a namespace each; elsewhere they are counted
# as skipped.
own_namespaces=(keeps_the_contract_of_discovery a_report_names_every_interface)

# build [ARGUMENT...]: every build of tests is this one, so that all share what they can. After
# want_gloo.
build() {
    # shellcheck disable=SC2154 # want_gloo sets it
    cargo test --locked --features "metrics${gloo_features:+,gloo}" "$@"
}

# variant VARIABLE NAME: the command line as scripts/rustc-NAME.sh compiles our own packages, kept
# where the variable says. All other crates are those of the usual build.
variant() {
    local kept
    kept="$(target_dir)/debug/potluck-$2"
    RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/rustc-$2.sh" must "command line $2" build --no-run --test cli
    cp "$(target_dir)/debug/potluck" "$kept" && export "$1=$kept"
}

# suite NAME [ARGUMENT...]: runs one that is built.
suite() {
    local name=$1 test skips=()
    shift
    case $name in
        units)
            if [ "$(id -u)" -eq 0 ]; then for test in "${own_namespaces[@]}"; do skips+=(--skip "$test"); done; fi
            build --no-fail-fast --lib --bins -- ${skips[@]+"${skips[@]}"} "$@"
            ;;
        multicast) build --lib discovery::mdns -- --ignored "$@" ;;
        documentation) RUSTDOC="$PWD/scripts/rustdoc-with-codes.sh" build --doc -- "$@" ;;
        *) build --test "$name" -- "$@" ;;
    esac
}

# all_suites: their names, in the order in which they begin. Those in tests/ and cli/tests/ are what
# cargo says that it has built.
all_suites() {
    local name built
    built=$(build --no-run 2>&1 | sed -n 's/^ *Executable tests\/.*(.*\/\([a-z0-9_]*\)-[0-9a-f]*)$/\1/p')
    {
        printf '%s\n' "${longest[@]}"
        printf '%s\n' "$built" units documentation
        [ "$(id -u)" -ne 0 ] || echo multicast
    } | while read -r name; do
        case " units documentation multicast $(echo $built) " in *" $name "*) echo "$name" ;; esac
    done | awk '!seen[$0]++'
}

# run_suites NAME...: two at a time; prints what each said when it has ended, counts it, and ends
# with a table of seconds.
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
    for name in "$@"; do printf '%6s  %s\n' "$(cat "$folder/$name.seconds")" "$name"; done | sort -rn
    rm -rf "$folder"
}

# One of those who run suites: takes the next that nobody has taken, until there is none.
run_suites_of() {
    local folder=$1 name began
    while read -r name; do
        mkdir "$folder/$name.taken" 2>/dev/null || continue
        began=$SECONDS
        suite "$name" >"$folder/$name.log" 2>&1
        echo "$?" >"$folder/$name.status"
        echo "$((SECONDS - began))" >"$folder/$name.seconds"
        # Only one prints at a time.
        until mkdir "$folder/printing" 2>/dev/null; do sleep 0.1; done
        heading "$name" "$((SECONDS - began)) s"
        cat "$folder/$name.log"
        rmdir "$folder/printing"
    done <"$folder/names"
}
