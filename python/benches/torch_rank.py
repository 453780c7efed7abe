"""A rank of PyTorch that times calls over one backend: `torch_rank.py potluck`, or gloo.

Rank 0 prints a line of JSON: the medians in seconds, by call. The backends do not share a process:
potluck would measure links that the other one is using.
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

MIB = 1 << 18  # elements
SIZES = {"all_reduce, 1 MiB": (MIB, 31), "8 MiB": (8 * MIB, 9), "32 MiB": (32 * MIB, 5)}
STEPS = 7
WARM = 15.0


def warm():
    """Calls for some seconds with pauses, in which a program computes, so that links are measured
    and buffers there."""
    tensor, began = torch.ones(MIB), time.monotonic()
    late = torch.zeros(1)
    while not late.item():
        dist.all_reduce(tensor.fill_(1.0))
        assert tensor[-1].item() == dist.get_world_size()
        late.fill_(float(time.monotonic() - began > WARM))
        dist.all_reduce(late, dist.ReduceOp.MAX)
        time.sleep(0.05)


def model():
    torch.manual_seed(1)
    layers = [nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def step_of_training():
    """A function that makes a step of training, with 1.3 million parameters."""
    module = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    inputs, labels = torch.randn(32, 256), torch.randint(10, (32,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()

    return step


def timed(call, rounds):
    """The median of a call, which takes as long as on the slowest rank."""
    times = []
    for _ in range(rounds + 1):
        dist.barrier()
        began = time.monotonic()
        call()
        took = torch.tensor([time.monotonic() - began], dtype=torch.float64)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        times.append(took.item())
    # The first one is for getting ready.
    return statistics.median(times[1:])


def main():
    [backend] = sys.argv[1:]
    torch.set_num_threads(1)
    if backend == "potluck":
        import potluck.torch  # noqa: F401 - it registers the backend
    dist.init_process_group(backend)
    warm()
    found = {}
    for name, (length, rounds) in SIZES.items():
        tensor = torch.zeros(length)
        found[name] = timed(lambda tensor=tensor: dist.all_reduce(tensor), rounds)
    found["a step of DDP"] = timed(step_of_training(), STEPS)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
