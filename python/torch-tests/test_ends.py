"""Ranks that are killed, and come back."""

import sys
import time

import torch
import torch.distributed as dist
from rank import begin, say
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
        assert heard["at"] - killed < 2, heard
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
