/* Sums a buffer over all members of a group, again and again.
 *
 *   sum NAMESPACE MEMBERS ROUNDS
 *
 * Start it on every machine. Without a cluster key, on one machine: set
 * POTLUCK_EXAMPLE_LOOPBACK=1. */
#include <potluck.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1000 };

/* Prints the error, and ends the program. */
static void fail(potluck_error *error) {
    fprintf(stderr, "%s: %s\n", potluck_error_code(error), potluck_error_message(error));
    potluck_error_free(error);
    exit(1);
}

static void set(potluck_config *config, const char *key, const char *value) {
    potluck_error *error = NULL;
    if (potluck_config_set(config, key, value, &error) != POTLUCK_OK)
        fail(error);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: sum NAMESPACE MEMBERS ROUNDS\n");
        return 2;
    }
    potluck_error *error = NULL;
    potluck_config *config = potluck_config_new();
    if (getenv("POTLUCK_EXAMPLE_LOOPBACK")) {
        set(config, "network", "loopback");
        set(config, "open", argv[1]);
    } else {
        set(config, "namespace", argv[1]);
    }
    set(config, "job", "sum");
    set(config, "members", argv[2]);
    set(config, "stateless", "true");
    potluck_cluster *cluster = NULL;
    if (potluck_join(config, &cluster, &error) != POTLUCK_OK)
        fail(error);
    potluck_config_free(config);

    potluck_context *context = NULL;
    if (potluck_context_get(cluster, 60000, &context, &error) != POTLUCK_OK)
        fail(error);
    float data[COUNT];
    int rounds = atoi(argv[3]), is_told = 0;
    for (int round = 0; round < rounds; round++) {
        size_t rank = potluck_rank(context), size = potluck_size(context);
        for (size_t i = 0; i < COUNT; i++)
            data[i] = (float)(rank + i);
        potluck_call *call =
            potluck_all_reduce(context, data, COUNT, POTLUCK_F32, POTLUCK_SUM, NULL);
        potluck_status status = potluck_call_wait(call, -1, &error);
        potluck_call_free(call);
        if (status != POTLUCK_OK) {
            /* The buffer is as it was: say so, and go on with the present members. */
            int kept = data[0] == (float)rank && data[COUNT - 1] == (float)(rank + COUNT - 1);
            printf("rank %zu of %zu: %s, buffer %s\n", rank, size, potluck_error_code(error),
                   kept ? "kept" : "DAMAGED");
            is_told = 0;
            if (!potluck_error_can_renew(error))
                fail(error);
            potluck_error_free(error);
            potluck_context *before = context;
            if (potluck_context_renewed(before, 60000, &context, &error) != POTLUCK_OK)
                fail(error);
            potluck_context_free(before);
            continue;
        }
        for (size_t i = 0; i < COUNT; i++) {
            float right = (float)(size * i + size * (size - 1) / 2);
            if (data[i] != right) {
                fprintf(stderr, "element %zu is %f, not %f\n", i, (double)data[i], (double)right);
                return 1;
            }
        }
        if (!is_told)
            printf("rank %zu of %zu: the sum is right\n", rank, size);
        is_told = 1;
        fflush(stdout);
    }
    potluck_context_free(context);
    potluck_leave(cluster);
    return 0;
}
