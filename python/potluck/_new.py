"""New objects for results."""

import math
import struct
from typing import Any

NUMPY = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "bool": "bool",
}

FORMATS = {
    "f32": "f",
    "f64": "d",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
    "bool": "?",
}


def new(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A writable object for elements of this type, of the kind of `like`."""
    if hasattr(like, "new_empty"):  # torch.Tensor
        return like.new_empty(shape)
    if hasattr(like, "__array_namespace__"):  # NumPy 2, and others with the array API
        return like.__array_namespace__().empty(shape, dtype=like.dtype)
    if like is None or type(like).__module__ == "numpy" or dtype not in FORMATS:
        numpy = _numpy()
        if numpy is not None and dtype in NUMPY:
            return numpy.empty(shape, dtype=NUMPY[dtype])
    if dtype not in FORMATS:
        raise TypeError(f"there is no kind of object here for elements of {dtype}; give out=")
    return _view(shape, FORMATS[dtype])


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _view(shape: tuple[int, ...], kind: str) -> Any:
    count = math.prod(shape)
    view: Any = memoryview(bytearray(count * struct.calcsize(kind)))
    # A view of no bytes has one axis.
    return view.cast(kind, shape) if count > 0 else view.cast(kind)
