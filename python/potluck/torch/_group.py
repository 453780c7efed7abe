"""A process group of PyTorch whose calls potluck carries out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ReduceOp

from .. import Codec, Context
from ._calls import Calls
from ._room import Room
from ._tensors import Tensor, in_bytes, in_numbers, is_same, on_host, operator, same_type

if TYPE_CHECKING:
    from ._node import Node


def seconds(timeout: timedelta, usual: timedelta) -> float | None:
    """The deadline of a call; a negative one stands for that of the group."""
    time = timeout if timeout > timedelta(0) else usual
    return time.total_seconds() if time > timedelta(0) else None


class ProcessGroup(dist.ProcessGroup):
    """The ranks of a potluck Context, in the order that PyTorch gives them."""

    def __init__(
        self,
        context: Context,
        order: Sequence[int],
        rank: int,
        name: str,
        timeout: timedelta,
        world: str,
        node: Node,
    ) -> None:
        """order: the rank in the Context of each rank of PyTorch. world: a name that this group and
        its parts have before their own, used once in a View."""
        super().__init__(rank, len(order))
        self._context = context
        self._order = list(order)
        self._own, self._name, self._timeout, self._world = rank, name, timeout, world
        self._node = node
        self._lanes: dict[int, Context] = {}
        self._lock = threading.Lock()

    def part(self, ranks: Sequence[int], opts: Any) -> ProcessGroup:
        """A group of some ranks of this one."""
        members = [self._order[rank] for rank in ranks]
        tag = self._node.names.number(f"{self._world} {opts.group_id}")
        context = self._context.group(members, tag)
        order = [sorted(members).index(member) for member in members]
        return ProcessGroup(
            context, order, opts.group_rank, opts.group_id, opts.timeout, self._world, self._node
        )

    # The methods that PyTorch asks of every group.

    def rank(self) -> int:
        return self._own

    def size(self) -> int:
        return len(self._order)

    getRank, getSize = rank, size

    def getBackendName(self) -> str:
        return "potluck"

    name = getBackendName

    @property
    def group_name(self) -> str:
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _get_backend(self, _device: torch.device) -> ProcessGroup:
        """It is its own backend, for all devices."""
        return self

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def shutdown(self) -> None:
        """The node stays: another process group begins sooner."""

    def abort(self) -> None:
        """Ends all calls under way, also those of other groups: the node leaves."""
        self._node.leave()

    # Reductions.

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        opts = opts or dist.AllreduceOptions()
        return self._reduced(tensors, opts, "all_reduce")

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        return self.allreduce(tensors, opts or dist.AllreduceCoalescedOptions())

    def reduce(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        opts = opts or dist.ReduceOptions()
        root = self._order[opts.rootRank]
        return self._reduced(tensors, opts, "reduce", root, is_written=opts.rootRank == self._own)

    def encoded_mean(self, tensor: Tensor, codec: Codec) -> dist.Work:
        """The mean of float32 tensors, which travel encoded."""
        calls, host = self._calls(None), on_host(tensor)
        calls.add("all_reduce", host, "mean", codec=codec)
        if not is_same(host, tensor):
            calls.copies(tensor, host)
        return calls.work([tensor])

    def _reduced(
        self, tensors: list[Tensor], opts: Any, method: str, *root: int, is_written: bool = True
    ) -> dist.Work:
        """Combines tensors in place. Other ranks than a root keep theirs."""
        calls = self._calls(opts)
        for tensor in tensors:
            host, op, factor = on_host(tensor), opts.reduceOp, None
            if op == ReduceOp.PREMUL_SUM:
                op, factor = ReduceOp.SUM, opts.reduceOp.factor
            if factor is not None:
                host = host * factor
            calls.add(method, in_numbers(host, op), *root, operator(op))
            if is_written and not is_same(host, tensor):
                calls.copies(tensor, host)
        return calls.work(tensors)

    def reduce_scatter_single(self, out: Tensor, tensor: Tensor, opts: Any = None) -> dist.Work:
        calls = self._calls(opts or dist.ReduceScatterOptions())
        self._scatter_sum(calls, out, self._parts(tensor), opts)
        return calls.work(out)

    def reduce_scatter_single_coalesced(
        self, outs: list[Tensor], tensors: list[Tensor], opts: Any = None
    ) -> dist.Work:
        calls = self._calls(opts or dist.ReduceScatterOptions())
        for out, tensor in zip(outs, tensors, strict=True):
            self._scatter_sum(calls, out, self._parts(tensor), opts)
        return calls.work(outs)

    def reduce_scatter(
        self, outs: list[Tensor], parts: list[list[Tensor]], opts: Any = None
    ) -> dist.Work:
        calls = self._calls(opts or dist.ReduceScatterOptions())
        for out, of_out in zip(outs, parts, strict=True):
            self._scatter_sum(calls, out, of_out, opts)
        return calls.work(outs)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _parts(self, tensor: Tensor) -> list[Tensor]:
        """The equal parts of a tensor for the ranks."""
        return list(tensor.reshape(self.size(), tensor.numel() // self.size()))

    def _scatter_sum(self, calls: Calls, out: Tensor, parts: list[Tensor], opts: Any) -> None:
        """Combines the parts of all ranks; `out` gets the own one."""
        opts = opts or dist.ReduceScatterOptions()
        same_type(out, *parts)
        op, factor = opts.reduceOp, None
        if op == ReduceOp.PREMUL_SUM:
            op, factor = ReduceOp.SUM, opts.reduceOp.factor
        # The parts in the order of the Context.
        flat = torch.cat([on_host(parts[k]).reshape(-1) for k in self._from])
        if factor is not None:
            flat = flat * factor
        if len({part.numel() for part in parts}) == 1:
            own = torch.empty(out.numel(), dtype=flat.dtype, device="cpu")
            result = in_numbers(own)
            numbers = in_numbers(flat, op)
            calls.add("reduce_scatter", numbers, operator(op), out=result.reshape(-1))
        else:
            # Parts of different lengths: everybody gets all, and takes the own one.
            calls.add("all_reduce", in_numbers(flat, op), operator(op))
            before = self._from[: self._order[self._own]]
            start = sum(parts[k].numel() for k in before)
            own = flat[start : start + out.numel()]
        calls.copies(out, own)

    # Copies.

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        opts = opts or dist.BroadcastOptions()
        calls, root = self._calls(opts), self._order[opts.rootRank]
        for tensor in tensors:
            host = on_host(tensor)
            calls.add("broadcast", in_bytes(host), root)
            if not is_same(host, tensor):
                calls.copies(tensor, host)
        return calls.work(tensors)

    def all_gather_single(self, out: Tensor, tensor: Tensor, opts: Any = None) -> dist.Work:
        calls = self._calls(opts or dist.AllgatherOptions())
        self._gather_into(calls, out, tensor)
        return calls.work(out)

    def all_gather_single_coalesced(
        self, outs: list[Tensor], tensors: list[Tensor], opts: Any = None
    ) -> dist.Work:
        calls = self._calls(opts or dist.AllgatherOptions())
        for out, tensor in zip(outs, tensors, strict=True):
            self._gather_into(calls, out, tensor)
        return calls.work(outs)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gather_into(self, calls: Calls, out: Tensor, tensor: Tensor) -> None:
        same_type(out, tensor)
        host, place = on_host(tensor), on_host(out)
        is_direct = self._is_in_order and is_same(place, out)
        whole = place if is_direct else torch.empty(out.numel(), dtype=out.dtype, device="cpu")
        calls.add("all_gather", in_bytes(host), out=in_bytes(whole))
        if not is_direct:
            rows = whole.reshape(self.size(), -1)
            calls.copies(out, rows, lambda rows: rows[self._order].reshape(out.shape))

    def allgather(
        self, outs: list[list[Tensor]], tensors: list[Tensor], opts: Any = None
    ) -> dist.Work:
        calls = self._calls(opts or dist.AllgatherOptions())
        for places, tensor in zip(outs, tensors, strict=True):
            host = on_host(tensor)
            rows = self._new_rows(host)
            calls.add("all_gather", in_bytes(host), out=in_bytes(rows))
            self._rows_to(calls, places, rows)
        return calls.work(outs)

    def allgather_coalesced(
        self, outs: list[list[Tensor]], tensors: list[Tensor], opts: Any = None
    ) -> dist.Work:
        """Several tensors of each rank: `outs` has a list of them for each rank."""
        by_tensor = [list(places) for places in zip(*outs, strict=True)]
        return self.allgather(by_tensor, tensors, opts)

    def _new_rows(self, host: Tensor) -> Tensor:
        """Memory for such a tensor of each rank."""
        return torch.empty((self.size(), host.numel()), dtype=host.dtype, device="cpu")

    def _rows_to(self, calls: Calls, places: list[Tensor], rows: Tensor) -> None:
        for place, rank in zip(places, self._order, strict=True):
            same_type(place, rows)
            calls.copies(place, rows[rank])

    def gather(
        self, outs: list[list[Tensor]], tensors: list[Tensor], opts: Any = None
    ) -> dist.Work:
        opts = opts or dist.GatherOptions()
        calls, is_root = self._calls(opts), opts.rootRank == self._own
        for number, tensor in enumerate(tensors):
            host, rows = on_host(tensor), None
            if is_root:
                rows = self._new_rows(host)
            place = None if rows is None else in_bytes(rows)
            calls.add("gather", in_bytes(host), self._order[opts.rootRank], out=place)
            if rows is not None:
                self._rows_to(calls, outs[number], rows)
        return calls.work(outs)

    def scatter(self, outs: list[Tensor], parts: list[list[Tensor]], opts: Any = None) -> dist.Work:
        opts = opts or dist.ScatterOptions()
        calls, is_root = self._calls(opts), opts.rootRank == self._own
        for number, out in enumerate(outs):
            own, given = torch.empty(out.numel(), dtype=out.dtype, device="cpu"), None
            if is_root:
                same_type(out, *parts[number])
                given = torch.cat([on_host(parts[number][k]).reshape(-1) for k in self._from])
                given = in_bytes(given)
            calls.add("scatter", in_bytes(own), given, self._order[opts.rootRank])
            calls.copies(out, own)
        return calls.work(outs)

    def all_to_all_single(
        self,
        out: Tensor,
        tensor: Tensor,
        out_splits: list[int],
        splits: list[int],
        opts: Any = None,
    ) -> dist.Work:
        calls = self._calls(opts or dist.AllToAllOptions())
        own = torch.empty(out.shape, dtype=out.dtype, device="cpu")
        self._exchange(calls, self._rows(own, out_splits), self._rows(tensor, splits))
        calls.copies(out, own)
        return calls.work(out)

    alltoall_base = all_to_all_single

    def _rows(self, tensor: Tensor, splits: list[int]) -> list[Tensor]:
        """The part for each rank; equal ones without splits."""
        if not splits and tensor.shape[0] % self.size():
            raise RuntimeError(f"{tensor.shape[0]} rows are no equal parts for {self.size()} ranks")
        return list(tensor.split(splits or [tensor.shape[0] // self.size()] * self.size()))

    def alltoall(self, outs: list[Tensor], tensors: list[Tensor], opts: Any = None) -> dist.Work:
        calls = self._calls(opts or dist.AllToAllOptions())
        self._exchange(calls, outs, tensors)
        return calls.work(outs)

    def _exchange(self, calls: Calls, outs: list[Tensor], tensors: list[Tensor]) -> None:
        """Sends a tensor to each rank, and writes the one that each rank sends to this one."""
        for out, tensor in zip(outs, tensors, strict=True):
            same_type(out, tensor)
        parts = [in_bytes(on_host(tensors[k])) for k in self._from]
        lengths = [part.numel() for part in parts]
        calls.add("all_to_all_uneven", torch.cat(parts), lengths)

        def take(values: list[Any]) -> None:
            [came] = values
            for out, rank in zip(outs, self._order, strict=True):
                # A new tensor of bytes, as the one that was sent is of bytes.
                out.detach().copy_(came[rank].view(out.dtype).reshape(out.shape))

        calls.then(take)

    # Messages.

    def send(self, tensors: list[Tensor], to: int, tag: int) -> dist.Work:
        calls = self._calls(None, self._node.rooms.sends, self._lane(tag))
        for tensor in tensors:
            calls.add("send", in_bytes(on_host(tensor)), self._order[to])
        return calls.work(tensors)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> dist.Work:
        return self._received(tensors, self._order[source], tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> dist.Work:
        return self._received(tensors, None, tag)

    def _received(self, tensors: list[Tensor], source: int | None, tag: int) -> dist.Work:
        calls = self._calls(None, self._node.rooms.receives, self._lane(tag))
        for tensor in tensors:
            host = on_host(tensor)
            calls.add("recv", in_bytes(host), source)
            if not is_same(host, tensor):
                calls.copies(tensor, host)
        return calls.work(tensors, lambda source: self._from[source])

    def barrier(self, opts: Any = None) -> dist.Work:
        calls = self._calls(opts or dist.BarrierOptions())
        calls.add("barrier")
        return calls.work(None)

    # Parts of these.

    @property
    def _from(self) -> list[int]:
        """The rank of PyTorch of each rank of the Context."""
        return [self._order.index(rank) for rank in range(self.size())]

    @property
    def _is_in_order(self) -> bool:
        return self._order == sorted(self._order)

    def _calls(self, opts: Any, room: Room | None = None, context: Context | None = None) -> Calls:
        deadline = seconds(getattr(opts, "timeout", timedelta(-1)), self._timeout)
        room = room or self._node.rooms.collectives
        return Calls(context or self._context, room, deadline)

    def _lane(self, tag: int) -> Context:
        """Messages of PyTorch choose by their tags, so each tag has a lane."""
        with self._lock:
            if tag not in self._lanes:
                name = f"{self._world} {self._name} tag {tag}"
                self._lanes[tag] = self._context.lane(self._node.names.number(name))
            return self._lanes[tag]
