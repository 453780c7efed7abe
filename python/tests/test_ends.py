"""Processes that end, stop, are interrupted, and fork."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import potluck
import pytest
from member import joined, joins_itself, say

SOON = 0.3


def survivor_or_victim(cluster, ctx):
    array = np.full(100_000, ctx.rank + 1.0)
    before = array.copy()
    if ctx.rank == 0:
        say({"rank": 0})
        sys.stdin.read()
    pending = ctx.all_reduce(array, async_op=True)
    say({"rank": ctx.rank})
    with pytest.raises((potluck.Aborted, potluck.ViewChanged)) as error:
        pending.wait(60)
    assert (array == before).all() and error.value.can_renew and error.value.retryable
    ctx = ctx.renewed(60)
    ctx.all_reduce(array)
    return [error.value.code, ctx.size, float(array[0])]


def test_a_member_that_is_killed_aborts_the_call_and_leaves_the_array(group):
    members = group.start(survivor_or_victim, 3, members=3, min_members=2)
    ranks = {member.heard()["rank"]: member for member in members}
    ranks[0].process.kill()
    survivors = [ranks[rank].returned() for rank in (1, 2)]
    assert survivors == [["aborted", 2, 5.0]] * 2


def tell_when_inside(function):
    """Says so when the main thread is inside of the call that the line of the function makes."""
    main = threading.main_thread().ident

    def look():
        while True:
            frame = sys._current_frames()[main]
            # Another thread runs Python: the main one waits in the library, or is about to.
            if frame.f_code.co_name == function and frame.f_locals.get("inside"):
                say({"inside": True})
                return
            time.sleep(0.01)

    threading.Thread(target=look, daemon=True).start()


@joins_itself
def interrupted_in_context():
    tell_when_inside("interrupted_in_context")
    with joined(members=2) as cluster:
        inside = True
        with pytest.raises(KeyboardInterrupt):
            cluster.context()
        interrupted = time.monotonic()
        inside = False
        assert not inside and cluster.status()["state"] != "closed"
        with pytest.raises(potluck.NotEnoughPeers, match="1 of 2 members") as error:
            cluster.context(timeout=0.2)
        assert isinstance(error.value, TimeoutError)
    return interrupted


def interrupted_in_wait(cluster, ctx):
    if ctx.rank == 1:
        say({"rank": 1})
        sys.stdin.read()
        array = np.ones(3)
        ctx.all_reduce(array)
        return array.tolist()
    say({"rank": 0})
    array = np.ones(3)
    pending = ctx.all_reduce(array, async_op=True)
    with pytest.raises(TimeoutError):
        pending.wait(timeout=0.05)
    tell_when_inside("interrupted_in_wait")
    inside = True
    with pytest.raises(KeyboardInterrupt):
        pending.wait()
    interrupted = time.monotonic()
    inside = False
    assert not inside and not pending.done() and (array == 1).all()
    say({"interrupted": interrupted})
    assert pending.wait() is array
    return array.tolist()


def interrupt(member):
    """Sends Ctrl-C when the member waits; returns when."""
    assert member.heard() == {"inside": True}
    sent = time.monotonic()
    member.process.send_signal(signal.SIGINT)
    return sent


def test_control_c_ends_the_wait_for_a_context(group):
    def once():
        [member] = group.start(interrupted_in_context)
        sent = interrupt(member)
        return member.returned() - sent

    # A busy machine may be late once, and not every time.
    assert min(once() for _ in range(3)) < SOON


def test_control_c_ends_a_wait_and_the_call_goes_on(group):
    def once():
        members = group.start(interrupted_in_wait, 2, members=2)
        ranks = {member.heard()["rank"]: member for member in members}
        sent = interrupt(ranks[0])
        took = ranks[0].heard()["interrupted"] - sent
        ranks[1].process.stdin.close()
        assert [member.returned() for member in members] == [[2.0] * 3] * 2
        return took

    # A busy machine may be late once, and not every time.
    assert min(once() for _ in range(3)) < SOON


def child(cluster, ctx, pending, step, gradients, events, results):
    codes = []
    uses = [
        cluster.status,
        cluster.context,
        cluster.events,
        cluster.leave,
        lambda: next(events),
        lambda: ctx.rank,
        lambda: ctx.all_reduce(np.ones(3)),
        lambda: ctx.lane(1),
        ctx.renewed,
        pending.wait,
        pending.done,
        lambda: pending.add_done_callback(print),
        lambda: step.all_reduce(np.ones(3)),
        gradients.step,
        lambda: joined(members=1),
    ]
    for use in uses:
        try:
            use()
            codes.append("none")
        except potluck.Error as error:
            codes.append(error.code)
    repr(cluster), repr(ctx), repr(pending)
    results.send(codes)


def forks(cluster, ctx):
    warnings.simplefilter("ignore", DeprecationWarning)  # of threads in a process that forks
    fork = multiprocessing.get_context("fork")
    array = np.ones(3)
    rank = ctx.rank
    for round in range(2):
        pending = None
        if rank == 0:
            # Under way in one process, and not begun in the other.
            pending = ctx.all_reduce(array, async_op=True)
            ours, theirs = fork.Pipe()
            step, gradients = ctx.step(), potluck.GradientSync(cluster, [3])
            handles = (cluster, ctx, pending, step, gradients, cluster.events(), theirs)
            process = fork.Process(target=child, args=handles)
            process.start()
            codes = ours.recv()
            process.join(30)
            assert process.exitcode == 0
            assert set(codes) == {"forked"}, codes
            # One that ends as the program does, with all that runs at the end.
            number = os.fork()
            if number == 0:
                del pending, ctx, cluster, step, gradients, handles
                gc.collect()
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 0
            assert not pending.done()
            ctx.send(bytes(1), 1)
            pending.wait(60)
        else:
            ctx.recv(bytearray(1), 0)
            ctx.all_reduce(array)
    return array.tolist()


def test_a_fork_has_no_node_and_its_parent_goes_on(group):
    assert group.run(forks) == [[4.0] * 3] * 2


def forgetting(keep):
    """Leaves nothing behind but what `keep` makes."""
    global kept
    cluster = joined(members=2, min_members=1)
    ctx = cluster.context(60)
    # Only what happens from now on is told, and the other rank may be gone soon.
    events = cluster.events()
    say({"rank": ctx.rank})
    if ctx.rank == 0:
        kinds = [next(events)["kind"]]
        while kinds[-1] not in ("left", "lost"):
            kinds.append(next(events)["kind"])
        return kinds[-1]
    del events
    sys.stdin.read()
    kept = keep(cluster, ctx)
    return "forgot"


@joins_itself
def forgets():
    """A Context, calls under way and functions that are told of them, and no leave()."""
    return forgetting(lambda cluster, ctx: [cluster, ctx, *under_way(cluster, ctx)])


@joins_itself
def keeps_a_lane():
    return forgetting(lambda cluster, ctx: ctx.lane(4))


@joins_itself
def keeps_gradients():
    return forgetting(lambda cluster, ctx: potluck.GradientSync(cluster, [3]))


def under_way(cluster, ctx):
    pending = ctx.all_reduce(np.ones(3), async_op=True)
    pending.add_done_callback(lambda ended: None)
    lane = ctx.lane(4)
    return [pending, lane, lane.barrier(async_op=True), cluster.events(), ctx.step()]


@pytest.mark.parametrize("function", [forgets, keeps_a_lane, keeps_gradients])
def test_a_program_that_forgets_to_leave_ends_cleanly(group, function):
    members = group.start(function, 2, members=2, min_members=1)
    ranks = {member.heard()["rank"]: member for member in members}
    began = time.monotonic()
    ranks[1].process.stdin.close()
    assert ranks[1].returned() == "forgot" and ranks[1].errors == []
    assert time.monotonic() - began < 10
    assert ranks[0].returned() == "left"


@joins_itself
def ends_at_once():
    """No `with`, no leave: only the code that runs at the end of Python."""
    global cluster
    cluster = joined(members=1)
    ctx = cluster.context()
    ctx.all_reduce(np.ones(1))
    return [ctx.rank, ctx.size, cluster.status()["job"]]


def test_a_group_of_one_calls_and_ends(group):
    [member] = group.start(ends_at_once)
    assert member.returned() == [0, 1, "member"]
    assert member.errors == []


@joins_itself
def wrong_settings():
    cases = [
        (dict(key="nonsense", open_lan=None), potluck.Config, "the cluster key cannot be used"),
        (dict(open_lan=None), potluck.NoClusterKey, "run `potluck up`"),
        (dict(open_lan="A b"), potluck.Config, "the namespace cannot be used"),
        (dict(job="A b"), potluck.Config, "the job cannot be used"),
        (dict(partition="half"), potluck.Argument, "partition cannot be used"),
        (dict(engine="mpi"), potluck.Argument, "engine is"),
        (dict(engine="gloo"), potluck.Config, "no Gloo"),
        (dict(members=99), potluck.Config, "99"),
        (dict(namespace="other"), potluck.Argument, "give it or namespace"),
    ]
    for settings, kind, why in cases:
        with pytest.raises(kind, match=why) as error:
            joined(**settings)
        assert type(error.value) is kind
    return True


def test_wrong_settings_are_errors_that_say_what_to_do(group):
    [member] = group.start(wrong_settings)
    assert member.returned() is True


def many_calls(cluster, ctx):
    page = os.sysconf("SC_PAGE_SIZE")

    def used():
        gc.collect()
        with open("/proc/self/statm") as file:
            memory = int(file.read().split()[1]) * page
        return memory, len(os.listdir("/proc/self/fd"))

    array = np.ones(256, "float32")

    def calls(count):
        for i in range(count):
            if i % 3 == 0:
                ctx.all_reduce(array, "mean")
            elif i % 3 == 1:
                pending = ctx.all_gather(array, async_op=True)
                pending.add_done_callback(lambda ended: None)
                pending.wait()
            else:
                ctx.barrier(async_op=True).wait()

    calls(1000)
    memory, files = used()
    calls(10_000)
    memory_after, files_after = used()
    assert memory_after - memory < 8 << 20, (memory, memory_after)
    # A link may be made anew meanwhile; ten thousand would be a leak.
    assert files_after <= files + 20, (files, files_after)
    return True


def test_ten_thousand_calls_leak_nothing(group):
    assert group.run(many_calls) == [True, True]
