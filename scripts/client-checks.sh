# The checks of a client of `potluck run`, and of one that uses potluck itself. The programs of a
# client print "rank R of N: runs", continue until the file exists that their argument names, and
# print "rank R of N: right". Sourced by clients.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154 # three-machines.sh sets the others

declare -A run=()
# The time limit, in seconds, of a step that takes a few seconds on an idle machine.
patience=${PATIENCE:-300}

# judge NAME COMMAND...: a line for a check. The command fails by `because`.
judge() {
    local name=$1 began=$SECONDS machine
    shift
    why='' note=''
    for machine in "${machines[@]}"; do
        rm -f "$folder/$machine/stop"
        : >"$folder/$machine.out"
        : >"$folder/$machine.err"
    done
    if "$@"; then
        passed=$((passed + 1))
        echo "ok       $name ($((SECONDS - began)) s${note:+; $note})"
    else
        failed=$((failed + 1))
        failures+=("$name: $why")
        echo "FAILED   $name: $why"
        tail -n 15 "$folder"/n?.out "$folder"/n?.err | sed 's/^/    /'
        mkdir -p "$made/failed" && cp "$folder"/n?.out "$folder"/n?.err "$made/failed"
    fi
    for machine in "${machines[@]}"; do
        # Without an effect unless its cable is pulled.
        lab/lab join "$machine" >/dev/null 2>&1
        if ! none_is_left "$machine" || ! answers "$machine"; then
            end_processes "$machine"
            returns "$machine"
        fi
    done
}

because() {
    why=$*
    return 1
}

# skipping NAME WHY: a line for a check that cannot be made here.
skipping() {
    skip "$1" "$2"
    echo "skipped: $1: $2"
}

# start MACHINE COMMAND...: starts it there.
start() {
    local machine=$1
    shift
    on "$machine" "$@" >>"$folder/$machine.out" 2>>"$folder/$machine.err" &
    run[$machine]=$!
}

start_all() {
    local machine
    for machine in "${machines[@]}"; do start "$machine" "$@"; done
}

# all_print "of N: TEXT" [TIMES]: waits until each of N ranks has printed it so often.
all_print() {
    within "$patience" have_printed "$@" ||
        because "not every rank has printed \"rank R $1\"${2:+ $2 times}"
}

have_printed() {
    local rank world=${1#of }
    for ((rank = 0; rank < ${world%%:*}; rank++)); do
        # Behind the rank of the program that printed it, which for mpirun is that of mpirun.
        [ "$(cat "$folder"/n?.out | grep -cxE "(\[[0-9]+\] )?rank $rank $1")" -ge "${2:-1}" ] ||
            return
    done
}

# all_end CODE MACHINE...: waits until the command ends on these machines, with this code.
all_end() {
    local code=$1 machine status
    shift
    for machine in "$@"; do
        within "$patience" has_ended "${run[$machine]}" ||
            because "the command does not end on $machine" || return
        wait "${run[$machine]}"
        status=$?
        [ "$status" -eq "$code" ] ||
            because "the command ends on $machine with code $status, not $code" || return
    done
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }

nothing_is_left() {
    within "$patience" none_is_left "$@" ||
        because "processes are left: $(ps -o args= -p "$(processes "$@" | paste -sd,)")"
}

# in_the_guide COMMAND: whether it is there as it is typed.
in_the_guide() { grep -qF "\`$1\`" docs/guide.md || because "docs/guide.md does not have \"$1\""; }

# all_right COMMAND...: three machines, and every rank is right.
all_right() {
    in_the_guide "potluck run --members 3 -- $*" || return
    start_all potluck run --members 3 -- "$@"
    all_end 0 "${machines[@]}" && all_print "of 3: right" && nothing_is_left "${machines[@]}"
}

# without_run COMMAND...: three machines, which find each other without `potluck run`.
without_run() {
    start_all "$@"
    all_end 0 "${machines[@]}" && all_print "of 3: right" && nothing_is_left "${machines[@]}"
}

# a_loss COMMAND...: a machine loses its power. The others say which one, and end.
a_loss() { ends_others 4 potluck run --members 3 -- "$@" stop; }

# ends_others CODE COMMAND...: a machine loses its power. On the others the command says which one,
# and ends with this code.
ends_others() {
    local since machine code=$1
    shift
    start_all "$@"
    all_print "of 3: runs" || return
    since=$SECONDS
    lab/lab cut n2 >/dev/null && end_processes n2
    all_end "$code" n1 n3 || return
    note="the others end within $((SECONDS - since + 1)) s"
    for machine in n1 n3; do
        # The other one may have ended before.
        grep -qE '"n2".* was lost|and 1 others were lost' "$folder/$machine.err" ||
            because "$machine does not say that n2 was lost" || return
    done
    nothing_is_left n1 n3
}

# a_return COMMAND...: all processes of the machine of rank 0 are killed. The others go on as two,
# and as three when it has returned.
a_return() { go_on potluck run --members 3 --elastic 2 -- "$@" stop; }

# go_on COMMAND...: the same of any command that ends when there is the file "stop".
go_on() {
    local since first
    start_all "$@"
    all_print "of 3: runs" || return
    first=$(grep -lE '^(\[[0-9]+\] )?rank 0 of 3: runs' "$folder"/n?.out |
        sed 's/.*\(n[0-9]\)\.out$/\1/')
    [[ $first == n? ]] || because "not one machine has rank 0: $first" || return
    since=$SECONDS
    end_processes "$first"
    all_print "of 2: runs" || return
    note="two go on within $((SECONDS - since + 1)) s"
    returns "$first" || because "$first does not return" || return
    start "$first" "$@"
    all_print "of 3: runs" 2 || return
    touch "$folder/n3/stop"
    all_end 0 "${machines[@]}" && all_print "of 3: right" && nothing_is_left "${machines[@]}"
}

# host_file COMMAND...: Open MPI as a user starts it on one machine, beside a group that runs.
host_file() {
    local machine
    in_the_guide "potluck hosts --format mpi >hosts" && in_the_guide "$*" || return
    start_all potluck run --members 3 -- sh -c 'until test -e stop; do sleep 0.1; done'
    within $((patience / 10)) on n2 potluck hosts --format mpi >/dev/null 2>&1 ||
        because "potluck hosts finds no group" || return
    on n2 sh -c 'potluck hosts --format mpi >hosts' &&
        on n2 timeout "$patience" "$@" >"$folder/n2.out" 2>"$folder/n2.err" ||
        because "it fails" || return
    have_printed "of 3: right" || because "not every rank is right" || return
    for machine in "${machines[@]}"; do touch "$folder/$machine/stop"; done
    all_end 0 "${machines[@]}" && nothing_is_left "${machines[@]}"
}

# random_orders: of the suite `cli`, 20 rounds each.
random_orders() {
    local log="$folder/orders.log"
    # shellcheck disable=SC2034 # the tests read it
    POTLUCK_ROUNDS=20 suite cli "random orders" >"$log" 2>&1 ||
        because "$(tail -n 20 "$log")" || return
    grep -q '^test result: ok. [1-9]' "$log" ||
        because "no test has run: $(tail -n 3 "$log")" || return
    note=$(grep -o 'random start orders.*POTLUCK_SEED=.*' "$log" | paste -sd';' | sed 's/;/; /g')
}
