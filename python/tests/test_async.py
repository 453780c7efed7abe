"""Calls that are awaited, and functions that are told of an end."""

import asyncio
import gc
import sys
import threading
import weakref

import numpy as np
import potluck
import pytest
from member import joined, joins_itself, say


def awaits(cluster, ctx):
    async def program():
        arrays = [np.full(10, ctx.rank + i) for i in range(5)]
        pending = [ctx.all_reduce(array, async_op=True) for array in arrays]
        results = await asyncio.gather(*pending)
        assert all(result is array for result, array in zip(results, arrays))
        assert [int(array[0]) for array in arrays] == [1, 3, 5, 7, 9]
        assert await pending[0] is arrays[0]
        length = 3 + ctx.rank
        with pytest.raises(potluck.Mismatch):
            await ctx.all_reduce(np.ones(length), async_op=True)
        lane = ctx.lane(2)
        if ctx.rank == 0:
            with pytest.raises(TimeoutError):
                # The task is cancelled, and with it the call, although `kept` holds it.
                kept = lane.barrier(async_op=True)
                async with asyncio.timeout(0.2):
                    await kept
            assert kept.done()
            await ctx.barrier(async_op=True)
        else:
            await ctx.barrier(async_op=True)
            with pytest.raises(potluck.Aborted):
                await lane.barrier(async_op=True)
        return True

    return asyncio.run(program())


def test_calls_are_awaited(group):
    assert group.run(awaits) == [True, True]


def told(cluster, ctx):
    array = np.ones(3)
    if ctx.rank == 1:
        say({"rank": 1})
        sys.stdin.read()
        ctx.all_reduce(array)
        ctx.barrier()
        return True
    done, seen = threading.Event(), []

    def note(pending):
        seen.append(pending.done())
        seen.append(threading.current_thread() is threading.main_thread())
        with pytest.raises(potluck.InCallback):
            ctx.lane(9).barrier(async_op=True).wait()
        done.set()

    pending = ctx.all_reduce(array, async_op=True)
    pending.add_done_callback(note)
    # It has a callback, so it is not given up.
    del pending
    say({"rank": 0})
    assert done.wait(60)
    assert seen == [True, False] and array.tolist() == [2.0] * 3
    again = ctx.lane(1).barrier(async_op=True)
    assert str(again) == "<potluck.Pending: under way>"
    ended = ctx.group([0]).barrier(async_op=True)
    ended.wait()
    here = []
    ended.add_done_callback(here.append)
    assert here == [ended] and str(ended) == "<potluck.Pending: done>"
    ctx.barrier()
    return True


def test_functions_are_told_of_the_end(group):
    members = group.start(told, 2, members=2)
    ranks = {member.heard()["rank"]: member for member in members}
    ranks[1].process.stdin.close()
    assert [member.returned() for member in members] == [True, True]


def raising(cluster, ctx):
    caught = []
    sys.unraisablehook = lambda raised: caught.append(type(raised.exc_value).__name__)
    pending = ctx.barrier(async_op=True)
    pending.wait()
    pending.add_done_callback(lambda ended: 1 / 0)
    ctx.barrier()
    return caught


def test_what_a_function_raises_harms_no_call(group):
    assert group.run(raising) == [["ZeroDivisionError"]] * 2


def dropped(cluster, ctx):
    array = np.ones(3)
    if ctx.rank == 0:
        pending = ctx.all_reduce(array, async_op=True)
        gone = weakref.ref(pending)
        say({"rank": 0})
        del pending
        gc.collect()
        assert gone() is None
        array += 1  # nobody uses it any more
        say({"dropped": True})
        ctx.barrier()
    else:
        say({"rank": 1})
        sys.stdin.read()
        with pytest.raises(potluck.Aborted, match="dropped its call"):
            ctx.all_reduce(array)
        ctx.barrier()
    return array.tolist()


def test_a_call_that_is_dropped_is_given_up(group):
    members = group.start(dropped, 2, members=2)
    ranks = {member.heard()["rank"]: member for member in members}
    assert ranks[0].heard() == {"dropped": True}
    ranks[1].process.stdin.close()
    assert ranks[0].returned() == [2.0] * 3
    assert ranks[1].returned() == [1.0] * 3


@joins_itself
def watches():
    with joined(members=1) as cluster:
        events = cluster.events()
        status = cluster.status()
        ctx = cluster.context()
        assert ctx.members[0].name and len(ctx.members[0].node) == 64
        say({"group": status["namespace"]})
        for event in events:
            if event["kind"] == "joined":
                break
        assert event["node"]["node"] != ctx.members[0].node and event["text"]
        ctx = ctx.renewed(60)
        ctx.barrier()
        return [status["ok"], status["running"], sorted(ctx.members)[1].rank]


@joins_itself
def comes():
    with joined(members=1) as cluster:
        ctx = cluster.context()
        while ctx.size < 2:
            try:
                ctx.barrier()
            except potluck.Error as error:
                assert error.can_renew
                ctx = ctx.renewed(60)
        while True:
            try:
                ctx.barrier()
                return True
            except potluck.ViewChanged:
                ctx = ctx.renewed(60)


def test_events_and_the_status_tell_of_the_group(group):
    [first] = group.start(watches)
    assert first.heard()["group"].startswith("py-")
    [second] = group.start(comes)
    assert first.returned() == [True, True, 1]
    second.returned()
