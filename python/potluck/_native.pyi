"""The native part of the package."""

from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from os import PathLike
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, TypeVar, final, overload

from ._peer import Peer
from ._types import Buffer, Op

__all__ = [
    "Cluster",
    "Codec",
    "Context",
    "Events",
    "GradientStep",
    "GradientSync",
    "Pending",
    "Step",
    "__version__",
    "_command",
    "_leave_all",
    "join",
]
__version__: str

_B = TypeVar("_B", bound=Buffer)
_T_co = TypeVar("_T_co", covariant=True)

def join(
    namespace: str | None = None,
    *,
    key: str | None = None,
    open_lan: str | None = None,
    loopback: bool = False,
    job: str | None = None,
    members: int | None = None,
    min_members: int | None = None,
    max_members: int | None = None,
    peers: Sequence[str] | None = None,
    interfaces: str | None = None,
    name: str | None = None,
    home: str | PathLike[str] | None = None,
    engine: Literal["auto", "native"] | None = None,
    partition: str | None = None,
    stateless: bool = False,
    notices: bool | None = None,
) -> Cluster:
    """Starts this process's node and returns when it runs.

    namespace: nodes of different namespaces form separate groups.
    key: the cluster key; else POTLUCK_KEY, else the key file of the namespace.
    open_lan: the name of a namespace without a key, which admits all that know the name.
    loopback: only processes on this machine, over 127.0.0.1.
    job: nodes of one namespace with the same job form a group; else POTLUCK_JOB, else the name of
        the script that runs.
    members, min_members, max_members: the group begins with, goes on with, and has at most so many.
    peers: nodes to dial in addition, as "host" or "host:port".
    interfaces: those to use, as "eth0,en*", or with a leading "^" those not to use.
    name: the name of this node; else that of the machine.
    home: the folder of key and state files; else POTLUCK_HOME, else the XDG folders.
    engine: the package has the native engine alone; both words mean it.
    partition: "continue", "majority:ID,ID,..." or "all:ID,ID,...".
    stateless: this node keeps no state in step with the others.
    notices: whether a line on stderr gives the reason of a long wait.
    """

@final
class Cluster:
    """A running node. As a context manager it leaves at the end of the block."""

    def context(self, timeout: float | None = None) -> Context:
        """Waits for a View: a group of enough members. NotEnoughPeers after the timeout."""

    def status(self) -> dict[str, Any]:
        """The document that `potluck status --json` prints of this node."""

    def events(self) -> Events:
        """The events of the group from now on."""

    def leave(self) -> None:
        """Leaves. The other members go on at once. Open calls of this node end with Indeterminate,
        later ones with Closed."""

    def __enter__(self) -> Cluster: ...
    def __exit__(self, *raised: object) -> None: ...

@final
class Events:
    """Dicts with a "kind", a "text" and the fields of the kind. Ends when the node has left."""

    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    def __next__(self) -> dict[str, Any]: ...

@final
class Pending(Awaitable[_T_co], Generic[_T_co]):
    """A call under way, or ended. When it is dropped before its end, the call is given up."""

    def wait(self, timeout: float | None = None) -> _T_co:
        """The result. TimeoutError after the timeout; the call then goes on."""

    def done(self) -> bool:
        """Whether the call has ended."""

    def add_done_callback(self, f: Callable[[Pending[_T_co]], object], /) -> None:
        """Calls `f` once with this, when the call has ended: at once if it has, else in a thread of
        potluck. `f` is to be short, and must not wait for calls. The call is not given up before
        its end, also if nothing else refers to this."""

    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...
    def __await__(self) -> Generator[Any, Any, _T_co]: ...
    def _ended(self, timeout: float | None = None) -> bool: ...
    def _give_up(self) -> None: ...
    def _when_ended(self, f: Callable[[], object], /) -> None: ...

@final
class Context:
    """The place of this node in one View, and the calls that its members make together.

    Rank, size and members never change: when members come or go, calls end with ViewChanged or
    Aborted, and `renewed` waits for the next View.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def view(self) -> str: ...
    @property
    def members(self) -> list[Peer]: ...
    @property
    def in_sync(self) -> bool: ...
    @property
    def engine(self) -> str: ...
    def shard(self, length: int) -> tuple[int, int]:
        """Begin and end of the part of so many elements that `reduce_scatter` gives this rank."""

    @overload
    def all_reduce(
        self,
        buffer: _B,
        op: Op = "sum",
        *,
        codec: Codec | None = None,
        weight: float | None = None,
        deadline: float | None = None,
        reject_non_finite: bool = False,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> _B:
        """Combines the buffers of all ranks, in place. With a weight: a weighted mean."""

    @overload
    def all_reduce(
        self,
        buffer: _B,
        op: Op = "sum",
        *,
        codec: Codec | None = None,
        weight: float | None = None,
        deadline: float | None = None,
        reject_non_finite: bool = False,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[_B]: ...
    @overload
    def reduce(
        self,
        buffer: _B,
        root: int = 0,
        op: Op = "sum",
        *,
        deadline: float | None = None,
        reject_non_finite: bool = False,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> _B:
        """Combines the buffers of all ranks in that of the root, in place."""

    @overload
    def reduce(
        self,
        buffer: _B,
        root: int = 0,
        op: Op = "sum",
        *,
        deadline: float | None = None,
        reject_non_finite: bool = False,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[_B]: ...
    @overload
    def broadcast(
        self,
        buffer: _B,
        root: int = 0,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> _B:
        """Copies the buffer of the root into those of all ranks, in place."""

    @overload
    def broadcast(
        self,
        buffer: _B,
        root: int = 0,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[_B]: ...
    @overload
    def reduce_scatter(
        self,
        buffer: Buffer,
        op: Op = "sum",
        *,
        out: Any = None,
        deadline: float | None = None,
        reject_non_finite: bool = False,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> Any:
        """Combines the buffers of all ranks; returns this rank's `shard`, in one axis."""

    @overload
    def reduce_scatter(
        self,
        buffer: Buffer,
        op: Op = "sum",
        *,
        out: Any = None,
        deadline: float | None = None,
        reject_non_finite: bool = False,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[Any]: ...
    @overload
    def all_gather(
        self,
        buffer: Buffer,
        *,
        out: Any = None,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> Any:
        """The buffers of all ranks, in a new first axis."""

    @overload
    def all_gather(
        self,
        buffer: Buffer,
        *,
        out: Any = None,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[Any]: ...
    @overload
    def all_to_all(
        self,
        buffer: _B,
        *,
        out: Any = None,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> Any:
        """Sends an equal part of the buffer to each rank; returns the parts for this rank."""

    @overload
    def all_to_all(
        self,
        buffer: _B,
        *,
        out: Any = None,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[Any]: ...
    @overload
    def gather(
        self,
        buffer: Buffer,
        root: int = 0,
        *,
        out: Any = None,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> Any:
        """As all_gather, at the root; None elsewhere."""

    @overload
    def gather(
        self,
        buffer: Buffer,
        root: int = 0,
        *,
        out: Any = None,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[Any]: ...
    @overload
    def scatter(
        self,
        buffer: _B,
        parts: Buffer | None = None,
        root: int = 0,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> _B:
        """The root gives the parts of all ranks; each rank's buffer gets its own."""

    @overload
    def scatter(
        self,
        buffer: _B,
        parts: Buffer | None = None,
        root: int = 0,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[_B]: ...
    @overload
    def all_gather_uneven(
        self,
        buffer: Buffer,
        *,
        deadline: float | None = None,
        async_op: Literal[False] = False,
    ) -> list[Any]:
        """The buffers of all ranks, each of its own length: one object for each rank."""

    @overload
    def all_gather_uneven(
        self,
        buffer: Buffer,
        *,
        deadline: float | None = None,
        async_op: Literal[True],
    ) -> Pending[list[Any]]: ...
    @overload
    def all_to_all_uneven(
        self,
        buffer: Buffer,
        lengths: Sequence[int],
        *,
        deadline: float | None = None,
        async_op: Literal[False] = False,
    ) -> list[Any]:
        """Sends `lengths[0]` elements to rank 0, and so on; returns those from each rank."""

    @overload
    def all_to_all_uneven(
        self,
        buffer: Buffer,
        lengths: Sequence[int],
        *,
        deadline: float | None = None,
        async_op: Literal[True],
    ) -> Pending[list[Any]]: ...
    @overload
    def send(
        self,
        buffer: Buffer,
        to: int,
        tag: int = 0,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> None:
        """Sends a message. It ends when the receiver has it."""

    @overload
    def send(
        self,
        buffer: Buffer,
        to: int,
        tag: int = 0,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[None]: ...
    @overload
    def recv(
        self,
        buffer: Buffer,
        source: int | None = None,
        tag: int = 0,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> int:
        """Receives a message of the rank `source`, or the next one with this tag of any rank.
        Returns the rank of the sender."""

    @overload
    def recv(
        self,
        buffer: Buffer,
        source: int | None = None,
        tag: int = 0,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[int]: ...
    @overload
    def barrier(
        self,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[False] = False,
    ) -> None:
        """Waits for all ranks."""

    @overload
    def barrier(
        self,
        *,
        deadline: float | None = None,
        best_effort: bool = False,
        async_op: Literal[True],
    ) -> Pending[None]: ...
    @overload
    def sync(
        self,
        version: int,
        state: bytes | bytearray,
        *,
        deadline: float | None = None,
        async_op: Literal[False] = False,
    ) -> bytes:
        """The state of the member that is furthest along; `version` decides among equals."""

    @overload
    def sync(
        self,
        version: int,
        state: bytes | bytearray,
        *,
        deadline: float | None = None,
        async_op: Literal[True],
    ) -> Pending[bytes]: ...
    def step(self, *, reject_non_finite: bool = False) -> Step:
        """Several calls with one vote: all of their results are written, or none."""

    def lane(self, tag: int) -> Context:
        """Another sequence of calls in this View, for another thread. Each tag once."""

    def group(self, ranks: Sequence[int], tag: int = 0) -> Context:
        """The calls of some ranks among themselves; these ranks make it, with their own one."""

    def renewed(self, timeout: float | None = None) -> Context:
        """The Context of the newest View. TimeoutError after the timeout."""

    def take_result(self, dtype: str) -> Any | None:
        """The result of a call that was given up and took effect anyway, in one axis."""

    def discard_result(self) -> bool:
        """Discards that result; False if there is none."""

@final
class Step:
    """Calls that are committed together, at the end of a `with` block or by `commit`. Their buffers
    are read and written by the commit."""

    def all_reduce(
        self, buffer: _B, op: Op = "sum", *, codec: Codec | None = None, weight: float | None = None
    ) -> _B: ...
    def reduce(self, buffer: _B, root: int = 0, op: Op = "sum") -> _B: ...
    def broadcast(self, buffer: _B, root: int = 0) -> _B: ...
    def reduce_scatter(self, buffer: Buffer, op: Op = "sum", *, out: Any = None) -> Any: ...
    def all_gather(self, buffer: Buffer, *, out: Any = None) -> Any: ...
    def all_to_all(self, buffer: Buffer, *, out: Any = None) -> Any: ...
    @overload
    def commit(
        self, *, deadline: float | None = None, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def commit(
        self, *, deadline: float | None = None, async_op: Literal[True]
    ) -> Pending[None]: ...
    def __enter__(self) -> Step: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None: ...

@final
class Codec:
    """How the data of an `all_reduce` of float32 travels."""

    @staticmethod
    def bf16() -> Codec: ...
    @staticmethod
    def f16() -> Codec: ...
    @staticmethod
    def int8() -> Codec: ...
    @staticmethod
    def int4() -> Codec: ...
    @staticmethod
    def one_bit() -> Codec:
        """One bit per element, its sign; sums as int4. With feedback; for sums and means."""

    @staticmethod
    def top_k(share: float) -> Codec:
        """Of every 256 elements the largest ones, this share of them; with feedback."""

    @staticmethod
    def auto(coarsest: Literal["bf16", "int8", "int4"] = "int8") -> Codec:
        """The codec that saves time by the measured links, none of them coarser than this one."""

    def with_feedback(self) -> Codec:
        """The same codec, whose rounding error is added to the next call. For one buffer."""

    def without_feedback(self) -> Codec:
        """The same codec, whose rounding error is lost."""

    def residual(self) -> Any:
        """The rounding error of each element that the next call adds."""

    def forget(self) -> None:
        """Drops that error."""

@final
class GradientSync:
    """Averages the gradients of a model over all members, step by step, in the newest View."""

    def __new__(
        cls,
        cluster: Cluster,
        lens: Sequence[int],
        *,
        codec: Codec | None = None,
        bucket_bytes: int = 1048576,
    ) -> GradientSync: ...
    def context(self, timeout: float | None = None) -> Context:
        """The newest View, in the lane of the gradients: for a `sync` before a step."""

    def step(
        self,
        *,
        weight: float | None = None,
        deadline: float | None = None,
        timeout: float | None = None,
    ) -> GradientStep:
        """Begins a step. TimeoutError if it has not begun within the timeout, `Argument` if the one
        before is neither finished nor given up."""

@final
class GradientStep:
    """One step: finished at the end of a `with` block, given up if that raises."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def push(self, parameter: int, gradient: Buffer) -> None:
        """The gradient of a parameter, aligned float32. Leave it alone until the step has ended,
        which writes the mean to it."""

    @overload
    def finish(self, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def finish(self, *, async_op: Literal[True]) -> Pending[None]: ...
    def __enter__(self) -> GradientStep: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None: ...

def _leave_all() -> None: ...
def _command(arguments: list[str], itself: list[str]) -> int: ...
