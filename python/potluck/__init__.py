"""Turns the computers of a home or lab network into one all-reduce group."""

import atexit

from ._errors import (
    Aborted,
    Argument,
    Closed,
    Config,
    EngineFault,
    Error,
    Forked,
    GivenUp,
    Identity,
    InCallback,
    Indeterminate,
    LostResult,
    Mismatch,
    NeedsSync,
    NoClusterKey,
    NotEnoughPeers,
    OutOfMemory,
    Pairing,
    Panic,
    Rejected,
    TooManyInFlight,
    ViewChanged,
)
from ._native import (
    Cluster,
    Codec,
    Context,
    Events,
    GradientStep,
    GradientSync,
    Pending,
    Step,
    __version__,
    _leave_all,
    join,
)
from ._peer import Peer
from ._types import Buffer, Op

__all__ = [
    "Aborted",
    "Argument",
    "Buffer",
    "Closed",
    "Cluster",
    "Codec",
    "Config",
    "Context",
    "EngineFault",
    "Error",
    "Events",
    "Forked",
    "GivenUp",
    "GradientStep",
    "GradientSync",
    "Identity",
    "InCallback",
    "Indeterminate",
    "LostResult",
    "Mismatch",
    "NeedsSync",
    "NoClusterKey",
    "NotEnoughPeers",
    "Op",
    "OutOfMemory",
    "Pairing",
    "Panic",
    "Peer",
    "Pending",
    "Rejected",
    "Step",
    "TooManyInFlight",
    "ViewChanged",
    "__version__",
    "join",
]

# The others go on at once, also if the program does not leave.
atexit.register(_leave_all)
