# Three machines of a lab for `potluck run` with programs of others: accounts, homes, an SSH server,
# and the loss of one. Sourced by clients.sh, which sets POTLUCK, venv and user.
# shellcheck shell=bash
# shellcheck disable=SC2154

machines=(n1 n2 n3)
declare -A addresses=() namespaces=()
folder=

# up: all machines, with one cluster key, and with SSH from each to each.
up() {
    local machine
    export LAB="clients_$$"
    folder=$(mktemp -d)
    chmod 755 "$folder"
    lab/lab up loop --nodes 3 --owner $$ >/dev/null || return
    while read -r machine namespace address; do
        namespaces[$machine]=$namespace addresses[$machine]=$address
    done < <(lab/lab json | python3 -c '
import json, sys
for name, node in json.load(sys.stdin)["nodes"].items():
    print(name, node["ns"], node["addr"])')
    printf 'root:*:0:0::/root:/bin/sh\nuser:*:%s:%s::%s:/bin/sh\n' \
        "$user" "$user" "$folder/home" >"$folder/passwd"
    [ "$user" -ne 0 ] || printf 'user:*:0:0::%s:/bin/sh\n' "$folder/home" >"$folder/passwd"
    mkdir "$folder/home"
    ssh-keygen -q -t ed25519 -N '' -C lab -f "$folder/key" || return
    for machine in "${machines[@]}"; do set_up "$machine" || return; done
}

# set_up MACHINE: makes the home of its user, and two traps for programs on many machines: a host
# name that is no address of the network, and a bridge of Docker, which has the same address on all.
set_up() {
    local home="$folder/$1"
    name_is 127.0.1.1 "$1"
    ip -n "${namespaces[$1]}" link add docker0 type bridge
    ip -n "${namespaces[$1]}" address add 172.17.0.1/16 dev docker0
    ip -n "${namespaces[$1]}" link set docker0 up
    mkdir -p "$home/.ssh"
    cp scripts/clients/* "$home"
    [ ! -e "$made/ring" ] || cp "$made/ring" "$home"
    cp "$folder/key" "$home/.ssh/id_ed25519"
    cp "$folder/key.pub" "$home/.ssh/authorized_keys"
    # mpirun starts ssh outside of its process group, and ssh itself has to see that a machine is
    # gone.
    printf 'StrictHostKeyChecking accept-new\nServerAliveInterval 3\n' >"$home/.ssh/config"
    dropbearkey -t ed25519 -f "$folder/$1.hostkey" >/dev/null 2>&1 || return
    chown -R "$user:$user" "$home"
    # A publicly known key: this network reaches nobody.
    on "$1" potluck join <<<plk1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaagxdk \
        >"$folder/$1.joined" 2>&1 ||
        { cat "$folder/$1.joined" >&2 && return 1; }
    serve "$1"
}

# name_is ADDRESS MACHINE: makes the machine resolve its own name to this address. Debian's
# installer writes 127.0.1.1.
name_is() { printf '127.0.0.1 localhost\n%s %s\n' "$1" "$2" >"$folder/$2.hosts"; }

# as_root MACHINE COMMAND...: in the home of the machine, which has the same path on all of them.
# There is no name server, and one that does not answer would only take time.
as_root() {
    local machine=$1
    shift
    # shellcheck disable=SC2016 # the inner shell expands it
    lab/lab exec "$machine" sh -c '
        mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/$2.hosts" /etc/hosts &&
            { [ ! -e /etc/resolv.conf ] || mount --bind /dev/null /etc/resolv.conf; } &&
            mount --bind "$1/$2" "$1/home" &&
            cd "$1/home" && shift 2 && exec "$@"' sh "$folder" "$machine" "$@"
}

# on MACHINE COMMAND...: as the user of that machine.
on() {
    local machine=$1 more=()
    shift
    [ -z "${POTLUCK_LOG:-}" ] || more=("POTLUCK_LOG=$POTLUCK_LOG")
    [ "$user" -ne 0 ] || more+=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    as_root "$machine" setpriv --reuid="$user" --regid="$user" --clear-groups \
        env -i HOME="$folder/home" USER=user LANG=C.UTF-8 \
        PATH="$venv/bin:${POTLUCK%/*}:/usr/bin:/bin" \
        ${more[@]+"${more[@]}"} "$@"
}

# serve MACHINE: its SSH server.
serve() {
    as_root "$1" dropbear -F -r "$folder/$1.hostkey" -P "$folder/$1.pid" >>"$folder/$1.ssh" 2>&1 &
}

# answers MACHINE: whether a command can be run there by SSH.
answers() { on n1 ssh -o ConnectTimeout=3 "${addresses[$1]}" true </dev/null 2>>"$folder/$1.ssh"; }

# processes MACHINE...: those on these machines, except for their SSH servers.
processes() {
    local machine pid
    for machine in "$@"; do
        for pid in $(ip netns pids "${namespaces[$machine]}"); do
            [ "$pid" = "$(cat "$folder/$machine.pid" 2>/dev/null)" ] || echo "$pid"
        done
    done
}

none_is_left() { [ -z "$(processes "$@")" ]; }

# end_processes MACHINE: kills all of them there, also its SSH server.
end_processes() {
    local pids
    # One may have ended, or another begun.
    until pids=$(ip netns pids "${namespaces[$1]}") && [ -z "$pids" ]; do
        # shellcheck disable=SC2086 # a word each
        kill -KILL $pids 2>/dev/null
        sleep 0.05
    done
}

# returns MACHINE: it has been started again.
returns() {
    serve "$1"
    within 20 answers "$1"
}

# within SECONDS COMMAND...: repeats the command until it succeeds, for at least this time. Attempts
# are counted, so that a machine that stands still for a while uses up none of the time.
within() {
    local tries=$(($1 * 10))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
}

down() {
    [ -n "$folder" ] || return
    lab/lab down >/dev/null
    rm -rf "$folder"
}
