"""The rendezvous of torchrun: its agents find each other, and need no address.

    torchrun --rdzv-backend=potluck --rdzv-id=train --nnodes=2:4 --nproc-per-node=2 train.py

`--rdzv-endpoint` names the namespace, and `--rdzv-conf` has the options of a URL of
`init_process_group`, and `last_call` and `join_timeout` in seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
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
        self._store: TCPStore | None = None
        self._is_closed = False

    def get_backend(self) -> str:
        return "potluck"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Waits for enough nodes, and a while for more."""
        end = time.monotonic() + self._join_timeout
        while True:
            if self._is_closed:
                raise RendezvousClosedError
            try:
                context = self._gathered(end)
                return self._round(context)
            except potluck.NotEnoughPeers as error:
                raise RendezvousTimeoutError(str(error)) from None
            except potluck.Error as error:
                # The group has changed meanwhile.
                if not error.can_renew or time.monotonic() >= end:
                    raise

    def _gathered(self, end: float) -> potluck.Context:
        context = self._newest(end)
        called = time.monotonic() + self._last_call
        while context.size < self._most and time.monotonic() < called:
            time.sleep(0.1)
            context = self._newest(end)
        return context

    def _newest(self, end: float) -> potluck.Context:
        return self._cluster.context(max(0.0, end - time.monotonic()))

    def _round(self, context: potluck.Context) -> RendezvousInfo:
        """The store of a round is on the node of rank 0."""
        lane = context.lane(number("store of torchrun"))
        # The store of the former round is closed.
        self._store = None
        port = torch.zeros(1, dtype=torch.int64)
        host = self._host_of(context)
        if context.rank == 0:
            self._store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            port[0] = self._store.port
        lane.broadcast(port, 0)
        if context.rank != 0:
            left = timedelta(seconds=self._join_timeout)
            self._store = TCPStore(host, int(port), timeout=left, wait_for_workers=False)
        # All have the store, or all begin again.
        lane.barrier()
        self._context = context
        assert self._store is not None, "every rank has one"
        address = RendezvousStoreInfo(host, int(port))
        return RendezvousInfo(self._store, context.rank, context.size, address)

    def _host_of(self, context: potluck.Context) -> str:
        """Where this node reaches that of rank 0."""
        if context.rank == 0:
            return "localhost"
        first = context.members[0]
        for peer in self._cluster.status()["peers"]:
            if peer["node"] == first.node:
                host: str = peer["address"].rpartition(":")[0].strip("[]")
                return host
        raise potluck.ViewChanged(f'there is no direct link to rank 0 ("{first.name}")')

    def is_closed(self) -> bool:
        return self._is_closed

    def set_closed(self) -> None:
        self._is_closed = True

    def num_nodes_waiting(self) -> int:
        """The nodes that have come since the round began: the workers then begin again."""
        view = self._cluster.status().get("view")
        if self._context is None or view is None or view["id"] == self._context.view:
            return 0
        return max(0, len(view["members"]) - self._context.size)

    def get_run_id(self) -> str:
        return str(self._run)

    def shutdown(self) -> bool:
        self._cluster.leave()
        return True


def handler() -> Callable[[RendezvousParameters], Any]:
    """The function that torchrun looks for."""
    return Handler
