"""The results of every call of a process group, each checked against the inputs of the ranks."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

CHECKS: dict[str, Callable[[int, int], None]] = {}

TYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
]


def check(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    CHECKS[function.__name__] = function
    return function


def every_check(rank: int, size: int) -> dict[str, str | None]:
    """The traceback of each check that failed."""
    told: dict[str, str | None] = {}
    for name, function in CHECKS.items():
        try:
            function(rank, size)
            told[name] = None
        except Exception:
            told[name] = traceback.format_exc()
        # A rank that failed early must not disturb the next check.
        dist.barrier()
    return told


def of_ranks(
    size: int, fold: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> torch.Tensor:
    """The fold of `mine` of all ranks."""
    result = mine(0, dtype)
    for rank in range(1, size):
        result = fold(result, mine(rank, dtype))
    return result


def mine(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small numbers, exact in every type."""
    return (torch.arange(12).reshape(3, 4) % 5 + rank + 1).to(dtype)


@check
def all_reduce(rank: int, size: int) -> None:
    folds = {
        dist.ReduceOp.SUM: torch.add,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.PRODUCT: torch.mul,
    }
    for dtype in TYPES:
        for op, fold in folds.items():
            if op == dist.ReduceOp.PRODUCT and not dtype.is_floating_point:
                continue
            tensor = mine(rank, dtype)
            dist.all_reduce(tensor, op)
            assert torch.equal(tensor, of_ranks(size, fold, dtype)), (dtype, op, tensor)


@check
def mean_and_bits(rank: int, size: int) -> None:
    tensor = mine(rank, torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert torch.allclose(tensor, of_ranks(size, torch.add, torch.float64) / size)
    for op, fold in (
        (dist.ReduceOp.BAND, torch.bitwise_and),
        (dist.ReduceOp.BOR, torch.bitwise_or),
        (dist.ReduceOp.BXOR, torch.bitwise_xor),
    ):
        bits = mine(rank, torch.int32)
        dist.all_reduce(bits, op)
        assert torch.equal(bits, of_ranks(size, fold, torch.int32)), op
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.tolist() == [True, True, False]


@check
def complex_numbers(rank: int, size: int) -> None:
    tensor = torch.tensor([1 + 1j * rank, 2.0])
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size + 1j * sum(range(size)), 2 * size]


@check
def strided_memory(rank: int, size: int) -> None:
    whole = torch.zeros(4, 6)
    part = whole[:, ::2]
    part.fill_(rank + 1)
    dist.all_reduce(part)
    total = sum(range(1, size + 1))
    assert part.eq(total).all() and whole[:, 1::2].eq(0).all()
    turned = mine(rank).t()
    dist.broadcast(turned, 1)
    assert torch.equal(turned, mine(1).t())


@check
def empty_tensors(rank: int, size: int) -> None:
    empty = torch.empty(0)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    places = [torch.empty(0) for _ in range(size)]
    dist.all_gather(places, empty)


@check
def scaled_sums(rank: int, size: int) -> None:
    tensor = mine(rank)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert torch.equal(tensor, of_ranks(size, torch.add, torch.float32) * 0.5)


@check
def reduce(rank: int, size: int) -> None:
    for root in range(size):
        tensor = mine(rank)
        dist.reduce(tensor, root, dist.ReduceOp.MAX)
        expected = mine(size - 1) if rank == root else mine(rank)
        assert torch.equal(tensor, expected), root


@check
def broadcast(rank: int, size: int) -> None:
    for dtype in [*TYPES, torch.bool, torch.complex64]:
        tensor = mine(rank, dtype)
        dist.broadcast(tensor, size - 1)
        assert torch.equal(tensor, mine(size - 1, dtype)), dtype


@check
def all_gather(rank: int, size: int) -> None:
    places = [torch.empty(3, 4) for _ in range(size)]
    dist.all_gather(places, mine(rank))
    assert all(torch.equal(place, mine(k)) for k, place in enumerate(places))
    whole = torch.empty(3 * size, 4)
    dist.all_gather_into_tensor(whole, mine(rank))
    assert torch.equal(whole, torch.cat([mine(k) for k in range(size)]))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": k, "text": "x" * k} for k in range(size)]


@check
def gather_and_scatter(rank: int, size: int) -> None:
    for root in range(size):
        places = [torch.empty(3, 4) for _ in range(size)] if rank == root else None
        dist.gather(mine(rank), places, root)
        if places is not None:
            assert all(torch.equal(place, mine(k)) for k, place in enumerate(places))
        part = torch.empty(3, 4)
        dist.scatter(part, [mine(k) for k in range(size)] if rank == root else None, root)
        assert torch.equal(part, mine(rank))


@check
def reduce_scatter(rank: int, size: int) -> None:
    whole = torch.arange(2.0 * size) + rank
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, whole)
    expected = size * torch.arange(2.0 * size) + sum(range(size))
    assert torch.equal(part, expected[2 * rank : 2 * rank + 2])
    mean = torch.empty(2)
    dist.reduce_scatter_tensor(mean, whole, dist.ReduceOp.AVG)
    assert torch.allclose(mean, part / size)
    # Parts of different lengths.
    part = torch.empty(1 + rank)
    dist.reduce_scatter(part, [torch.full((1 + k,), float(k)) for k in range(size)])
    assert torch.equal(part, torch.full((1 + rank,), float(size * rank)))


@check
def all_to_all(rank: int, size: int) -> None:
    places = [torch.empty(k + 1) for k in range(size)]
    dist.all_to_all(places, [torch.full((rank + 1,), 10.0 * rank + k) for k in range(size)])
    for k, place in enumerate(places):
        assert torch.equal(place, torch.full((k + 1,), 10.0 * k + rank))
    out = torch.empty(size, 2)
    dist.all_to_all_single(out, torch.full((size, 2), float(rank)))
    assert torch.equal(out, torch.arange(float(size)).reshape(size, 1).expand(size, 2))
    # Uneven splits: `k` rows to rank `k`.
    rows = sum(range(size))
    out = torch.empty(rank * size)
    dist.all_to_all_single(out, torch.full((rows,), float(rank)), [rank] * size, list(range(size)))
    assert torch.equal(out, torch.arange(float(size)).repeat_interleave(rank))


@check
def messages(rank: int, size: int) -> None:
    there, back = (rank + 1) % size, (rank - 1) % size
    if rank == 0:
        dist.send(mine(rank), there)
    got = torch.empty(3, 4)
    # From any rank.
    assert dist.recv(got) == back
    assert torch.equal(got, mine(back))
    if rank != 0:
        dist.send(mine(rank), there)


@check
def messages_both_ways_by_tags(rank: int, size: int) -> None:
    there, back = (rank + 1) % size, (rank - 1) % size
    first, second = torch.empty(2), torch.empty(3)
    ops = [
        dist.P2POp(dist.irecv, second, back, tag=2),
        dist.P2POp(dist.irecv, first, back, tag=1),
        dist.P2POp(dist.isend, torch.full((2,), float(rank)), there, tag=1),
        dist.P2POp(dist.isend, torch.full((3,), 10.0 + rank), there, tag=2),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert first.tolist() == [back] * 2 and second.tolist() == [10.0 + back] * 3


@check
def more_at_once_than_potluck_takes(rank: int, size: int) -> None:
    there, back = (rank + 1) % size, (rank - 1) % size
    got = [torch.empty(1) for _ in range(100)]
    works = [dist.irecv(tensor, back) for tensor in got]
    works += [dist.isend(torch.tensor([float(number)]), there) for number in range(100)]
    sums = [torch.tensor([float(rank)]) for _ in range(200)]
    works += [dist.all_reduce(tensor, async_op=True) for tensor in sums]
    for work in works:
        work.wait()
    assert [tensor.item() for tensor in got] == list(range(100))
    assert all(tensor.item() == sum(range(size)) for tensor in sums)


@check
def many_tensors_as_one(rank: int, size: int) -> None:
    tensors = [mine(rank, dtype) for dtype in (torch.float32, torch.int64)] * 50
    tensors = [tensor.clone() for tensor in tensors]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        assert torch.equal(tensor, of_ranks(size, torch.add, tensor.dtype))
    places = [torch.empty(3 * size, 4) for _ in range(2)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for place in places:
            dist.all_gather_into_tensor(place, mine(rank))
    manager.wait()
    assert all(torch.equal(place, torch.cat([mine(k) for k in range(size)])) for place in places)
    parts = [torch.empty(2) for _ in range(2)]
    with dist._coalescing_manager():
        for part in parts:
            dist.reduce_scatter_tensor(part, torch.arange(2.0 * size))
    expected = size * torch.arange(2.0 * size)[2 * rank : 2 * rank + 2]
    assert all(torch.equal(part, expected) for part in parts)


@check
def futures(rank: int, size: int) -> None:
    tensor = mine(rank)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    assert torch.equal(doubled.wait(), 2 * of_ranks(size, torch.add, torch.float32))
    assert work.is_completed() and work.wait()


@check
def functional_collectives(rank: int, size: int) -> None:
    world = dist.group.WORLD
    assert torch.equal(
        functional.all_reduce(mine(rank), "sum", world), of_ranks(size, torch.add, torch.float32)
    )
    gathered = functional.all_gather_tensor(mine(rank), 0, world)
    assert torch.equal(gathered, torch.cat([mine(k) for k in range(size)]))
    part = functional.reduce_scatter_tensor(torch.ones(size, 2) * (rank + 1), "avg", 0, world)
    assert torch.allclose(part, torch.full((1, 2), (size + 1) / 2))
    moved = functional.all_to_all_single(torch.full((size,), float(rank)), None, None, world)
    assert moved.tolist() == list(range(size))
    both = functional.all_reduce_coalesced([mine(rank), mine(rank)], "max", world)
    assert all(torch.equal(tensor, mine(size - 1)) for tensor in both)


@check
def groups_of_some(rank: int, size: int) -> None:
    ends = dist.new_group([0, size - 1])
    alone = dist.new_group([1])
    # In an order of its own.
    turned = dist.new_group(list(reversed(range(size))), sort_ranks=False)
    if rank in (0, size - 1):
        tensor = mine(rank)
        dist.all_reduce(tensor, group=ends)
        assert torch.equal(tensor, mine(0) + mine(size - 1))
        dist.broadcast(tensor, size - 1, group=ends)
    if rank == 1:
        tensor = mine(rank)
        dist.all_reduce(tensor, group=alone)
        assert torch.equal(tensor, mine(1))
    whole = torch.empty(3 * size, 4)
    dist.all_gather_into_tensor(whole, mine(rank), group=turned)
    assert torch.equal(whole, torch.cat([mine(k) for k in reversed(range(size))]))
    part = torch.empty(1)
    dist.reduce_scatter_tensor(part, torch.arange(float(size)), group=turned)
    assert part.item() == size * (size - 1 - rank)


@check
def meshes(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("outer", "inner"))
    for name, expected in (
        ("outer", mine(rank)),
        ("inner", of_ranks(size, torch.add, torch.float32)),
    ):
        tensor = mine(rank)
        dist.all_reduce(tensor, group=mesh.get_group(name))
        assert torch.equal(tensor, expected), name


@check
def what_it_cannot_do_is_said(rank: int, size: int) -> None:
    for tensor, word in (
        (torch.ones(2, 2).to_sparse(), "dense"),
        (torch.ones(2, dtype=torch.uint16), "uint16"),
    ):
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{tensor} was summed")


@check
def different_calls_are_an_error_for_all(rank: int, size: int) -> None:
    tensor = torch.full((3 + rank % 2,), 7.0)
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        assert "mismatch" in str(error) and "rank 1" in str(error), error
    else:
        raise AssertionError("tensors of different lengths were summed")
    assert tensor.eq(7).all()


@check
def a_callback_may_wait_for_another_call(rank: int, size: int) -> None:
    def more(_: torch.futures.Future) -> float:
        other = torch.tensor([float(rank)])
        dist.all_reduce(other, async_op=True).get_future().wait()
        return other.item()

    if rank == 0:
        # Part of the load: the others have added their callbacks before the call is over.
        time.sleep(0.2)
    called = dist.all_reduce(torch.ones(1 << 16), async_op=True)
    assert called.get_future().then(more).wait() == sum(range(size))


def refused(call: Callable[[], object]) -> str:
    """The words of the error with which a call is refused before it begins."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it was not refused")


@check
def complex_numbers_are_added_and_nothing_else(rank: int, size: int) -> None:
    mine = torch.full((size,), complex(rank, 1))
    dist.reduce(mine, 0)
    if rank == 0:
        assert mine.tolist() == [complex(sum(range(size)), size)] * size
    product = dist.ReduceOp.PRODUCT
    assert "complex" in refused(lambda: dist.reduce(mine, 0, op=product))
    assert "complex" in refused(
        lambda: dist.reduce_scatter_tensor(torch.empty(1, dtype=mine.dtype), mine, op=product)
    )


@check
def parts_are_equal_or_refused(_rank: int, size: int) -> None:
    rows = torch.ones(size + 1)
    assert "equal parts" in refused(lambda: dist.all_to_all_single(torch.empty(size + 1), rows))
    nothing = torch.empty(0)
    dist.all_to_all_single(nothing, nothing)
    dist.reduce_scatter_tensor(nothing, nothing)


@check
def an_output_of_another_type_is_refused(rank: int, size: int) -> None:
    doubles = torch.empty(size, dtype=torch.float64)
    own, whole = torch.ones(1), torch.ones(size)
    # PyTorch itself compares the types of the other calls.
    for call in (
        lambda: dist.all_gather_into_tensor(doubles, own),
        lambda: dist.reduce_scatter_tensor(doubles[:1], whole),
    ):
        assert "the output has torch.float64" in refused(call)


@check
def inference_mode_ends_before_the_call(rank: int, size: int) -> None:
    with torch.inference_mode():
        own = torch.full((size,), float(rank))
        places = [torch.empty(size) for _ in range(size)]
        out = torch.empty(size)
        gathered = dist.all_gather(places, own, async_op=True)
        exchanged = dist.all_to_all_single(out, own, async_op=True)
    assert gathered is not None and exchanged is not None
    gathered.wait()
    exchanged.wait()
    assert out.tolist() == list(range(size))
    assert [place[0].item() for place in places] == list(range(size))


@check
def leaves_that_want_gradients_are_written(rank: int, size: int) -> None:
    outs = [torch.zeros(1, requires_grad=True) for _ in range(size)]
    dist.all_to_all(outs, [torch.tensor([float(rank)]) for _ in range(size)])
    assert [out.item() for out in outs] == list(range(size))
    # A change of a tensor that autograd has saved is still noticed.
    saved = torch.ones(size, 1, requires_grad=True)
    whole = saved * 1
    loss = (whole * whole).sum()
    dist.all_to_all_single(whole, torch.ones(size, 1))
    assert "modified by an inplace operation" in refused(loss.backward)


@check
def another_default_device(rank: int, size: int) -> None:
    own, part, out = torch.full((size,), float(rank)), torch.empty(1), torch.empty(size)
    places = [torch.empty(size) for _ in range(size)]
    parts = [torch.full((1,), float(k)) for k in range(size)]
    with torch.device("meta"):
        dist.all_gather(places, own)
        dist.all_to_all_single(out, own)
        dist.scatter(part, parts if rank == 0 else None, 0)
        assert part.item() == rank
        dist.reduce_scatter_tensor(part, own)
    assert [place[0].item() for place in places] == list(range(size))
    assert out.tolist() == list(range(size)) and part.item() == sum(range(size))
