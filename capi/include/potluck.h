/* potluck: the computers of a home or lab network as one all-reduce group.
 *
 * Made of capi/src; change it there.
 *
 * Handles. A function that makes a handle stores it, and the program frees it by the function of
 * its name: potluck_call_free for a potluck_call. Handles may be freed in any order. Any thread
 * may use a handle, several at a time; but none while another one frees it, and a potluck_step
 * by one thread at a time.
 *
 * Errors. A function that can fail returns a potluck_status. Its last argument, which may be NULL,
 * gets the error, which the program frees. Nothing is stored there if it succeeds. NULL where a
 * handle or text belongs is POTLUCK_ARGUMENT.
 *
 * Calls. potluck_all_reduce and the like start a call and return it at once, never NULL. By then
 * the call has its place among the calls of its context, and its data have been read; but a
 * receive from any rank takes its place when it has chosen a message, and a call with a length per
 * rank reads its data when all ranks have called it. An error, also in the arguments, is the end of
 * the call: potluck_call_wait tells. Calls are all or nothing: on every error, and when a call is
 * freed before it has ended, the buffers are as they were.
 *
 * Memory. It stays the program's, which leaves it alone and alive until the call has ended or has
 * been freed. Lengths are in elements unless the name says bytes. It need not be aligned. `out` may
 * be the memory of `input`.
 *
 * Text is UTF-8 and ends with a zero byte.
 *
 * fork: a child has none of the threads of its parent. Once the parent has joined, all that its
 * child calls ends with POTLUCK_FORKED, potluck_join too. Start a new process instead.
 */

#ifndef POTLUCK_H
#define POTLUCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Skips the vote: the call completes as soon as this rank has its result.
 */
#define POTLUCK_BEST_EFFORT 1

/**
 * Aborts a reduction for all ranks if a contribution or a result has a NaN or an infinity.
 */
#define POTLUCK_REJECT_NON_FINITE 2

/**
 * The call is a mean over all ranks in which `weight` is that of this rank's contribution.
 */
#define POTLUCK_WEIGHTED 4

/**
 * The number of this interface. It changes when a program that was compiled for another one would
 * go wrong.
 */
#define POTLUCK_ABI 1

/**
 * How a function has ended. The names are those of potluck's error codes, see docs/errors.md and
 * docs/c.md.
 */
enum potluck_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * It has succeeded.
   */
  POTLUCK_OK = 0,
  /**
   * The operation took effect on no member.
   */
  POTLUCK_ABORTED = 1,
  /**
   * The View was replaced before this call began.
   */
  POTLUCK_VIEW_CHANGED = 2,
  /**
   * This member cannot know the outcome; a sync brings it.
   */
  POTLUCK_INDETERMINATE = 3,
  /**
   * The members do not hold the same state; call potluck_sync first.
   */
  POTLUCK_NEEDS_SYNC = 4,
  /**
   * An earlier call of this lane was freed after this member's vote.
   */
  POTLUCK_LOST_RESULT = 5,
  /**
   * Two ranks made different calls.
   */
  POTLUCK_MISMATCH = 6,
  /**
   * The call cannot be carried out.
   */
  POTLUCK_REJECTED = 7,
  /**
   * Too many operations are in flight.
   */
  POTLUCK_TOO_MANY_IN_FLIGHT = 8,
  /**
   * Too few members came in time.
   */
  POTLUCK_NOT_ENOUGH_PEERS = 9,
  /**
   * There is no cluster key on this machine.
   */
  POTLUCK_NO_CLUSTER_KEY = 10,
  /**
   * The configuration is invalid.
   */
  POTLUCK_CONFIG = 11,
  /**
   * The identity or a key file cannot be used.
   */
  POTLUCK_IDENTITY = 12,
  /**
   * The engine failed.
   */
  POTLUCK_ENGINE = 13,
  /**
   * The node has left the group.
   */
  POTLUCK_CLOSED = 14,
  /**
   * There is too little memory.
   */
  POTLUCK_MEMORY = 15,
  /**
   * An argument is wrong; nothing was done.
   */
  POTLUCK_ARGUMENT = 16,
  /**
   * The call was freed before it ended.
   */
  POTLUCK_GIVEN_UP = 17,
  /**
   * A wait inside of a function that potluck calls.
   */
  POTLUCK_IN_CALLBACK = 18,
  /**
   * This process is a fork of the one that joined.
   */
  POTLUCK_FORKED = 19,
  /**
   * The time of a wait has passed; the call goes on.
   */
  POTLUCK_TIMED_OUT = 20,
  /**
   * An error that this list does not have; see its code.
   */
  POTLUCK_OTHER = 254,
  /**
   * potluck has a fault.
   */
  POTLUCK_PANIC = 255,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum potluck_status potluck_status;
#else
typedef uint32_t potluck_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The types of elements.
 */
enum potluck_dtypes
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * IEEE 754 binary32: `float`.
   */
  POTLUCK_F32 = 0,
  /**
   * IEEE 754 binary64: `double`.
   */
  POTLUCK_F64 = 1,
  /**
   * IEEE 754 binary16.
   */
  POTLUCK_F16 = 2,
  /**
   * The upper half of a binary32.
   */
  POTLUCK_BF16 = 3,
  /**
   * `int8_t`.
   */
  POTLUCK_I8 = 4,
  /**
   * `uint8_t`.
   */
  POTLUCK_U8 = 5,
  /**
   * `int16_t`.
   */
  POTLUCK_I16 = 6,
  /**
   * `uint16_t`.
   */
  POTLUCK_U16 = 7,
  /**
   * `int32_t`.
   */
  POTLUCK_I32 = 8,
  /**
   * `uint32_t`.
   */
  POTLUCK_U32 = 9,
  /**
   * `int64_t`.
   */
  POTLUCK_I64 = 10,
  /**
   * `uint64_t`.
   */
  POTLUCK_U64 = 11,
  /**
   * One byte: 0 is false, all else is true. Results are 0 and 1.
   */
  POTLUCK_BOOL = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum potluck_dtypes potluck_dtypes;
#else
typedef uint32_t potluck_dtypes;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The operators of reductions.
 */
enum potluck_ops
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The sum. Integers wrap around.
   */
  POTLUCK_SUM = 0,
  /**
   * The sum divided by the number of ranks; floats only.
   */
  POTLUCK_MEAN = 1,
  /**
   * The product. Integers wrap around.
   */
  POTLUCK_PRODUCT = 2,
  /**
   * The minimum.
   */
  POTLUCK_MIN = 3,
  /**
   * The maximum.
   */
  POTLUCK_MAX = 4,
  /**
   * The bits that all ranks have; integers and bool.
   */
  POTLUCK_BIT_AND = 5,
  /**
   * The bits that any rank has; integers and bool.
   */
  POTLUCK_BIT_OR = 6,
  /**
   * The bits that an odd number of ranks has; integers and bool.
   */
  POTLUCK_BIT_XOR = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum potluck_ops potluck_ops;
#else
typedef uint32_t potluck_ops;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A call under way, or ended.
 */
typedef struct potluck_call potluck_call;

/**
 * This process as a node of a cluster.
 */
typedef struct potluck_cluster potluck_cluster;

/**
 * A codec, with the rounding errors that it adds to the next call. A buffer has one of its own.
 */
typedef struct potluck_codec potluck_codec;

/**
 * The configuration of a node.
 */
typedef struct potluck_config potluck_config;

/**
 * This node's rank in one View of its group, and one lane of calls: a sequence that all ranks make
 * in the same order. Rank and size never change. Several threads make calls on lanes of their own.
 */
typedef struct potluck_context potluck_context;

/**
 * Why a function has failed.
 */
typedef struct potluck_error potluck_error;

/**
 * Calls that are committed together: all results are written, or none.
 */
typedef struct potluck_step potluck_step;

/**
 * Is called when a call has ended, with the `user` that it was registered with.
 */
typedef void (*potluck_on_done)(void *user, potluck_status status);

/**
 * The type of the elements of a buffer: a number of `enum potluck_dtypes`.
 */
typedef uint32_t potluck_dtype;

/**
 * The operator of a reduction: a number of `enum potluck_ops`.
 */
typedef uint32_t potluck_op;

/**
 * Options of a call. Set all of it to zero, then `size` to `sizeof(potluck_options)`, then the
 * wanted options. Another `size`, or an option that the call does not have, ends it with
 * POTLUCK_ARGUMENT.
 */
typedef struct {
  /**
   * `sizeof(potluck_options)`: the library reads no more than that.
   */
  size_t size;
  /**
   * The call is aborted for all ranks if it is undecided after so many milliseconds. 0: never.
   */
  uint64_t deadline_ms;
  /**
   * `POTLUCK_BEST_EFFORT` and the like.
   */
  uint32_t flags;
  /**
   * Zero.
   */
  uint32_t reserved;
  /**
   * Compresses the data of an all_reduce of POTLUCK_F32 on the wire. May be NULL.
   */
  const potluck_codec *codec;
  /**
   * With POTLUCK_WEIGHTED.
   */
  double weight;
} potluck_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Waits for the end of a call, at most `timeout_ms`; -1 waits without bound.
 *
 * Returns POTLUCK_OK, or why the call has failed. POTLUCK_TIMED_OUT: it goes on.
 * POTLUCK_IN_CALLBACK: this is a function that potluck has called, and waiting here would be
 * waiting for itself.
 */
potluck_status potluck_call_wait(const potluck_call *call,
                                 int64_t timeout_ms,
                                 potluck_error **error);

/**
 * Whether a call has ended. False for NULL.
 */
bool potluck_call_done(const potluck_call *call);

/**
 * Has `function` called once when the call has ended, also if it is freed before: at once if it
 * has ended; else on a thread of potluck's, or in the `potluck_call_free` that gives it up. The
 * function may use the call, and free it unless `status` is POTLUCK_GIVEN_UP: then it is being
 * freed. It must not wait for calls, and should be short: the calls of this process go on when it
 * has returned. Nothing for NULL.
 */
void potluck_call_on_done(const potluck_call *call, potluck_on_done function, void *user);

/**
 * The rank whose message a receive has taken; -1 if it has not succeeded, and for other calls.
 */
int64_t potluck_call_source(const potluck_call *call);

/**
 * The bytes that a call has returned: the state of `potluck_sync`, the elements of an uneven call.
 * Valid until the call is freed. False, and NULL and 0, if it has not succeeded, and for other
 * calls.
 */
bool potluck_call_bytes(const potluck_call *call, const void **bytes, size_t *count);

/**
 * How many elements of an uneven call are from each rank, in rank order. Valid until the call is
 * freed. False, and NULL and 0, if it has not succeeded, and for other calls.
 */
bool potluck_call_lengths(const potluck_call *call, const size_t **lengths, size_t *count);

/**
 * Frees a call. If it has not ended, it is given up for all ranks, as if this rank had failed; but
 * once this rank has voted the others decide, and may have the result: then calls of this lane end
 * with POTLUCK_LOST_RESULT until `potluck_discard_result`. Returns when nothing points at its
 * memory any more, and the functions that were registered for it have returned: they are called
 * one after the other with those of other calls. In a function that potluck calls, it may return
 * before another of these functions has returned. A function that potluck calls on its thread must
 * not free a call of another cluster. Nothing for NULL.
 */
void potluck_call_free(potluck_call *call);

/**
 * Makes this process a node: it finds the others and is found from now on. Returns when the node
 * runs, which takes up to some seconds; it does not wait for others. The configuration stays the
 * program's.
 */
potluck_status potluck_join(const potluck_config *config,
                            potluck_cluster **cluster,
                            potluck_error **error);

/**
 * The context of the newest View. Waits until there are enough members, at most `timeout_ms`; -1
 * waits without bound.
 *
 * Returns POTLUCK_NOT_ENOUGH_PEERS when the time has passed, POTLUCK_CLOSED when the node has
 * left.
 */
potluck_status potluck_context_get(const potluck_cluster *cluster,
                                   int64_t timeout_ms,
                                   potluck_context **context,
                                   potluck_error **error);

/**
 * The status of this node as JSON: the document of `potluck status --json`. Free it by
 * `potluck_string_free`.
 */
potluck_status potluck_status_json(const potluck_cluster *cluster,
                                   char **json,
                                   potluck_error **error);

/**
 * Frees text. Nothing for NULL.
 */
void potluck_string_free(char *text);

/**
 * Leaves the cluster as `potluck_leave` does, and keeps the handle for the threads that use it: a
 * `potluck_context_get` that waits in another thread returns POTLUCK_CLOSED. Nothing for NULL.
 */
void potluck_close(const potluck_cluster *cluster);

/**
 * Leaves the cluster: the others are told, open calls end with POTLUCK_INDETERMINATE and later
 * ones with POTLUCK_CLOSED, and the handle is freed. Contexts of it may still be freed afterwards.
 * Nothing for NULL.
 */
void potluck_leave(potluck_cluster *cluster);

/**
 * Makes a codec: `bf16`, `f16`, `int8`, `int4`, `one_bit`, `top_k=0.01` (the share of elements
 * that travels), `auto` or `auto=bf16`, `auto=int8`, `auto=int4` (the coarsest that it may
 * choose). With `+feedback` or `-feedback` after it, it adds its rounding errors to the next call,
 * or not; `one_bit` and `top_k` do so without it. Both are for sums and means only.
 */
potluck_status potluck_codec_new(const char *name, potluck_codec **codec, potluck_error **error);

/**
 * Frees a codec. Calls that use it go on. Nothing for NULL.
 */
void potluck_codec_free(potluck_codec *codec);

/**
 * Combines `data` of all ranks, in place: afterwards all hold the same. `count` elements, the same
 * everywhere.
 */
potluck_call *potluck_all_reduce(const potluck_context *context,
                                 void *data,
                                 size_t count,
                                 potluck_dtype dtype,
                                 potluck_op by,
                                 const potluck_options *given);

/**
 * Combines `data` of all ranks in that of rank `root`; the others keep theirs.
 */
potluck_call *potluck_reduce(const potluck_context *context,
                             void *data,
                             size_t count,
                             potluck_dtype dtype,
                             potluck_op by,
                             size_t root,
                             const potluck_options *given);

/**
 * Combines `input`, `count` elements, of all ranks; `out`, `out_count` elements, gets this rank's
 * part: see `potluck_shard`.
 */
potluck_call *potluck_reduce_scatter(const potluck_context *context,
                                     const void *input,
                                     size_t count,
                                     void *out,
                                     size_t out_count,
                                     potluck_dtype dtype,
                                     potluck_op by,
                                     const potluck_options *given);

/**
 * Copies `data` of rank `root` to all ranks.
 */
potluck_call *potluck_broadcast(const potluck_context *context,
                                void *data,
                                size_t count,
                                potluck_dtype dtype,
                                size_t root,
                                const potluck_options *given);

/**
 * Collects `input`, `count` elements, of all ranks in `out`, `out_count` = size * `count`
 * elements, in rank order.
 */
potluck_call *potluck_all_gather(const potluck_context *context,
                                 const void *input,
                                 size_t count,
                                 void *out,
                                 size_t out_count,
                                 potluck_dtype dtype,
                                 const potluck_options *given);

/**
 * Collects `input`, `count` elements, of all ranks in `out` of rank `root`, `out_count` = size *
 * `count` elements. On the other ranks `out` may be NULL.
 */
potluck_call *potluck_gather(const potluck_context *context,
                             const void *input,
                             size_t count,
                             void *out,
                             size_t out_count,
                             potluck_dtype dtype,
                             size_t root,
                             const potluck_options *given);

/**
 * Gives each rank its part of `input` of rank `root`, `in_count` = size * `count` elements; `out`
 * gets it, `count` elements. On the other ranks `input` may be NULL.
 */
potluck_call *potluck_scatter(const potluck_context *context,
                              const void *input,
                              size_t in_count,
                              void *out,
                              size_t count,
                              potluck_dtype dtype,
                              size_t root,
                              const potluck_options *given);

/**
 * Gives each rank an equal part of `input`, `count` elements; `out`, `count` elements, gets the
 * parts for this rank, in rank order.
 */
potluck_call *potluck_all_to_all(const potluck_context *context,
                                 const void *input,
                                 void *out,
                                 size_t count,
                                 potluck_dtype dtype,
                                 const potluck_options *given);

/**
 * Collects `input` of all ranks, which may have any lengths: `potluck_call_bytes` and
 * `potluck_call_lengths`.
 */
potluck_call *potluck_all_gather_uneven(const potluck_context *context,
                                        const void *input,
                                        size_t count,
                                        potluck_dtype dtype,
                                        const potluck_options *given);

/**
 * Gives the first `lengths[0]` elements of `input` to rank 0, and so on: one length for each rank.
 * The elements that the others give to this rank: `potluck_call_bytes` and `potluck_call_lengths`.
 */
potluck_call *potluck_all_to_all_uneven(const potluck_context *context,
                                        const void *input,
                                        size_t count,
                                        const size_t *lengths,
                                        size_t lengths_count,
                                        potluck_dtype dtype,
                                        const potluck_options *given);

/**
 * Sends a message to rank `to`. Ends when it has been received.
 */
potluck_call *potluck_send(const potluck_context *context,
                           const void *data,
                           size_t count,
                           potluck_dtype dtype,
                           size_t to,
                           uint32_t tag,
                           const potluck_options *given);

/**
 * Receives a message of rank `from`, or with -1 of any rank: `potluck_call_source`.
 */
potluck_call *potluck_recv(const potluck_context *context,
                           void *data,
                           size_t count,
                           potluck_dtype dtype,
                           int64_t from,
                           uint32_t tag,
                           const potluck_options *given);

/**
 * Waits for all ranks.
 */
potluck_call *potluck_barrier(const potluck_context *context, const potluck_options *given);

/**
 * Brings all members to one state: that of the members whose history wins, among them the one with
 * the largest `version`. `potluck_call_bytes` has it. `state` is copied at once.
 */
potluck_call *potluck_sync(const potluck_context *context,
                           uint64_t version,
                           const void *state,
                           size_t bytes,
                           const potluck_options *given);

/**
 * The configuration of a node that finds others on this home's network.
 */
potluck_config *potluck_config_new(void);

/**
 * Sets one setting. A setting without a value comes from the environment (POTLUCK_NAMESPACE,
 * POTLUCK_JOB, POTLUCK_KEY, POTLUCK_MEMBERS, ...), else from the documented defaults.
 *
 * | key | value |
 * | --- | --- |
 * | network | `home`: this machine's interfaces; `loopback`: 127.0.0.1; `process`: for tests |
 * | namespace | the cluster's name |
 * | job | which program this is: nodes of one job form a group |
 * | key | the cluster key, as `potluck key --show` prints it |
 * | open | a namespace that every node on the network may join, without a key |
 * | home | the directory of key and state files |
 * | name | this node's display name |
 * | members | with how many members the group begins, 1 to 32 |
 * | min_members | with how many it goes on |
 * | max_members | how many it may have |
 * | partition | which part of a cut network goes on |
 * | stateless | `true`: this node keeps no state in step with the others |
 * | peers | addresses to dial, with commas between: `host` or `host:port` |
 * | interfaces | which to use: `eth0,en*`, or `^wlan0` for all others |
 * | trusted_links | interfaces on which bulk data is not encrypted, with commas between |
 * | engine | `auto`, `native` or `gloo` |
 * | notices | `false`: never a line on stderr |
 *
 * Returns POTLUCK_ARGUMENT for another key, and for a value that cannot be read. The configuration
 * is then as before. potluck_join checks further: POTLUCK_CONFIG for an invalid value.
 */
potluck_status potluck_config_set(potluck_config *config,
                                  const char *key,
                                  const char *value,
                                  potluck_error **error);

/**
 * Frees a configuration. Nothing for NULL.
 */
void potluck_config_free(potluck_config *config);

/**
 * The context of the newest View: this one if it is still current. Other ranks and sizes than
 * before are possible. Waits as `potluck_context_get` does.
 */
potluck_status potluck_context_renewed(const potluck_context *context,
                                       int64_t timeout_ms,
                                       potluck_context **renewed,
                                       potluck_error **error);

/**
 * Another lane of the same View, for another thread. Equal tags name the same lane on every rank;
 * each is used once.
 */
potluck_status potluck_context_lane(const potluck_context *context,
                                    uint32_t tag,
                                    potluck_context **lane,
                                    potluck_error **error);

/**
 * The calls of some ranks among themselves: `count` ranks of this context, in any order, with the
 * own one. In the new context they are 0 to `count` - 1, in ascending order. Made by these ranks
 * alone. Equal ranks and tags name the same group.
 */
potluck_status potluck_context_group(const potluck_context *context,
                                     const size_t *ranks,
                                     size_t count,
                                     uint32_t tag,
                                     potluck_context **group,
                                     potluck_error **error);

/**
 * Frees a context. Its calls go on. Nothing for NULL.
 */
void potluck_context_free(potluck_context *context);

/**
 * This node's rank, from 0. 0 for NULL.
 */
size_t potluck_rank(const potluck_context *context);

/**
 * The number of ranks. 0 for NULL.
 */
size_t potluck_size(const potluck_context *context);

/**
 * Whether all members hold the same state, so that no call needs a sync first. False for NULL.
 */
bool potluck_in_sync(const potluck_context *context);

/**
 * The part of a buffer of `count` elements that this rank gets from `potluck_reduce_scatter`: its
 * first element and its length. Nothing is written for NULL.
 */
void potluck_shard(const potluck_context *context, size_t count, size_t *first, size_t *length);

/**
 * Discards the result of a call of this lane that was freed after this member's vote, so that the
 * lane takes calls again when no such call is left. False if there is none, or if it is still
 * undecided: then ask again.
 */
bool potluck_discard_result(const potluck_context *context);

/**
 * One sentence: the cause and the remedy. Valid until the error is freed. NULL for NULL.
 */
const char *potluck_error_message(const potluck_error *error);

/**
 * The stable code of the error, such as `aborted`. docs/errors.md lists the codes of all programs,
 * and docs/c.md those of bindings. Valid until the error is freed. NULL for NULL.
 */
const char *potluck_error_code(const potluck_error *error);

/**
 * Whether a program that goes on while members come and go should take a new context, sync its
 * state, and go on.
 */
bool potluck_error_can_renew(const potluck_error *error);

/**
 * Whether the same call should be made again on a new context.
 */
bool potluck_error_retryable(const potluck_error *error);

/**
 * Frees an error. Nothing for NULL.
 */
void potluck_error_free(potluck_error *error);

/**
 * Begins a step of at most 64 calls. NULL for NULL.
 */
potluck_step *potluck_step_new(const potluck_context *context);

/**
 * Adds a `potluck_all_reduce`. Its options may have a codec and a weight. On an error the step is
 * as before.
 */
potluck_status potluck_step_all_reduce(potluck_step *step,
                                       void *data,
                                       size_t count,
                                       potluck_dtype dtype,
                                       potluck_op by,
                                       const potluck_options *given,
                                       potluck_error **error);

/**
 * Adds a `potluck_reduce`. On an error the step is as before.
 */
potluck_status potluck_step_reduce(potluck_step *step,
                                   void *data,
                                   size_t count,
                                   potluck_dtype dtype,
                                   potluck_op by,
                                   size_t root,
                                   potluck_error **error);

/**
 * Adds a `potluck_reduce_scatter`. On an error the step is as before.
 */
potluck_status potluck_step_reduce_scatter(potluck_step *step,
                                           const void *input,
                                           size_t count,
                                           void *out,
                                           size_t out_count,
                                           potluck_dtype dtype,
                                           potluck_op by,
                                           potluck_error **error);

/**
 * Adds a `potluck_broadcast`. On an error the step is as before.
 */
potluck_status potluck_step_broadcast(potluck_step *step,
                                      void *data,
                                      size_t count,
                                      potluck_dtype dtype,
                                      size_t root,
                                      potluck_error **error);

/**
 * Adds a `potluck_all_gather`. On an error the step is as before.
 */
potluck_status potluck_step_all_gather(potluck_step *step,
                                       const void *input,
                                       size_t count,
                                       void *out,
                                       size_t out_count,
                                       potluck_dtype dtype,
                                       potluck_error **error);

/**
 * Adds a `potluck_all_to_all`. On an error the step is as before.
 */
potluck_status potluck_step_all_to_all(potluck_step *step,
                                       const void *input,
                                       void *out,
                                       size_t count,
                                       potluck_dtype dtype,
                                       potluck_error **error);

/**
 * Makes the calls of a step, and frees it. It takes its place in the lane now, and the memory is
 * read now. The options may have a deadline and POTLUCK_REJECT_NON_FINITE.
 */
potluck_call *potluck_step_commit(potluck_step *step, const potluck_options *given);

/**
 * Frees a step that is not committed: none of its calls is made. Nothing for NULL.
 */
void potluck_step_free(potluck_step *step);

/**
 * The number of the interface that the library has, to be compared with `POTLUCK_ABI`.
 */
uint32_t potluck_abi(void);

/**
 * The version of the library, such as "0.1.0".
 */
const char *potluck_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* POTLUCK_H */
