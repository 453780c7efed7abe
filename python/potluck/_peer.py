"""A member of a group."""

from typing import NamedTuple


class Peer(NamedTuple):
    """A member of a group."""

    rank: int
    """Its rank in the View, or in the sub-group whose Context names it."""
    name: str
    """Its display name."""
    node: str
    """The 64 hexadecimal digits of its public key."""
