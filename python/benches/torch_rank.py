"""A rank of PyTorch that times the same calls over potluck and over gloo, by turns.

Rank 0 prints a line of JSON: the medians in seconds, by what was timed and by backend.
"""

import json
import statistics
import sys
import time

import potluck.torch  # noqa: F401 - it registers the backend
import torch
import torch.distributed as dist
from torch import nn

MIB = 1 << 18  # elements
SIZES = {"all_reduce, 1 MiB": (MIB, 9), "8 MiB": (8 * MIB, 7), "32 MiB": (32 * MIB, 5)}
STEPS = 7
WARM = 15.0


def warm(group):
    """Calls for some seconds, so that links are measured and buffers there."""
    tensor, began = torch.ones(MIB), time.monotonic()
    late = torch.zeros(1)
    while not late.item():
        dist.all_reduce(tensor.fill_(1.0), group=group)
        assert tensor[-1].item() == dist.get_world_size()
        late.fill_(float(time.monotonic() - began > WARM))
        dist.all_reduce(late, dist.ReduceOp.MAX, group=group)


def model():
    torch.manual_seed(1)
    layers = [nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def steps_of(group):
    """What makes a step of training, with 1.3 million parameters."""
    module = nn.parallel.DistributedDataParallel(model(), process_group=group)
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    inputs, labels = torch.randn(32, 256), torch.randint(10, (32,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()

    return step


def timed(calls, rounds, meet):
    """The medians of calls by turns. A call takes as long as on the slowest rank."""
    times = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            dist.barrier(meet)
            began = time.monotonic()
            call()
            took = torch.tensor([time.monotonic() - began], dtype=torch.float64)
            dist.all_reduce(took, dist.ReduceOp.MAX, group=meet)
            times[name].append(took.item())
    # The first one of each is for getting ready.
    return {name: statistics.median(of[1:]) for name, of in times.items()}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("potluck")
    gloo = dist.new_group(backend="gloo")
    groups = {"potluck": dist.group.WORLD, "gloo": gloo}
    for group in groups.values():
        warm(group)
    found = {}
    for name, (length, rounds) in SIZES.items():
        tensor = torch.zeros(length)
        calls = {
            of: lambda group=group: dist.all_reduce(tensor, group=group)
            for of, group in groups.items()
        }
        found[name] = timed(calls, rounds, gloo)
    found["a step of DDP"] = timed(
        {of: steps_of(group) for of, group in groups.items()}, STEPS, gloo
    )
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier(gloo)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
