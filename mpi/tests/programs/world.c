/* Calls of the part of MPI that MLX uses, by some processes.
 *
 *   world          makes all calls, and checks their results
 *   world rounds   sums until another process is gone
 *   world handler [long]
 *                  takes a note of interrupts, as Python does, and waits for a message that nobody
 *                  sends; a long handler has three arguments */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct object *handle;
typedef void function(void *in, void *inout, int *length, handle *datatype);

struct object {
    char bytes[16];
};
struct status {
    int source, tag, error, cancelled;
    size_t bytes;
};

extern struct object ompi_mpi_comm_world, ompi_mpi_op_sum, ompi_mpi_op_max, ompi_mpi_op_min;
extern struct object ompi_mpi_c_bool, ompi_mpi_int8_t, ompi_mpi_uint8_t, ompi_mpi_int16_t;
extern struct object ompi_mpi_uint16_t, ompi_mpi_int32_t, ompi_mpi_uint32_t, ompi_mpi_int64_t;
extern struct object ompi_mpi_uint64_t, ompi_mpi_float, ompi_mpi_double, ompi_mpi_c_complex;

int MPI_Get_library_version(char *text, int *length);
int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
int MPI_Comm_rank(handle comm, int *rank);
int MPI_Comm_size(handle comm, int *size);
int MPI_Comm_split(handle comm, int colour, int key, handle *split);
int MPI_Comm_free(handle *comm);
int MPI_Type_contiguous(int count, handle of, handle *datatype);
int MPI_Type_commit(handle *datatype);
int MPI_Op_create(function *by, int commutes, handle *op);
int MPI_Allreduce(const void *in, void *out, int count, handle of, handle op, handle comm);
int MPI_Allgather(const void *in, int count, handle of, void *out, int out_count, handle out_of,
                  handle comm);
int MPI_Send(const void *data, int count, handle of, int to, int tag, handle comm);
int MPI_Recv(void *data, int count, handle of, int from, int tag, handle comm, struct status *status);

#define IN_PLACE ((void *)1)
static const handle world = &ompi_mpi_comm_world;

static void right(int is_right, const char *what) {
    if (!is_right) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}

static int calls_of_own;

/* The concatenation of digits: associative, not commutative, and not known to anybody. */
static void digits(void *in, void *inout, int *length, handle *datatype) {
    (void)datatype;
    for (int i = 0; i < *length; i++) {
        int64_t right = ((int64_t *)inout)[i], shift = 10;
        while (shift <= right)
            shift *= 10;
        ((int64_t *)inout)[i] = ((int64_t *)in)[i] * shift + right;
    }
    calls_of_own++;
}

/* The maximum of int16_t. Of numbers that are not negative it is also that of bfloat16. */
static void larger(void *in, void *inout, int *length, handle *datatype) {
    (void)datatype;
    for (int i = 0; i < *length; i++) {
        int16_t a = ((int16_t *)in)[i], b = ((int16_t *)inout)[i];
        ((int16_t *)inout)[i] = a > b ? a : b;
    }
}

/* The sum of bfloat16, as MLX has it. */
static void halves(void *in, void *inout, int *length, handle *datatype) {
    (void)datatype;
    for (int i = 0; i < *length; i++) {
        uint32_t a = (uint32_t)((uint16_t *)in)[i] << 16, b = (uint32_t)((uint16_t *)inout)[i] << 16;
        float x, y;
        memcpy(&x, &a, 4);
        memcpy(&y, &b, 4);
        y += x;
        memcpy(&b, &y, 4);
        ((uint16_t *)inout)[i] = (uint16_t)(b >> 16);
    }
    calls_of_own++;
}

static float number_of(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

/* The maximum and the minimum of bfloat16, as MLX has them: std::max and std::min. */
static void largest(void *in, void *inout, int *length, handle *datatype) {
    (void)datatype;
    for (int i = 0; i < *length; i++) {
        uint16_t a = ((uint16_t *)in)[i], *b = (uint16_t *)inout + i;
        *b = number_of(a) < number_of(*b) ? *b : a;
    }
}

static void smallest(void *in, void *inout, int *length, handle *datatype) {
    (void)datatype;
    for (int i = 0; i < *length; i++) {
        uint16_t a = ((uint16_t *)in)[i], *b = (uint16_t *)inout + i;
        *b = number_of(*b) < number_of(a) ? *b : a;
    }
}

/* Infinities and large numbers, whose bits are no numbers of float16. */
static void extremes(int rank, handle of) {
    enum { MANY = 0x7f80, LESS = 0xff80, LARGE = 0x7f00, THREE = 0x4040 };
    handle op = NULL;
    uint16_t most[3] = {rank == 0 ? LESS : THREE, rank == 0 ? MANY : THREE, LARGE};
    MPI_Op_create(largest, 1, &op);
    MPI_Allreduce(IN_PLACE, most, 3, of, op, world);
    right(most[0] == THREE && most[1] == MANY && most[2] == LARGE, "a maximum of bfloat16");
    uint16_t least[3] = {rank == 0 ? LESS : THREE, rank == 0 ? MANY : THREE, LARGE};
    MPI_Op_create(smallest, 1, &op);
    MPI_Allreduce(IN_PLACE, least, 3, of, op, world);
    right(least[0] == LESS && least[1] == THREE && least[2] == LARGE, "a minimum of bfloat16");
}

#define SUM(type, name)                                                                             \
    do {                                                                                            \
        type in[2] = {(type)(rank + 1), 2}, out[2];                                                 \
        MPI_Allreduce(in, out, 2, &name, &ompi_mpi_op_sum, world);                                  \
        right(out[0] == (type)(size * (size + 1) / 2) && out[1] == (type)(2 * size), #name);        \
        type most = (type)rank;                                                                     \
        MPI_Allreduce(IN_PLACE, &most, 1, &name, &ompi_mpi_op_max, world);                          \
        right(most == (type)(size - 1), "the maximum of " #name);                                   \
        MPI_Allreduce(IN_PLACE, &in, 1, &name, &ompi_mpi_op_min, world);                            \
        right(in[0] == 1, "the minimum of " #name);                                                 \
    } while (0)

static void reductions(int rank, int size) {
    SUM(float, ompi_mpi_float);
    SUM(double, ompi_mpi_double);
    SUM(int8_t, ompi_mpi_int8_t);
    SUM(uint8_t, ompi_mpi_uint8_t);
    SUM(int16_t, ompi_mpi_int16_t);
    SUM(uint16_t, ompi_mpi_uint16_t);
    SUM(int32_t, ompi_mpi_int32_t);
    SUM(uint32_t, ompi_mpi_uint32_t);
    SUM(int64_t, ompi_mpi_int64_t);
    SUM(uint64_t, ompi_mpi_uint64_t);
    float complex_number[2] = {(float)rank, 1};
    MPI_Allreduce(IN_PLACE, complex_number, 1, &ompi_mpi_c_complex, &ompi_mpi_op_sum, world);
    right(complex_number[0] == (float)(size * (size - 1) / 2) && complex_number[1] == (float)size,
          "complex");
    unsigned char flags[2] = {rank == 1, 0};
    MPI_Allreduce(IN_PLACE, flags, 2, &ompi_mpi_c_bool, &ompi_mpi_op_sum, world);
    right(flags[0] == 1 && flags[1] == 0, "bool");

    handle of = NULL, op = NULL;
    MPI_Op_create(digits, 0, &op);
    int64_t number = rank + 1, wanted = 0;
    for (int i = 1; i <= size; i++)
        wanted = 10 * wanted + i;
    MPI_Allreduce(IN_PLACE, &number, 1, &ompi_mpi_int64_t, op, world);
    right(number == wanted, "an operator of the program");
    right(calls_of_own == size - 1, "every process folds the elements of all");

    MPI_Type_contiguous(2, &ompi_mpi_uint8_t, &of);
    MPI_Type_commit(&of);
    MPI_Op_create(halves, 1, &op);
    calls_of_own = 0;
    uint16_t one[3] = {0x3f80, 0x3f80, 0x3f80};
    MPI_Allreduce(IN_PLACE, one, 3, of, op, world);
    right(one[0] == (size == 2 ? 0x4000 : 0x4040) && one[2] == one[0], "a sum of bfloat16");
    right(calls_of_own < 10, "it is only called to find out what it is");
    extremes(rank, of);

    MPI_Op_create(larger, 1, &op);
    int16_t low = rank == 0 ? -20000 : -10000;
    MPI_Allreduce(IN_PLACE, &low, 1, &ompi_mpi_int16_t, op, world);
    right(low == -10000, "a maximum of int16_t is none of bfloat16");
}

static void parts(int rank, int size) {
    int32_t own[2] = {rank, 10 * rank}, *all = malloc(2 * sizeof *all * (size_t)size);
    MPI_Allgather(own, 2, &ompi_mpi_int32_t, all, 2, &ompi_mpi_int32_t, world);
    for (int i = 0; i < size; i++)
        right(all[2 * i] == i && all[2 * i + 1] == 10 * i, "the parts of all");
    free(all);
    if (rank == 0) {
        double message = 7.5;
        MPI_Send(&message, 1, &ompi_mpi_double, 1, 0, world);
    } else if (rank == 1) {
        double message = 0;
        struct status status;
        MPI_Recv(&message, 1, &ompi_mpi_double, -1, -1, world, &status);
        right(message == 7.5 && status.source == 0 && status.bytes == 8, "a message");
    }
}

static void splits(int rank, int size) {
    /* The last process first. */
    handle reversed = NULL, half = NULL, none = NULL;
    MPI_Comm_split(world, 0, size - rank, &reversed);
    int own = -1, all = 0;
    MPI_Comm_rank(reversed, &own);
    MPI_Comm_size(reversed, &all);
    right(own == size - 1 - rank && all == size, "ranks by key");
    int32_t *ranks = malloc(sizeof *ranks * (size_t)size), number = rank;
    MPI_Allgather(&number, 1, &ompi_mpi_int32_t, ranks, 1, &ompi_mpi_int32_t, reversed);
    for (int i = 0; i < size; i++)
        right(ranks[i] == size - 1 - i, "parts by key");
    if (own == 0)
        MPI_Send(&number, 1, &ompi_mpi_int32_t, 1, 0, reversed);
    if (own == 1) {
        int32_t from = -1;
        MPI_Recv(&from, 1, &ompi_mpi_int32_t, 0, 0, reversed, NULL);
        right(from == size - 1, "a message by key");
    }
    MPI_Comm_split(reversed, rank % 2, 0, &half);
    int32_t members = 1;
    MPI_Allreduce(IN_PLACE, &members, 1, &ompi_mpi_int32_t, &ompi_mpi_op_sum, half);
    right(members == (size + 1 - rank % 2) / 2, "a sum of a part");
    MPI_Comm_split(world, rank == 0 ? -1 : 3, 0, &none);
    MPI_Comm_free(&half);
    MPI_Comm_free(&reversed);
    free(ranks);
}

static void take_note(int signal) {
    (void)signal;
    right(write(STDOUT_FILENO, "noted\n", 6) == 6, "a note");
}

static void take_long_note(int signal, siginfo_t *info, void *context) {
    (void)context;
    right(info->si_signo == signal, "what a long handler is told");
    take_note(signal);
}

int main(int argc, char **argv) {
    char version[256];
    int length = 0, rank = -1, size = 0;
    MPI_Get_library_version(version, &length);
    right(strstr(version, "Open MPI") && (size_t)length == strlen(version), "the version");
    if (argc > 1 && strcmp(argv[1], "handler") == 0) {
        struct sigaction note = {.sa_handler = take_note, .sa_flags = SA_RESTART};
        if (argc > 2) {
            note.sa_sigaction = take_long_note;
            note.sa_flags |= SA_SIGINFO;
        }
        right(sigaction(SIGINT, &note, NULL) == 0, "a handler");
        printf("begins\n");
        fflush(stdout);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    if (argc == 1) {
        reductions(rank, size);
        parts(rank, size);
        splits(rank, size);
        printf("rank %d of %d: all is right\n", rank, size);
    } else if (strcmp(argv[1], "handler") == 0) {
        int32_t message = 0;
        printf("ready\n");
        fflush(stdout);
        MPI_Recv(&message, 1, &ompi_mpi_int32_t, (rank + 1) % size, 0, world, NULL);
    } else {
        for (int round = 0;; round++) {
            float sum = 1;
            MPI_Allreduce(IN_PLACE, &sum, 1, &ompi_mpi_float, &ompi_mpi_op_sum, world);
            right(sum == (float)size, "a sum");
            if (round == 10) {
                printf("ready\n");
                fflush(stdout);
            }
        }
    }
    MPI_Finalize();
    return 0;
}
