"""PyTorch's DistributedDataParallel over gloo, or over potluck where torchrun's agents have met by
it. With the name of a file it goes on until there is such a file on one of the machines."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

backend = "gloo"
if "POTLUCK_TORCH_URL" in os.environ:
    import potluck.torch  # noqa: F401 - it registers the backend

    backend = "potluck"
dist.init_process_group(backend)
rank, world = dist.get_rank(), dist.get_world_size()


def examples(step, rank):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + rank))


def trained(model, batches):
    """The weights after a step with each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True)).backward()
        optimizer.step()
    return torch.cat([part.detach().flatten() for part in model.parameters()])


torch.manual_seed(rank)  # every rank begins with weights of its own, and gets those of rank 0
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
weights = trained(model, [examples(step, rank) for step in range(5)])
everyone = [torch.empty_like(weights) for _ in range(world)]
dist.all_gather(everyone, weights)
assert all(torch.equal(weights, other) for other in everyone), everyone

# One process with the examples of all.
torch.manual_seed(0)
batches = [torch.cat([examples(step, rank) for rank in range(world)]) for step in range(5)]
alone = trained(nn.Linear(8, 1), batches)
assert torch.allclose(weights, alone, atol=1e-5), (weights, alone)

print(f"rank {rank} of {world}: runs", flush=True)
while len(sys.argv) > 1:
    found = torch.tensor([float(os.path.exists(sys.argv[1]))])
    dist.all_reduce(found)
    if found.item():
        break
    time.sleep(0.05)
dist.destroy_process_group()
print(f"rank {rank} of {world}: right", flush=True)
