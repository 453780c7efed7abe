"""PyTorch over potluck: `torch.distributed` without addresses, ranks or a launcher.

>>> import potluck.torch
>>> torch.distributed.init_process_group("potluck", init_method="potluck://?n=4")
"""

from __future__ import annotations

import torch.distributed as dist

from ._calls import Failed
from ._elastic import ElasticDDP
from ._group import ProcessGroup
from ._hooks import compressed
from ._node import create, rendezvous
from ._renewing import agree, renew

__all__ = ["ElasticDDP", "Failed", "ProcessGroup", "agree", "compressed", "renew"]

dist.Backend.register_backend(
    "potluck", create, extended_api=True, devices=["cpu", "cuda", "mps", "xpu"]
)
dist.register_rendezvous_handler("potluck", rendezvous)
