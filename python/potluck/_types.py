"""Types of arguments."""

from typing import Any, Literal, Protocol, TypeAlias

Op = Literal["sum", "mean", "min", "max", "prod", "bit_and", "bit_or", "bit_xor"]


class SupportsDLPack(Protocol):
    """An array of NumPy, PyTorch or another library, in main memory."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class SupportsBuffer(Protocol):
    """array.array, bytearray, memoryview and other objects with the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


Buffer: TypeAlias = SupportsDLPack | SupportsBuffer
