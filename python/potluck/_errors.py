"""The exceptions: one class for each code."""

from typing import ClassVar


class Error(Exception):
    """A call or a node has failed. After it, the buffers of the call are as they were."""

    code: str = "error"
    """A stable name of the failure."""

    retryable: bool = False
    """Whether to take a new Context, sync if that is needed, and make the same call again."""

    can_renew: bool = False
    """Whether a program that syncs before each step takes a new Context and goes on."""

    _classes: ClassVar[dict[str, type["Error"]]] = {}

    def __init_subclass__(cls, code: str | None = None, **rest: object) -> None:
        super().__init_subclass__(**rest)
        if code is not None:
            cls.code = code
            Error._classes[code] = cls


class Aborted(Error, code="aborted"):
    """The operation took effect on no member."""


class ViewChanged(Error, code="view-changed"):
    """The group has changed before this call."""


class Indeterminate(Error, code="indeterminate"):
    """This member cannot know the outcome; a sync brings it."""


class NeedsSync(Error, code="needs-sync"):
    """The members do not hold the same state yet; call sync first."""


class LostResult(Error, code="lost-result"):
    """The result of an earlier call of this lane must be taken or discarded first."""


class Mismatch(Error, code="mismatch"):
    """Two ranks made different calls."""


class Rejected(Error, code="rejected"):
    """The call is invalid on its own."""


class TooManyInFlight(Error, code="too-many-in-flight"):
    """Wait for some of the calls under way first."""


class NotEnoughPeers(Error, TimeoutError, code="not-enough-peers"):
    """Too few members came within the timeout."""


class Config(Error, code="config"):
    """The configuration is invalid."""


class NoClusterKey(Config, code="no-cluster-key"):
    """There is no cluster key on this machine."""


class Identity(Error, code="identity"):
    """The identity file or a key file cannot be used."""


class Pairing(Error, code="pairing"):
    """A pairing code has led to no cluster key."""


class EngineFault(Error, code="engine"):
    """The engine failed in a way that a retry will not cure."""


class OutOfMemory(Error, MemoryError, code="memory"):
    """A member has no memory for its part of the operation."""


class Closed(Error, code="closed"):
    """The node has left the group."""


class Argument(Error, ValueError, code="argument"):
    """An argument is none that the call can have; nothing was called."""


class GivenUp(Error, code="given-up"):
    """The program dropped the call before it ended."""


class InCallback(Error, code="in-callback"):
    """A wait inside of a function that is called when a call has ended."""


class Forked(Error, code="forked"):
    """This process is a fork of the one that joined."""


class Panic(Error, code="panic"):
    """potluck has a fault."""


def made(code: str, text: str, retryable: bool, can_renew: bool) -> Error:
    """The exception for a failure of the library."""
    error = Error._classes.get(code, Error)(text)
    error.code = code
    error.retryable = retryable
    error.can_renew = can_renew
    return error
