"""The objects that are buffers, and those that are refused."""

import os
import struct
import sys

import numpy as np
import potluck
import pytest
from exporter import BFLOAT16, FLOAT32, Exporter
from member import joined, joins_itself, say


def bf16(numbers):
    return bytearray(b"".join(struct.pack("<f", x)[2:] for x in numbers))


def of_bf16(memory):
    halves = struct.iter_unpack("2s", memory)
    return [struct.unpack("<f", b"\0\0" + half)[0] for (half,) in halves]


def exported(cluster, ctx):
    for version in [None, (1, 0), (1, 9)]:
        memory = bf16([1 + ctx.rank, 0.5, -3])
        tensor = Exporter(memory, BFLOAT16, [3], version=version)
        assert ctx.all_reduce(tensor) is tensor
        assert of_bf16(memory) == [3.0, 1.0, -6.0], version
    # Part of a memory, in two axes with their strides.
    memory = bf16([9, 1, 2, 3, 4, 9])
    tensor = Exporter(memory, BFLOAT16, [2, 1, 2], [2, 77, 1], offset=2)
    ctx.all_reduce(tensor)
    assert of_bf16(memory) == [9, 2, 4, 6, 8, 9]
    with pytest.raises(TypeError, match="give out="):
        ctx.all_gather(tensor)
    out = Exporter(bytearray(16), BFLOAT16, [8])
    ctx.all_gather(tensor, out=out)
    assert of_bf16(out.memory) == [2, 4, 6, 8] * 2
    return True


def test_bf16_comes_by_dlpack(group):
    assert group.run(exported) == [True, True]


def refused(cluster, ctx):
    memory = bytearray(range(1, 25))
    before = bytes(memory)

    def tensor(*args, **kwargs):
        return Exporter(memory, FLOAT32, *args, **kwargs)

    read_only = np.ones(3)
    read_only.flags.writeable = False
    arguments = [
        (tensor([2, 2], [1, 2]), "not C-contiguous"),
        (tensor([2], [-1]), "not C-contiguous"),
        (tensor([2], flags=1), "read-only"),
        (tensor([2], flags=2), "a copy"),
        (np.ones((4, 4))[:, 1], "not C-contiguous"),
        (np.asfortranarray(np.ones((2, 3))), "not C-contiguous"),
        (memoryview(bytearray(8))[::2], "not C-contiguous"),
        (read_only, "read-only"),
        (bytes(4), "read-only"),
        (memoryview(b"1234"), "read-only"),
    ]
    for buffer, why in arguments:
        with pytest.raises(potluck.Argument, match=why) as error:
            ctx.all_reduce(buffer)
        assert isinstance(error.value, ValueError) and error.value.code == "argument"
    types = [
        (tensor([2], device=(2, 0)), "another device"),
        (tensor([2], version=(2, 0)), "version 2"),
        (Exporter(memory, (5, 64, 1), [1]), "elements of"),
        (Exporter(memory, (2, 32, 4), [1]), "elements of"),
        (np.ones(2, "complex64"), "elements of"),
        (np.ones(2, ">f4"), "elements of"),
        (np.array(["a"]), "elements of"),
        ([1.0, 2.0], "list is neither"),
        (None, "NoneType is neither"),
    ]
    for buffer, why in types:
        with pytest.raises(TypeError, match=why):
            ctx.all_reduce(buffer)
    assert memory == before
    # To be read, all of these will do.
    assert ctx.all_gather(read_only).tolist() == [[1.0, 1.0, 1.0]]
    assert bytes(ctx.all_gather(b"1234")) == b"1234"
    for wrong in [np.zeros(5), np.zeros(3, "int64"), bytearray(24)]:
        with pytest.raises(potluck.Argument):
            ctx.all_gather(np.ones(3), out=wrong)
    with pytest.raises(ValueError, match="deadline"):
        ctx.barrier(deadline=-1.0)
    number = np.ones(1)
    ctx.all_reduce(number)
    return number.tolist()


def test_what_is_no_buffer_is_refused_with_a_reason(group):
    assert group.run(refused, 1) == [[1.0]]


def twice(cluster, ctx):
    array = np.ones(100)
    if ctx.rank == 0:
        first = ctx.all_reduce(array, async_op=True)
        with pytest.raises(potluck.Argument, match="a call that has not ended uses this buffer"):
            ctx.all_reduce(array[50:], async_op=True)
        with pytest.raises(potluck.Argument, match="uses this buffer"):
            ctx.all_gather(array)
        # Others may read memory that a call only reads.
        reads = [ctx.send(array[:0], 1, tag, async_op=True) for tag in (1, 2)]
    else:
        ctx.recv(array[:0], 0, 1)
        ctx.recv(array[:0], 0, 2)
        reads, first = [], ctx.all_reduce(array, async_op=True)
    assert first.wait() is array and array[0] == 2.0
    ctx.all_reduce(array)
    [read.wait() for read in reads]
    held = bytearray(10)
    pending = ctx.all_reduce(held, async_op=True)
    if not pending.done():
        with pytest.raises(BufferError):
            held.append(1)
    pending.wait()
    held.append(1)
    return array[0]


def test_memory_is_of_one_call_at_a_time(group):
    assert group.run(twice) == [4.0, 4.0]


@joins_itself
def one_after_another():
    # On one processor the thread that waits for an end may run before the one that tells it goes
    # on.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    array = np.ones(1)
    with joined(members=2, min_members=2) as cluster:
        ctx = cluster.context(60)
        for _ in range(6000):
            pending = ctx.all_reduce(array, "max", async_op=True)
            pending.wait()
        say({"returned": float(array[0])})
        sys.stdin.read()


def test_memory_is_free_when_the_call_has_ended(group):
    assert group.results(group.start(one_after_another, 2)) == [1.0, 1.0]
