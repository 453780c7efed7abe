"""Process groups of those that are left, and the state that they go on with."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ._calls import Failed
from ._node import Node, count_anew


def renew(timeout: timedelta | None = None) -> None:
    """A new process group of the members that are there now, in place of the one whose call failed.

    All its members call this; a process that has come back calls `init_process_group`. Ranks and
    the size of the world are new, and so are groups and `DistributedDataParallel` to be made. The
    URL of the first group says with `min` how few may go on. Waits for them, at most `timeout`.
    """
    node = Node.current
    if node is None:
        raise RuntimeError("potluck: there is no process group of potluck to renew")
    end = None if timeout is None else time.monotonic() + timeout.total_seconds()
    of_group = node.timeout
    while True:
        if dist.is_initialized():
            dist.destroy_process_group()
        left = None if end is None else timedelta(seconds=max(0.0, end - time.monotonic()))
        node = Node.joined(left, **node.settings)
        context, node.patience = node.context, left
        count_anew()
        try:
            dist.init_process_group(
                "potluck",
                store=dist.HashStore(),
                rank=context.rank,
                world_size=context.size,
                timeout=of_group,
            )
        except Failed as error:
            # The group has changed again meanwhile.
            if not error.can_renew or (end is not None and time.monotonic() >= end):
                raise
        else:
            return
        finally:
            node.patience = None


def agree(version: int, state: Mapping[str, Any]) -> Any:
    """The state of the rank whose version is the highest, the lowest rank of these: the same for
    all. To be called by all ranks after a group has begun or was renewed.

    state: a value that `torch.load(weights_only=True)` loads, such as a model's `state_dict()`.
    """
    versions = torch.zeros(dist.get_world_size(), dtype=torch.int64, device="cpu")
    dist.all_gather_into_tensor(versions, torch.tensor([version], device="cpu"))
    source = int(versions.argmax())
    saved = io.BytesIO()
    if dist.get_rank() == source:
        torch.save(dict(state), saved)
    length = torch.tensor([saved.tell()], device="cpu")
    dist.broadcast(length, source)
    data = bytearray(saved.getvalue() or int(length))
    dist.broadcast(torch.frombuffer(data, dtype=torch.uint8), source)
    return torch.load(io.BytesIO(data), weights_only=True)
