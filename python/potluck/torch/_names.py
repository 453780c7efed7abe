"""Lanes have numbers where groups of PyTorch have names."""

from __future__ import annotations

import zlib


def number(name: str) -> int:
    """The tag of the lane of this name, the same on all ranks."""
    return zlib.crc32(name.encode())


class Names:
    """The names in use, none of which has the number of another one."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def number(self, name: str) -> int:
        """The number of this name. RuntimeError if another one has it: the calls of two groups
        would meet."""
        known = self._names.setdefault(number(name), name)
        if known != name:
            raise RuntimeError(
                f"potluck: {name!r} and {known!r} have the same number; name one group otherwise"
            )
        return number(name)
