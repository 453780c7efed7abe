"""The values that the calls return and write."""

from array import array

import numpy as np
import potluck
import pytest

FLOATS = ["float16", "float32", "float64"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
OPS = {
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "prod": np.multiply,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
}


def contribution(rank, dtype):
    """Numbers whose sums and products are exact in every type."""
    numbers = (np.arange(1000) * (rank + 3)) % 5 + 1
    return numbers.astype(dtype) if dtype != "bool" else numbers % 2 == 0


def all_types_and_ops(cluster, ctx):
    done = []
    for dtype in [*FLOATS, *INTEGERS, "bool"]:
        for op, combine in OPS.items():
            inputs = [contribution(rank, dtype) for rank in range(ctx.size)]
            own = inputs[ctx.rank].copy()
            no_bits = op.startswith("bit") and dtype in FLOATS
            if no_bits or (dtype == "bool" and op in ("sum", "prod")):
                with pytest.raises(potluck.Rejected):
                    ctx.all_reduce(own, op)
                assert (own == inputs[ctx.rank]).all(), (dtype, op)
                continue
            expected = combine.reduce(inputs).astype(dtype)
            assert ctx.all_reduce(own, op) is own
            assert own.dtype == dtype and (own == expected).all(), (dtype, op)
            done.append((dtype, op))
    for dtype in FLOATS:
        own = np.full(9, ctx.rank * 2, dtype)
        ctx.all_reduce(own, "mean")
        assert (own == ctx.size - 1).all()
    return len(done)


@pytest.mark.parametrize("size", [2, 3])
def test_every_type_and_operator_is_that_of_numpy(group, size):
    assert group.run(all_types_and_ops, size) == [3 * 4 + 8 * 7 + 5] * size


def every_kind_of_buffer(cluster, ctx):
    one = float(ctx.rank + 1)
    numbers, half = array("d", [one] * 5), memoryview(bytearray(20)).cast("f")
    half[0] = one
    raw, matrix = bytearray([ctx.rank + 1] * 7), np.full((2, 3), one)
    for buffer in [numbers, half, raw, matrix, matrix[:0], bytearray()]:
        assert ctx.all_reduce(buffer) is buffer
    assert list(numbers) == [3.0] * 5
    assert list(half) == [3.0, 0.0, 0.0, 0.0, 0.0]
    assert raw == bytes([3] * 7)
    assert (matrix == 3.0).all()
    raw.append(1)  # nobody holds it any more
    return True


def test_arrays_and_bytes_and_views_are_buffers(group):
    assert group.run(every_kind_of_buffer) == [True, True]


def parts(cluster, ctx):
    size, rank = ctx.size, ctx.rank
    own = np.full((2, 2), rank, "int32")
    all = ctx.all_gather(own)
    assert all.shape == (size, 2, 2) and all.dtype == "int32"
    assert all[:, 0, 1].tolist() == list(range(size))
    out = np.zeros((size, 2, 2), "int32")
    assert ctx.all_gather(own, out=out) is out and (out == all).all()
    view = ctx.all_gather(array("h", [rank]))
    assert isinstance(view, memoryview) and view.format == "h"
    assert view.tolist() == [[r] for r in range(size)]

    whole = np.arange(7.0)
    begin, end = ctx.shard(7)
    assert ctx.reduce_scatter(whole, "mean").tolist() == whole[begin:end].tolist()
    turned = ctx.all_to_all(np.arange(size) + 10 * rank)
    assert turned.tolist() == [10 * r + rank for r in range(size)]

    at_root = ctx.gather(np.array([rank]), root=1)
    assert (at_root is None) == (rank != 1)
    assert rank != 1 or at_root.tolist() == [[r] for r in range(size)]
    part = np.zeros(1, "uint8")
    ctx.scatter(part, bytes(range(size)) if rank == 0 else None)
    assert part.tolist() == [rank]

    uneven = ctx.all_gather_uneven(np.full(rank, rank, "uint16"))
    assert [p.tolist() for p in uneven] == [[r] * r for r in range(size)]
    assert all_equal(uneven, "uint16")
    lengths = [to for to in range(size)]
    sent = np.concatenate([np.full(to, rank, "float32") for to in range(size)])
    came = ctx.all_to_all_uneven(sent, lengths)
    assert [p.tolist() for p in came] == [[r] * rank for r in range(size)]

    copy = np.full(3, rank)
    ctx.broadcast(copy, root=size - 1)
    total = np.full(3, 1 + rank)
    ctx.reduce(total, root=0)
    assert copy.tolist() == [size - 1] * 3
    assert total[0] == (size * (size + 1) // 2 if rank == 0 else 1 + rank)
    return [member.rank for member in ctx.members]


def all_equal(arrays, dtype):
    return all(a.dtype == dtype for a in arrays)


@pytest.mark.parametrize("size", [2, 3])
def test_parts_go_where_they_belong(group, size):
    assert group.run(parts, size) == [list(range(size))] * size


def messages(cluster, ctx):
    other = 1 - ctx.rank
    sending = ctx.send(np.full(4, ctx.rank), other, 7, async_op=True)
    came = np.zeros(4, int)
    assert ctx.recv(came, other, 7) == other
    assert sending.wait() is None
    assert came.tolist() == [other] * 4
    sending = ctx.send(bytes([ctx.rank]), other, 8, async_op=True)
    one = bytearray(1)
    assert ctx.recv(one, tag=8) == other and one[0] == other
    sending.wait()
    ctx.barrier()
    lane = ctx.lane(5)
    assert lane.all_gather(np.array([ctx.rank])).tolist() == [[0], [1]]
    return True


def test_messages_arrive(group):
    assert group.run(messages) == [True, True]


def groups(cluster, ctx):
    with pytest.raises(potluck.Rejected):
        ctx.group([(ctx.rank + 1) % 3])
    if ctx.rank == 1:
        return "not in it"
    pair = ctx.group([0, 2], tag=3)
    number = np.array([ctx.rank])
    pair.all_reduce(number)
    return [pair.rank, pair.size, int(number[0])]


def test_some_ranks_call_among_themselves(group):
    assert sorted(group.run(groups, 3), key=str) == [[0, 2, 2], [1, 2, 2], "not in it"]


def steps(cluster, ctx):
    a, b, flags = np.full(3, 1.0), np.full(2, ctx.rank), np.array([ctx.rank == 0])
    with ctx.step() as step:
        assert step.all_reduce(a) is a
        step.all_reduce(b, "max")
        step.reduce(flags, 0, "bit_or")
        all = step.all_gather(np.array([ctx.rank]))
        assert a[0] == 1.0
    assert a.tolist() == [2.0] * 3 and b.tolist() == [1, 1] and all.tolist() == [[0], [1]]
    with pytest.raises(ZeroDivisionError), ctx.step() as step:
        step.all_reduce(a)
        1 / 0
    with pytest.raises(potluck.Mismatch), ctx.step() as step:
        step.all_reduce(a)
        if ctx.rank == 0:
            step.broadcast(b)
    assert a.tolist() == [2.0] * 3
    with pytest.raises(potluck.Argument):
        step.commit()
    return True


def test_a_step_writes_all_or_nothing(group):
    assert group.run(steps) == [True, True]


def coded(cluster, ctx):
    numbers = np.full(100, ctx.rank + 1.0, "float32")
    codec = potluck.Codec.int8().with_feedback()
    ctx.all_reduce(numbers, codec=codec)
    assert abs(numbers - 3).max() < 0.1 and codec.residual().shape == (100,)
    mean = np.array([float(ctx.rank)])
    ctx.all_reduce(mean, weight=1 + 2.0 * ctx.rank)
    assert mean[0] == 0.75
    one_bit = potluck.Codec.one_bit()
    ctx.all_reduce(np.ones(512, "float32"), "mean", codec=one_bit)
    assert one_bit.residual().shape == (512,)
    kinds = [potluck.Codec.top_k(0.1), potluck.Codec.auto("int4"), potluck.Codec.bf16()]
    for codec in kinds:
        ctx.all_reduce(np.ones(512, "float32"), "mean", codec=codec)
    with pytest.raises(potluck.Argument, match="a codec is for f32"):
        ctx.all_reduce(np.ones(3), codec=potluck.Codec.f16())
    with pytest.raises(potluck.Argument, match="op is 'average'|op is \"average\""):
        ctx.all_reduce(np.ones(3), "average")
    not_a_number = np.full(3, np.nan)
    with pytest.raises(potluck.Aborted) as aborted:
        ctx.all_reduce(not_a_number, reject_non_finite=True)
    return [aborted.value.code, aborted.value.retryable, aborted.value.can_renew]


def test_codecs_and_weights_and_checks(group):
    assert group.run(coded) == [["aborted", False, False]] * 2


def gradients(cluster, ctx):
    lens = [3, 40, 5]
    sync = potluck.GradientSync(cluster, lens, codec=potluck.Codec.bf16(), bucket_bytes=128)
    for round in range(3):
        with sync.step(timeout=60) as step:
            own = [np.full(n, step.rank + round, "float32") for n in lens]
            for i in reversed(range(3)):
                step.push(i, own[i])
        assert all((g == round + 0.5).all() for g in own)
    with sync.step(weight=step.rank) as step:
        own = [np.full(n, step.rank, "float32") for n in lens]
        for i in range(3):
            step.push(i, own[i])
    assert all((g == 1.0).all() for g in own)
    with pytest.raises(TypeError, match="f32"):
        sync.step().push(0, np.ones(3))
    with pytest.raises(potluck.Rejected), sync.step() as step:
        step.push(0, own[0])
    open_step = sync.step(timeout=60)
    with pytest.raises(potluck.Argument, match="the step before is open"):
        sync.step(timeout=60)
    for i in range(3):
        open_step.push(i, own[i])
    # A step that is finished is waited for, also if that has not ended.
    pending = open_step.finish(async_op=True)
    again = sync.step(timeout=60)
    pending.wait()
    # One that is dropped is none any more.
    del again
    assert sync.context().size == 2
    return True


def weight_of_a_late_step(cluster, ctx):
    sync = potluck.GradientSync(cluster, [3])
    if ctx.rank == 0:
        # The first step of a View asks the others, and rank 1 does not answer before the barrier.
        with pytest.raises(TimeoutError):
            sync.step(weight=3.0, timeout=0.1)
    ctx.barrier()
    with sync.step(timeout=60) as step:
        own = np.full(3, 1 + step.rank, "float32")
        step.push(0, own)
    return own.tolist()


def test_a_step_that_does_not_begin_leaves_no_weight(group):
    assert group.run(weight_of_a_late_step) == [[1.5] * 3] * 2


def test_gradients_are_averaged(group):
    assert group.run(gradients) == [True, True]


def states(cluster, ctx):
    state = bytes([1, 2]) if ctx.rank else b"x"
    number = np.ones(1)
    ctx.all_reduce(number)
    return [list(ctx.sync(3, state)), ctx.in_sync, ctx.engine]


def test_members_of_one_history_keep_their_states(group):
    results = group.run(states, stateless=False)
    assert sorted(results) == [[[1, 2], True, "native"], [[120], True, "native"]]


def mismatched(cluster, ctx):
    length = 3 + ctx.rank
    with pytest.raises(potluck.Mismatch, match="make the program call the same") as error:
        ctx.all_reduce(np.ones(length))
    assert error.value.code == "mismatch" and isinstance(error.value, potluck.Error)
    return cluster.status()["state"]


def test_different_calls_are_an_error_that_names_them(group):
    assert group.run(mismatched) == ["in", "in"]
