"""Training by the classes of PyTorch, compared with its backend gloo."""

import hashlib

import potluck
import potluck.torch
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 5


def digest(tensors) -> str:
    """The bits of tensors."""
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def model(dtype):
    torch.manual_seed(1)
    layers = [nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(*layers).to(dtype)


def train(module, rank, dtype, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for step in range(STEPS):
        torch.manual_seed(100 * step + rank)
        loss = nn.functional.cross_entropy(
            module(torch.randn(16, 64, dtype=dtype)), torch.randint(10, (16,))
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()


def ddp(rank, dtype):
    # Small buckets, so that there are several.
    module = nn.parallel.DistributedDataParallel(model(dtype), bucket_cap_mb=0.02)
    train(module, rank, dtype)
    return digest(module.parameters())


def ddp_of_doubles(rank, size):
    return ddp(rank, torch.float64)


def ddp_of_floats(rank, size):
    return ddp(rank, torch.float32)


def fsdp2_of_doubles(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).double()
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    train(module, rank, torch.float64)
    return digest(parameter.full_tensor() for parameter in module.parameters())


def zero_of_doubles(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module = nn.parallel.DistributedDataParallel(model(torch.float64))
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, lr=0.1)
    train(module, rank, torch.float64, optimizer)
    return digest(module.parameters())


@pytest.mark.parametrize("function", [ddp_of_doubles, fsdp2_of_doubles, zero_of_doubles])
def test_two_processes_get_the_bits_of_gloo(group, function):
    # A sum of two is the same in each order, so the bits are, too.
    ours = group.run(function, 2)
    theirs = group.run(function, 2, backend="gloo")
    assert len(set(ours + theirs)) == 1


def test_all_ranks_hold_the_same_bits(group):
    assert len(set(group.run(ddp_of_floats, 3))) == 1


def ddp_with_a_codec(rank, size):
    """The bits of the weights, and the largest difference to those of a run without codec."""
    exact = nn.parallel.DistributedDataParallel(model(torch.float32), bucket_cap_mb=0.02)
    train(exact, rank, torch.float32)
    coded = nn.parallel.DistributedDataParallel(model(torch.float32), bucket_cap_mb=0.02)
    codec = potluck.torch.compressed(lambda: potluck.Codec.int8().with_feedback())
    coded.register_comm_hook(None, codec)
    train(coded, rank, torch.float32)
    pairs = zip(exact.parameters(), coded.parameters(), strict=True)
    away = max((one - other).abs().max().item() for one, other in pairs)
    return [digest(coded.parameters()), away]


def test_gradients_may_travel_encoded(group):
    told = group.run(ddp_with_a_codec, 3)
    assert len({bits for bits, _ in told}) == 1
    assert all(0 < away < 0.02 for _, away in told), told


def with_workers(rank, size):
    """Batches from processes that are forks of a rank."""
    data = TensorDataset(torch.arange(32.0).reshape(32, 1))
    loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
    total = torch.zeros(1)
    for (batch,) in loader:
        total += batch.sum()
        dist.all_reduce(batch)
    dist.all_reduce(total)
    return total.item()


def test_a_rank_may_have_forked_data_workers(group):
    assert group.run(with_workers, 2) == [2 * sum(range(32))] * 2
