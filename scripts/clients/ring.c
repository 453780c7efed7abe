/* MPI: a number goes around the ring of all ranks, as in Open MPI's example ring_c, and a sum. With
 * the name of a file it goes on until there is such a file on one of the machines. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void demand(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int count, char **words) {
    int rank, world, passed, total, found = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    int before = (rank + world - 1) % world, after = (rank + 1) % world;

    MPI_Sendrecv(&rank, 1, MPI_INT, after, 1, &passed, 1, MPI_INT, before, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    demand(passed == before, "the number of the rank before");
    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    demand(total == world * (world - 1) / 2, "the sum");

    printf("rank %d of %d: runs\n", rank, world);
    fflush(stdout);
    while (count > 1 && !found) {
        int here = access(words[1], F_OK) == 0;
        MPI_Allreduce(&here, &found, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        usleep(50000);
    }
    MPI_Finalize();
    printf("rank %d of %d: right\n", rank, world);
    return 0;
}
