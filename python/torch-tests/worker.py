"""A worker of torchrun: sums with the others until all have gone on long enough.

Prints a line of JSON for each sum of a new group. A worker whose group breaks ends with an error,
and torchrun starts it again.
"""

import json
import os
import time

import torch
import torch.distributed as dist

import potluck.torch  # noqa: F401 - it registers the backend

dist.init_process_group("potluck")
rank, size = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["RANK"])
ranks = torch.tensor([rank])
dist.all_reduce(ranks)
assert ranks.item() == sum(range(size))
print(json.dumps({"rank": rank, "size": size}), flush=True)
while True:
    # All end together, when the file is there for one.
    over = torch.tensor([float(os.path.exists(os.environ["TEST_OVER"]))])
    dist.all_reduce(over)
    if over.item():
        break
    time.sleep(0.05)
dist.destroy_process_group()
print(json.dumps({"over": rank}), flush=True)
