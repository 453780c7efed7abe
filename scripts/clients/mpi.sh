#!/bin/sh
# Open MPI under `potluck run`, which starts this on every machine: rank 0 starts the program on all
# machines of the run, and the others have nothing to do.
set -e
test "$RANK" = 0 || exit 0
potluck hosts --job run --format mpi >hosts
exec mpirun --hostfile hosts ./ring "$@"
