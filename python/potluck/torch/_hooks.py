"""Hooks for `DistributedDataParallel`."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed import GradBucket
from torch.futures import Future

from .. import Codec
from ._group import ProcessGroup


def compressed(
    make: Callable[[], Codec], group: dist.ProcessGroup | None = None
) -> Callable[[object, GradBucket], Future[torch.Tensor]]:
    """A hook that averages the gradients with a codec. They are float32.

    make: makes a codec, one for each bucket, so that each may keep its rounding error.

    >>> model.register_comm_hook(None, compressed(lambda: Codec.int8().with_feedback()))
    """
    codecs: dict[tuple[int, int], Codec] = {}

    # DDP looks at these annotations.
    def hook(_: object, bucket: GradBucket) -> Future[torch.Tensor]:
        world = group or dist.group.WORLD
        if not isinstance(world, ProcessGroup):
            raise RuntimeError("potluck: this hook is for a process group of potluck")
        buffer = bucket.buffer()
        # DDP makes the buckets anew after the first step.
        key = (bucket.index(), buffer.numel())
        codec = codecs.get(key) or codecs.setdefault(key, make())
        done = world.encoded_mean(buffer, codec).get_future()
        told: Future[torch.Tensor] = done.then(lambda done: done.value()[0])
        return told

    return hook
