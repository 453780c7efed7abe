"""The node of this process, and the process groups that are made of its View."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch
import torch.distributed as dist

import potluck

from ._calls import failed
from ._group import ProcessGroup, seconds
from ._names import Names
from ._room import Room

FLAGS = {"loopback", "open"}
NUMBERS = {"n", "min"}
URL = "POTLUCK_TORCH_URL"
"""The variable with namespace and settings for processes that a launcher has started."""

TEXTS = {"job", "key", "peers", "interfaces", "name", "home"}


class Rooms:
    """How many calls of the process groups of a node are under way at once."""

    def __init__(self) -> None:
        self.collectives, self.sends, self.receives = Room(16), Room(8), Room(8)


class Node:
    """This process in its cluster, and the View that `torch.distributed` runs on."""

    current: Node | None = None

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.rooms, self.names = settings, Rooms(), Names()
        self._inits: Counter[str] = Counter()
        self.patience: timedelta | None = None
        """How long a process group waits for the others to make it; `None`: its own timeout."""
        self.timeout: timedelta | None = None
        """That of the newest process group of all members."""
        try:
            self.cluster = potluck.join(stateless=True, **settings)
        except potluck.Error as error:
            raise failed(error) from None
        self.context: potluck.Context

    @staticmethod
    def joined(timeout: timedelta | None, **settings: Any) -> Node:
        """The node of this process, with a Context: that of the former process group, if it has the
        same settings."""
        node = Node.current
        if node is not None and node.settings != settings:
            node.leave()
            node = None
        Node.current = node = node or Node(settings)
        try:
            bound = None if timeout is None else timeout.total_seconds()
            node.context = node.cluster.context(bound)
        except potluck.Error as error:
            raise failed(error) from None
        return node

    def leave(self) -> None:
        """The others go on at once. Calls under way end."""
        if Node.current is self:
            Node.current = None
        self.cluster.leave()

    def world(self, rank: int, size: int, name: str, timeout: timedelta) -> ProcessGroup:
        """A process group of all members of the View, in which this process is `rank`."""
        self.timeout = timeout
        bound = seconds(timeout, timeout)
        if self.patience is not None:
            # Also if none is left: no bound would be a wait without end.
            bound = max(self.patience.total_seconds(), 0.001)
        view = self.context.view
        self._inits[view] += 1
        # The same on all ranks, and used once.
        world = f"{view} {self._inits[view]}"
        order = self._order(rank, size, bound)
        everybody = self.context.group(list(range(size)), self.names.number(world))
        return ProcessGroup(everybody, order, rank, name, timeout, world, self)

    def _order(self, rank: int, size: int, bound: float | None) -> list[int]:
        """The rank in the Context of each rank of PyTorch, if all tell theirs in this time."""
        if self.context.size != size:
            raise RuntimeError(
                f"potluck: the world has {size} ranks, and the group {self.context.size} members"
            )
        own = torch.tensor([rank], device="cpu")
        told = torch.zeros((size, 1), dtype=torch.int64, device="cpu")
        try:
            lane = self.context.lane(self.names.number("ranks of torch"))
            lane.all_gather(own, out=told, deadline=bound)
        except potluck.Error as error:
            raise failed(error) from None
        ranks = told.reshape(-1).tolist()
        if sorted(ranks) != list(range(size)):
            raise RuntimeError(f"potluck: the processes call themselves ranks {ranks}")
        return [ranks.index(torch_rank) for torch_rank in range(size)]


def count_anew() -> None:
    """PyTorch names groups by their number, and counts a world also if it cannot be made. Lanes
    have these names, and the other members may have made fewer attempts."""
    dist.distributed_c10d._world.group_count = 0


@contextmanager
def making_a_world() -> Iterator[None]:
    """If the world cannot be made, the next attempt has the same number."""
    try:
        yield
    except BaseException:
        if not dist.is_initialized():
            count_anew()
        raise


def rendezvous(url: str, timeout: timedelta | None = None, **_: Any) -> Iterator[Any]:
    """Ranks and the size of the world from the View, for `potluck://NAMESPACE?n=4`."""
    with making_a_world():
        settings = settings_of(url)
        settings.setdefault("job", os.environ.get("POTLUCK_JOB", "torch"))
        context = Node.joined(timeout, **settings).context
        rank, size = context.rank, context.size
    yield dist.HashStore(), rank, size


def settings_of(url: str) -> dict[str, Any]:
    """The arguments of `potluck.join` that a URL names."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    said = {key: values[-1] for key, values in query.items()}
    unknown = set(said) - FLAGS - NUMBERS - TEXTS
    if unknown:
        known = ", ".join(sorted(FLAGS | NUMBERS | TEXTS))
        raise ValueError(f"{url}: there is no {', '.join(sorted(unknown))}, but {known}")
    settings: dict[str, Any] = {key: said[key] for key in TEXTS & set(said)}
    if "peers" in settings:
        settings["peers"] = settings["peers"].split(",")
    members = int(said.get("n", "2"))
    settings |= sizes(members, int(said.get("min", members)))
    flags = {flag for flag in FLAGS & set(said) if said[flag] not in ("0", "false")}
    if "loopback" in flags:
        settings["loopback"] = True
    if "open" in flags:
        settings["open_lan"] = parts.netloc or "default"
    elif parts.netloc:
        settings["namespace"] = parts.netloc
    return settings


def sizes(members: int, least: int) -> dict[str, int]:
    """A world that begins with so many ranks, has no more, and may go on with at least so many."""
    return {"members": members, "min_members": least, "max_members": members}


def create(opts: Any, _options: Any) -> ProcessGroup:
    """A process group of the potluck backend, for `torch.distributed`."""
    if ranks := list(opts.global_ranks_in_group):
        world = dist.distributed_c10d._get_default_group()
        if not isinstance(world, ProcessGroup):
            raise RuntimeError("potluck: its groups are parts of a world that is a potluck group")
        return world.part(ranks, opts)
    size, rank = opts.group_size, opts.group_rank
    with making_a_world():
        node = Node.current
        if node is None or not is_of_potluck(opts.store) or node.context.size != size:
            settings = settings_of_launcher(opts.store, rank, size, opts.timeout)
            node = Node.joined(opts.timeout, **settings)
        return node.world(rank, size, opts.group_id, opts.timeout)


def is_of_potluck(store: Any) -> bool:
    """Whether rank and size come from a View."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return isinstance(store, dist.HashStore)


def settings_of_launcher(store: Any, rank: int, size: int, timeout: timedelta) -> dict[str, Any]:
    """The settings of processes whose ranks and store a launcher has given."""
    # Each group of processes is a job of its own: those of a former one may still be ending.
    if rank == 0:
        token = secrets.token_hex(8)
        hand_out(token, store, size, timeout)
    else:
        token = asked_for(store, rank)
    url = os.environ.get(URL, "potluck://")
    return settings_of(url) | sizes(size, size) | {"job": f"run-{token}"}


def hand_out(token: str, store: Any, size: int, timeout: timedelta) -> None:
    """Gives it to each other rank that asks for it, until all have it. RuntimeError if one has not
    asked in this time.

    The store may have the requests and the answers of former groups. So each request has a name of
    its own. One of a former group is answered, too, but no rank waits for that.
    """
    end = time.monotonic() + timeout.total_seconds() if timeout > timedelta(0) else None
    missing, answered = list(range(1, size)), set[str]()
    while True:
        for rank in missing:
            if not store.check([f"potluck of {rank}"]):
                continue
            asked = store.get(f"potluck of {rank}").decode()
            if asked not in answered:
                answered.add(asked)
                store.set(f"potluck for {asked}", token)
        missing = [rank for rank in missing if not store.check([f"potluck {token} at {rank}"])]
        if not missing:
            return
        if end is not None and time.monotonic() >= end:
            raise RuntimeError(f"potluck: ranks {missing} have not come within {timeout}")
        time.sleep(0.01)


def asked_for(store: Any, rank: int) -> str:
    """The token that rank 0 hands out."""
    asked = secrets.token_hex(8)
    store.set(f"potluck of {rank}", asked)
    token: str = store.get(f"potluck for {asked}").decode()
    store.set(f"potluck {token} at {rank}", "1")
    return token
