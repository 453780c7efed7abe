"""Ranks that are killed, and come back."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from potluck.torch._node import Node, hand_out, settings_of_launcher
from rank import MINUTE, begin, say
from torch import nn

import potluck.torch


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def step(module, optimizer, rank, number):
    torch.manual_seed(100 * number + rank)
    loss = nn.functional.cross_entropy(module(torch.randn(16, 64)), torch.randint(10, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def weights(module):
    return [parameter.detach().clone() for parameter in module.parameters()]


def loses_one(rank, size):
    """Steps until one rank is killed; the others then go on."""
    plain = model()
    done = 0
    say({"rank": rank})
    module = nn.parallel.DistributedDataParallel(plain)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    told = None
    while done < 40:
        before = weights(plain)
        try:
            step(module, optimizer, dist.get_rank(), done)
        except RuntimeError as error:
            told = str(error)
            assert all(map(torch.equal, before, weights(plain))), "the weights were touched"
            say({"failed": told, "at": time.time()})
            potluck.torch.renew()
            state = potluck.torch.agree(done, {"model": plain.state_dict(), "done": done})
            plain.load_state_dict(state["model"])
            done = state["done"]
            module = nn.parallel.DistributedDataParallel(plain)
            optimizer = torch.optim.SGD(plain.parameters(), 0.1)
        else:
            done += 1
            if done == 5:
                say({"done": done})
                # The one to be killed waits here.
                if dist.get_rank() == 2 and dist.get_world_size() == 3:
                    sys.stdin.read()
    return [told, dist.get_world_size(), float(sum(tensor.sum() for tensor in weights(plain)))]


def test_the_death_of_a_rank_is_an_error_with_its_name_and_the_others_renew(group):
    members = group.start(loses_one, 3, members=3, min_members=2)
    ranks = {member.heard()["rank"]: member for member in members}
    for member in members:
        assert member.heard() == {"done": 5}
    killed = time.time()
    ranks[2].process.kill()
    for rank in (0, 1):
        heard = ranks[rank].heard()
        assert heard["at"] - killed < 10, heard
        assert "rank 2" in heard["failed"], heard
    (_, *first), (_, *second) = [ranks[rank].returned() for rank in (0, 1)]
    assert first == second and first[0] == 2


def sums_in_turns(rank, size):
    """A group after another in one process."""
    sums = []
    for number in range(3):
        tensor = torch.tensor([float(number)])
        dist.all_reduce(tensor)
        sums.append(tensor.item())
        dist.destroy_process_group()
        begin(size)
    return sums


def test_a_process_may_have_a_group_after_another(group):
    assert group.run(sums_in_turns, 2) == [[0, 2, 4]] * 2


def begins_under_another_default_device(rank, size):
    dist.destroy_process_group()
    with torch.device("meta"):
        begin(size)
    tensor = torch.tensor([1.0])
    dist.all_reduce(tensor)
    return tensor.item()


def test_a_group_may_begin_under_another_default_device(group):
    assert group.run(begins_under_another_default_device, 2) == [2, 2]


def renews(rank, size):
    """The timeout of a group that is made anew, and a group after an attempt that has failed."""
    dist.destroy_process_group()
    begin(size)
    potluck.torch.renew(MINUTE)
    kept = Node.current.timeout == MINUTE
    dist.destroy_process_group()
    if rank == 0:
        # It fails here alone.
        with pytest.raises(ValueError, match="there is no"):
            dist.init_process_group("potluck", init_method="potluck://?unknown=1")
    begin(size)
    rank, got = dist.get_rank(), torch.zeros(1)
    if rank == 0:
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(got, 0)
    return [kept, got.item() == rank]


def test_a_renewed_group_has_its_timeout_and_a_failed_attempt_does_no_harm(group):
    assert group.run(renews, 2) == [[True, True]] * 2


def test_each_group_of_a_store_that_lives_on_has_a_job_of_its_own():
    store = dist.PrefixStore("default_pg", dist.HashStore())
    # The request of a process that has gone.
    store.set("potluck of 1", "old")
    jobs = []
    for _ in range(3):
        with ThreadPoolExecutor(3) as threads:
            told = [threads.submit(settings_of_launcher, store, k, 3, MINUTE) for k in range(3)]
            of_group = {settings.result()["job"] for settings in told}
        assert len(of_group) == 1, of_group
        jobs += of_group
    assert len(set(jobs)) == 3, jobs
    with pytest.raises(RuntimeError, match=r"ranks \[1\] have not come"):
        hand_out("token", dist.HashStore(), 2, timedelta(seconds=0.05))
