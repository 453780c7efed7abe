"""The memory of tensors, as potluck takes it."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

Tensor = torch.Tensor

OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "mean",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "bit_and",
    ReduceOp.BOR: "bit_or",
    ReduceOp.BXOR: "bit_xor",
}

TYPES = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
}


def operator(op: Any) -> str:
    """The name of an operator. RuntimeError for one that potluck does not have."""
    for known, name in OPS.items():
        if op == known:
            return name
    raise RuntimeError(f"potluck has no reduction {op}")


def on_host(tensor: Tensor) -> Tensor:
    """The tensor itself where potluck can use its memory, else a copy in main memory."""
    if tensor.layout is not torch.strided:
        raise RuntimeError(f"potluck moves dense tensors only, and this one is {tensor.layout}")
    own = tensor.detach()
    return own if own.device.type == "cpu" and own.is_contiguous() else own.cpu().contiguous()


def in_numbers(host: Tensor, op: Any = ReduceOp.SUM) -> Tensor:
    """The same memory in elements that can be combined by this operator."""
    if host.is_complex() and op != ReduceOp.SUM and op != ReduceOp.AVG:
        raise RuntimeError(f"potluck adds complex numbers, and has no {operator(op)} of them")
    real = torch.view_as_real(host) if host.is_complex() else host
    if real.dtype not in TYPES:
        raise RuntimeError(f"potluck has no arithmetic of {host.dtype}")
    return real


def same_type(out: Tensor, *tensors: Tensor) -> None:
    """RuntimeError if an output and a tensor that comes there have different types: the data travel
    as bytes."""
    for tensor in tensors:
        if out.dtype != tensor.dtype:
            raise RuntimeError(
                f"potluck: the output has {out.dtype}, and the tensor {tensor.dtype}"
            )


def in_bytes(host: Tensor) -> Tensor:
    """The same memory as bytes."""
    return host.reshape(-1).view(torch.uint8)


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether both have the same memory."""
    return one.data_ptr() == other.data_ptr() and one.device == other.device
