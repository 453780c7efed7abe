"""The rendezvous of torchrun: its agents find each other, and need no address.

    torchrun --rdzv-backend=potluck --rdzv-id=train --nnodes=2:4 --nproc-per-node=2 train.py

`--rdzv-endpoint` names the namespace, and `--rdzv-conf` has the options of a URL of
`init_process_group`, and `last_call` and `join_timeout` in seconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import torch
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

import potluck

from ._names import number
from ._node import FLAGS, TEXTS, URL, settings_of

LAST_CALL = 5.0
"""Seconds that a group of enough nodes waits for more."""

JOIN_TIMEOUT = 600.0

AGAIN = "potluck again"
"""The key in the store of a round that a node sets when it begins the round again."""

LOOKS_EVERY = 0.2
"""Seconds between two looks for that key."""


class Round:
    """The store of a round. This class asks it in threads of its own, because the store's server
    may be lost and never answer."""

    def __init__(self, store: TCPStore) -> None:
        self.store = store
        self.is_again = False
        """Whether a node has begun the round again."""
        self._is_over = threading.Event()

    def watch(self) -> None:
        """Looks whether a node begins the round again, until the round is over."""
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        with suppress(RuntimeError):
            while not self._is_over.wait(LOOKS_EVERY):
                if self.store.check([AGAIN]):
                    self.is_again = True
                    return

    def begin_again(self) -> None:
        """Tells the others that this node begins it again."""
        self.close()
        threading.Thread(target=self._tell, daemon=True).start()

    def _tell(self) -> None:
        with suppress(RuntimeError):
            self.store.set(AGAIN, "1")

    def close(self) -> None:
        self._is_over.set()


class Handler(RendezvousHandler):
    """The node of an agent, and the rounds of its group."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run, self._most = parameters.run_id, parameters.max_nodes
        self._last_call = float(parameters.get("last_call", LAST_CALL))
        self._join_timeout = float(parameters.get("join_timeout", JOIN_TIMEOUT))
        said = {key: parameters.get(key) for key in FLAGS | TEXTS if parameters.get(key)}
        url = f"potluck://{parameters.endpoint}?{urlencode(said)}"
        settings = settings_of(url) | {
            "job": f"agents-{self._run}"[:32],
            "members": parameters.min_nodes,
            "min_members": parameters.min_nodes,
            "max_members": parameters.max_nodes,
        }
        # The workers form a group of their own, with the same settings.
        os.environ.setdefault(URL, url)
        self._cluster = potluck.join(stateless=True, **settings)
        self._context: potluck.Context | None = None
        self._last: Round | None = None
        self._is_closed = False

    def get_backend(self) -> str:
        return "potluck"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Waits for enough nodes, and a while for more."""
        end = time.monotonic() + self._join_timeout
        if self._last is not None:
            # The others may be in a round that this node was in, and see no change of the group.
            self._last.begin_again()
        while True:
            if self._is_closed:
                raise RendezvousClosedError
            try:
                context = self._gathered(end)
                return self._round(context, end)
            except potluck.NotEnoughPeers as error:
                raise RendezvousTimeoutError(str(error)) from None
            except potluck.Error as error:
                if time.monotonic() >= end:
                    raise RendezvousTimeoutError(str(error)) from None
                if not error.can_renew:
                    raise
                # The group has changed meanwhile.
                time.sleep(0.1)

    def _gathered(self, end: float) -> potluck.Context:
        context = self._newest(end)
        called = time.monotonic() + self._last_call
        while context.size < self._most and time.monotonic() < called:
            time.sleep(0.1)
            context = self._newest(end)
        return context

    def _newest(self, end: float) -> potluck.Context:
        return self._cluster.context(max(0.0, end - time.monotonic()))

    def _round(self, context: potluck.Context, end: float) -> RendezvousInfo:
        """The store of a round is on the node of rank 0."""
        lane = context.lane(number("store of torchrun"))
        port = torch.zeros(1, dtype=torch.int64, device="cpu")
        host = self._host_of(context)
        store: TCPStore | None = None
        if context.rank == 0:
            store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            port[0] = store.port
        lane.broadcast(port, 0, deadline=_left(end))
        if context.rank != 0:
            patience = timedelta(seconds=self._join_timeout)
            store = TCPStore(host, int(port), timeout=patience, wait_for_workers=False)
        assert store is not None, "every rank has one"
        # All are here: none looks into the store of the former round any more.
        self._last = Round(store)
        try:
            # All have the store, or all begin again.
            lane.barrier(deadline=_left(end))
        except potluck.Error:
            # Some may have gone on.
            self._last.begin_again()
            raise
        self._context = context
        self._last.watch()
        address = RendezvousStoreInfo(host, int(port))
        return RendezvousInfo(store, context.rank, context.size, address)

    def _host_of(self, context: potluck.Context) -> str:
        """Where this node reaches that of rank 0."""
        if context.rank == 0:
            return "localhost"
        first = context.members[0]
        for peer in self._cluster.status()["peers"]:
            # Without a direct link, the address is that of a relay.
            if peer["node"] == first.node and not peer["through"]:
                host: str = peer["address"].rpartition(":")[0].strip("[]")
                return host
        error = potluck.ViewChanged(f'there is no direct link to rank 0 ("{first.name}")')
        # There may be one soon.
        error.can_renew = True
        raise error

    def is_closed(self) -> bool:
        return self._is_closed

    def set_closed(self) -> None:
        self._is_closed = True

    def num_nodes_waiting(self) -> int:
        """The nodes that have come since the round began, or begin it again: the workers then begin
        again."""
        if self._context is None or self._last is None:
            return 0
        again = int(self._last.is_again)
        view = self._cluster.status().get("view")
        if view is None or view["id"] == self._context.view:
            return again
        return max(again, len(view["members"]) - self._context.size)

    def get_run_id(self) -> str:
        return str(self._run)

    def shutdown(self) -> bool:
        if self._last is not None:
            self._last.close()
        self._cluster.leave()
        return True


def _left(end: float) -> float:
    """The seconds until then, and never none."""
    return max(0.001, end - time.monotonic())


def handler() -> Callable[[RendezvousParameters], Any]:
    """The function that torchrun looks for."""
    return Handler
