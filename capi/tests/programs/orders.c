/* Calls of the interface in any order, from a seed: starts, waits, frees, also of nothing and with
 * nonsense. Two nodes in one process.
 *
 *   orders SEED SECONDS
 *
 * Every call has a deadline, so nothing may hang. The buffer of a call that was freed must never
 * change again, and every function that wants to be told of an end is told once. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <potluck.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NODES = 2, CALLS = 12, GRAVES = 64, BYTES_MAX = 8 * 300 };

static uint64_t dice;

static uint64_t below(uint64_t end) {
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (dice * UINT64_C(0x2545F4914F6CDD1D) >> 33) % end;
}

static void wrong(const char *what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

static atomic_ulong told, wanted, ended_well;

static void on_done(void *user, potluck_status status) {
    if (user != &told)
        wrong("another user");
    if (status == POTLUCK_OK)
        atomic_fetch_add(&ended_well, 1);
    atomic_fetch_add(&told, 1);
}

struct node {
    potluck_cluster *cluster;
    potluck_context *context;
};

struct open_call {
    potluck_call *call;
    unsigned char *in, *out;
};

struct grave {
    unsigned char *bytes, *copy;
};

static struct node nodes[NODES];
static struct open_call calls[CALLS];
static struct grave graves[GRAVES];
static unsigned long starts, sums_right, statuses[256];

static unsigned char *memory(void) {
    unsigned char *bytes = malloc(BYTES_MAX + 1);
    for (size_t i = 0; i <= BYTES_MAX; i++)
        bytes[i] = (unsigned char)below(256);
    return bytes;
}

static void join(struct node *node) {
    potluck_config *config = potluck_config_new();
    const char *settings[][2] = {{"network", "process"}, {"open", "orders"}, {"members", "2"},
                                 {"stateless", "true"},  {"notices", "false"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (potluck_config_set(config, settings[i][0], settings[i][1], NULL) != POTLUCK_OK)
            wrong(settings[i][0]);
    if (potluck_join(config, &node->cluster, NULL) != POTLUCK_OK)
        wrong("join");
    potluck_config_free(config);
}

static void meet(struct node *node) {
    if (potluck_context_get(node->cluster, 60000, &node->context, NULL) != POTLUCK_OK)
        wrong("the nodes do not meet");
}

/* Counts a status, and checks that an error is there if and only if it is one. */
static void seen(potluck_status status, potluck_error *error) {
    if ((status == POTLUCK_OK) != (error == NULL))
        wrong("an error without a status, or the reverse");
    if (status == POTLUCK_PANIC)
        wrong(potluck_error_message(error));
    if (error && !*potluck_error_message(error))
        wrong("an error without words");
    statuses[status < 256 ? status : 255]++;
    potluck_error_free(error);
}

/* The memory of a call that has been freed: it must stay as it is. */
static void bury(unsigned char *bytes) {
    struct grave *grave = &graves[below(GRAVES)];
    if (grave->bytes && memcmp(grave->bytes, grave->copy, BYTES_MAX))
        wrong("memory was written after its call was freed");
    free(grave->bytes);
    free(grave->copy);
    grave->bytes = bytes;
    grave->copy = malloc(BYTES_MAX);
    memcpy(grave->copy, bytes, BYTES_MAX);
}

static void finish(struct open_call *open) {
    potluck_call_free(open->call);
    bury(open->in);
    bury(open->out);
    memset(open, 0, sizeof *open);
}

static void start(struct open_call *open) {
    if (open->call)
        finish(open);
    struct node *node = &nodes[below(NODES)];
    const potluck_context *context = below(40) ? node->context : NULL;
    potluck_options options;
    memset(&options, 0, sizeof options);
    options.size = below(50) ? sizeof options : below(100);
    options.deadline_ms = 1 + below(20);
    options.flags = below(8) ? 0 : (uint32_t)below(9);
    options.weight = 1.5;
    open->in = memory();
    open->out = memory();
    /* Not always aligned, and sometimes the same memory. */
    unsigned char *in = open->in + below(2), *out = below(8) ? open->out : open->in;
    potluck_dtype dtype = below(4) ? POTLUCK_F32 : (potluck_dtype)below(14);
    potluck_op op = below(4) ? POTLUCK_SUM : (potluck_op)below(9);
    size_t count = below(3) ? 64 : below(150), root = below(3);
    const potluck_options *given = &options;
    switch (below(12)) {
    case 0: open->call = potluck_reduce(context, in, count, dtype, op, root, given); break;
    case 1: open->call = potluck_broadcast(context, in, count, dtype, root, given); break;
    case 2: open->call = potluck_all_gather(context, in, count, out, 2 * count, dtype, given); break;
    case 3: {
        size_t first = 0, length = below(9);
        potluck_shard(context, count, &first, &length);
        open->call =
            potluck_reduce_scatter(context, in, count, out, length, dtype, op, given);
        break;
    }
    case 4: open->call = potluck_barrier(context, given); break;
    case 5: open->call = potluck_send(context, in, count, dtype, root, 1, given); break;
    case 6: open->call = potluck_recv(context, in, count, dtype, (int64_t)root - 1, 1, given); break;
    case 7: open->call = potluck_all_gather_uneven(context, in, count, dtype, given); break;
    case 8: {
        potluck_step *step = potluck_step_new(context);
        potluck_error *error = NULL;
        potluck_status status =
            potluck_step_all_reduce(step, in, count, dtype, op, NULL, &error);
        seen(status, error);
        error = NULL;
        status = potluck_step_all_gather(step, in, count, out, 2 * count, dtype, &error);
        seen(status, error);
        if (below(4)) {
            open->call = potluck_step_commit(step, given);
        } else {
            potluck_step_free(step);
            open->call = potluck_all_to_all(context, in, out, count, dtype, given);
        }
        break;
    }
    case 9: open->call = potluck_sync(context, below(9), in, count, given); break;
    default: open->call = potluck_all_reduce(context, in, count, dtype, op, given); break;
    }
    if (!open->call)
        wrong("no call");
    starts++;
    if (below(2)) {
        atomic_fetch_add(&wanted, 1);
        potluck_call_on_done(open->call, on_done, &told);
    }
}

static void use(struct open_call *open) {
    potluck_error *error = NULL;
    const void *bytes;
    const size_t *lengths;
    size_t count;
    switch (below(6)) {
    case 0: (void)potluck_call_done(open->call); break;
    case 1: (void)potluck_call_source(open->call); break;
    case 2:
        if (potluck_call_bytes(open->call, &bytes, &count) && count && !bytes)
            wrong("bytes at NULL");
        break;
    case 3:
        if (potluck_call_lengths(open->call, &lengths, &count) && count != NODES)
            wrong("not a length for each rank");
        break;
    default: {
        potluck_status status = potluck_call_wait(open->call, (int64_t)below(4), &error);
        seen(status, error);
        break;
    }
    }
}

/* The status of both nodes. */
static void print_states(void) {
    for (int i = 0; i < NODES; i++) {
        char *json = NULL;
        if (potluck_status_json(nodes[i].cluster, &json, NULL) == POTLUCK_OK)
            fprintf(stderr, "%s\n", json);
        potluck_string_free(json);
    }
}

/* Starts a sum as soon as it is not refused: freed calls are under way until all ranks have given
 * them up. If that takes longer than half a minute, returns the refused call. */
static potluck_call *start_sum(const struct node *node, double *data) {
    for (time_t end = time(NULL) + 30;;) {
        potluck_call *call =
            potluck_all_reduce(node->context, data, 3, POTLUCK_F64, POTLUCK_SUM, NULL);
        bool is_refused = potluck_call_done(call) &&
                          potluck_call_wait(call, 0, NULL) == POTLUCK_TOO_MANY_IN_FLIGHT;
        if (!is_refused || time(NULL) >= end)
            return call;
        potluck_call_free(call);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* A sum of both nodes must succeed, whatever was called before it. */
static void sum(void) {
    double data[NODES][3] = {{1, 2, 3}, {10, 20, 30}};
    potluck_call *sums[NODES];
    for (int i = 0; i < NODES; i++)
        sums[i] = start_sum(&nodes[i], data[i]);
    for (int i = 0; i < NODES; i++) {
        potluck_error *error = NULL;
        if (potluck_call_wait(sums[i], 30000, &error) != POTLUCK_OK) {
            print_states();
            wrong(potluck_error_message(error));
        }
        if (data[i][0] != 11 || data[i][1] != 22 || data[i][2] != 33)
            wrong("a wrong sum");
    }
    for (int i = 0; i < NODES; i++)
        potluck_call_free(sums[i]);
    sums_right++;
}

/* New contexts in place of the old ones: their lanes count from the beginning. */
static void renew(uint32_t tag) {
    for (int i = 0; i < NODES; i++) {
        potluck_context *lane = NULL, *root = NULL;
        if (potluck_context_renewed(nodes[i].context, 60000, &root, NULL) != POTLUCK_OK)
            wrong("no View");
        if (potluck_context_lane(root, tag, &lane, NULL) != POTLUCK_OK)
            wrong("no lane");
        potluck_context_free(root);
        potluck_context_free(nodes[i].context);
        nodes[i].context = lane;
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    dice = strtoull(argv[1], NULL, 10) * 2 + 1;
    time_t until = time(NULL) + atol(argv[2]);
    for (int i = 0; i < NODES; i++)
        join(&nodes[i]);
    for (int i = 0; i < NODES; i++)
        meet(&nodes[i]);
    uint32_t rounds = 0;
    while (time(NULL) < until) {
        for (int i = 0; i < 200; i++) {
            struct open_call *open = &calls[below(CALLS)];
            if (!open->call || !below(4))
                start(open);
            else if (!below(5))
                finish(open);
            else
                use(open);
        }
        for (int i = 0; i < CALLS; i++)
            if (calls[i].call)
                finish(&calls[i]);
        renew(++rounds);
        sum();
    }
    for (int i = 0; i < GRAVES; i++)
        if (graves[i].bytes && memcmp(graves[i].bytes, graves[i].copy, BYTES_MAX))
            wrong("memory was written after its call was freed");
    for (int i = 0; i < GRAVES; i++) {
        free(graves[i].bytes);
        free(graves[i].copy);
    }
    if (atomic_load(&told) != atomic_load(&wanted))
        wrong("not all were told once");
    for (int i = 0; i < NODES; i++) {
        potluck_context_free(nodes[i].context);
        potluck_leave(nodes[i].cluster);
    }
    printf("%lu calls in %" PRIu32 " rounds, %lu sums of both nodes, %lu ended well and told; "
           "statuses:",
           starts, rounds, sums_right, atomic_load(&ended_well));
    for (int i = 0; i < 256; i++)
        if (statuses[i])
            printf(" %d: %lu", i, statuses[i]);
    printf("\n");
    return 0;
}
