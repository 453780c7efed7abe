#!/usr/bin/env bash
# make clients: `potluck run` and `potluck hosts` with PyTorch, MLX, JAX and Open MPI as they are,
# and potluck within torchrun and MLX, on three machines of the lab (needs root). The clients are
# installed once, below target/clients: torch takes 6 GB there. ARGS="mlx mpi" chooses; orders is a
# test of random start orders. POTLUCK names the program; without it, it is built.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/machine.sh
. scripts/count.sh
. scripts/gloo.sh
. scripts/suites.sh
. scripts/three-machines.sh
. scripts/client-checks.sh
. scripts/python-tools.sh
exec </dev/null

[ $# -gt 0 ] || set -- orders mpi mlx jax torch torchrun
need_rust
need_c_compiler
want_programs python3:python3 ip:iproute2 ssh:openssh-client ssh-keygen:openssh-client \
    dropbear:dropbear-bin
if [ "$(id -u)" -ne 0 ]; then
    say "The lab needs root: run this with sudo, or as lab/lab sandbox -- make clients."
    exit 2
fi
made="$(target_dir)/clients" venv="$(target_dir)/clients/venv"
mkdir -p "$made"
if [ -z "${POTLUCK:-}" ]; then
    want_gloo
    build_programs >&2 || exit
    POTLUCK="$(target_dir)/debug/potluck"
fi

# want_python: an environment with a Python that every user may run; the first one in PATH may be
# below the home of another user.
want_python() {
    local python
    [ ! -x "$venv/bin/python3" ] || return 0
    for python in /usr/bin/python3 python3; do
        "$python" -c 'import ensurepip' 2>/dev/null || [ "$python" != /usr/bin/python3 ] ||
            install_packages python3-venv
        "$python" -m venv "$venv" >&2 && return
    done
}

has_module() {
    local find='import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)'
    "$venv/bin/python3" -c "$find" "$1" 2>/dev/null
}

# want_module MODULE PACKAGE: from PyPI, if it is not there.
want_module() {
    want_python || return
    ! has_module "$1" || return 0
    say "Installing $2 with pip (once)"
    "$venv/bin/python3" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$2" >&2
}

# has_space GIGABYTES: where the clients are installed.
has_space() { [ "$(df --output=avail -k "$made" | tail -n 1)" -gt "$(($1 * 1000000))" ]; }

version() {
    "$venv/bin/python3" -c \
        'import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))' "$1"
}

# The names with the versions of the clients, and why some cannot be had.
declare -A is=() lack=()

# want CLIENT: installs it if it is not there.
want() {
    case $1 in
        orders) is[orders]="potluck run" ;;
        mpi)
            want_mpi ||
                lack[mpi]="no Open MPI (Debian, Ubuntu: apt-get install openmpi-bin libopenmpi-dev)"
            ;;
        mlx)
            want_module mlx 'mlx[cpu]' && cargo build --locked --quiet -p potluck-mpi >&2 &&
                is[mlx]="MLX $(version mlx)"
            ;;
        jax) want_module jax jax && is[jax]="JAX $(version jax)" ;;
        torch)
            if has_module torch || has_space 12; then
                want_module torch torch && is[torch]="PyTorch $(version torch)"
            else
                lack[torch]="less than 12 GB are free for it"
            fi
            ;;
        torchrun)
            [ -n "${is[torch]:-}" ] || want torch
            if [ -z "${is[torch]:-}" ]; then
                lack[torchrun]=${lack[torch]:-}
            elif want_backend; then
                is[torchrun]="torchrun of ${is[torch]}"
            fi
            ;;
        *)
            say "orders, mpi, mlx, jax, torch or torchrun, not $1"
            exit 2
            ;;
    esac
}

want_mpi() {
    want_programs mpirun:openmpi-bin mpicc:libopenmpi-dev
    have mpirun && have mpicc || return
    mpicc -O2 -Wall -Wextra -o "$made/ring" scripts/clients/ring.c >&2 || exit
    is[mpi]=$(mpirun --version | sed -n '1s/.*(Open MPI) /Open MPI /p')
}

# want_backend: the Python package, with its backend of PyTorch.
want_backend() {
    local wheel
    want_tools 'maturin>=1.16,<2' numpy
    wheel=$(wheel_of "$made/wheel" --profile dev) || return
    "$venv/bin/python3" -m pip install --quiet --no-index --no-deps --force-reinstall \
        --disable-pip-version-check "$wheel" >&2
}

# checks CLIENT
checks() {
    local name=${is[$1]}
    case $1 in
        orders) judge "$name: 20 random start orders" random_orders ;;
        mpi)
            judge "$name: three machines, by a host file" host_file \
                mpirun --hostfile hosts --mca btl_tcp_if_include 10.77.0.0/24 ./ring
            three_checks "$name" ./mpi.sh
            ;;
        mlx)
            three_checks "$name" python3 mlx_sum.py
            over_mpi=(env "MLX_MPI_LIBNAME=$(target_dir)/debug/libpotluck_mpi.so"
                POTLUCK_MEMBERS=3 python3 mlx_sum.py)
            judge "$name over libpotluck_mpi: three machines" without_run "${over_mpi[@]}"
            judge "$name over libpotluck_mpi: a machine without power ends the others" \
                ends_others 75 "${over_mpi[@]}" stop
            ;;
        jax)
            # Its sums on processors go to the address of the host name.
            for machine in "${machines[@]}"; do name_is "${addresses[$machine]}" "$machine"; done
            three_checks "$name" python3 jax_sum.py
            for machine in "${machines[@]}"; do name_is 127.0.1.1 "$machine"; done
            ;;
        torch) three_checks "$name" python3 ddp.py ;;
        torchrun)
            judge "$name: three machines" \
                without_run torchrun --rdzv-backend=potluck --nnodes=3 ddp.py
            judge "$name: elastic, the machine of rank 0 is killed and returns" \
                go_on torchrun --rdzv-backend=potluck --rdzv-conf=last_call=1 --nnodes=2:3 \
                --max-restarts=5 ddp.py stop
            ;;
    esac
}

three_checks() {
    judge "$1: three machines" all_right "${@:2}"
    judge "$1: a machine without power ends the run" a_loss "${@:2}"
    judge "$1: elastic, the machine of rank 0 is killed and returns" a_return "${@:2}"
}

for client in "$@"; do want "$client"; done

# A user without files, if the permissions of this machine let that user run the programs.
user=64300
can() { setpriv --reuid=$user --regid=$user --clear-groups "$@" >/dev/null 2>&1; }
trap down EXIT
if can "$POTLUCK" --version && { [ ! -e "$venv" ] || can "$venv/bin/python3" -c pass; }; then
    passed=$((passed + 1))
    echo "ok       the clients run as a user without privileges"
else
    user=0
    skipping "the clients run as a user without privileges" \
        "no other user can run the programs in $(target_dir)"
fi
up || { say "The machines do not come up." && exit 1; }
for machine in "${machines[@]}"; do
    within 20 answers "$machine" || { cat "$folder"/*.ssh >&2 && exit 1; }
done
for client in "$@"; do
    if [ -n "${is[$client]:-}" ]; then
        checks "$client"
    else
        skipping "$client" "${lack[$client]:-pip does not install it}"
    fi
done
report clients
