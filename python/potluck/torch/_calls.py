"""The calls of potluck that make one Work of PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed as dist
from torch.futures import Future

from .. import Context, Pending, Step
from .. import Error as PotluckError
from ._room import Begun, Room
from ._tensors import Tensor

IN_STEPS = {"all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather"}
STEP_MAX = 64
"""Calls of a step."""


class Failed(dist.DistBackendError):
    """A call has failed: the tensors are as they were."""

    code = "error"
    """The `code` of the error of potluck."""

    can_renew = False
    """Whether the program can go on with `potluck.torch.renew`."""


def failed(error: BaseException) -> BaseException:
    """The same error as one that PyTorch's programs expect."""
    if not isinstance(error, PotluckError):
        return error
    told = Failed(f"potluck: {error.code}: {error}")
    told.code, told.can_renew = error.code, error.can_renew
    return told


class Calls:
    """The calls of one Work, and what is to be done with their results."""

    def __init__(self, context: Context, room: Room, deadline: float | None) -> None:
        """deadline: of each call, in seconds."""
        self._context, self._room, self._deadline = context, room, deadline
        self._planned: list[Planned] = []
        self._ends: list[Callable[[list[Any]], object]] = []

    def add(self, method: str, *arguments: Any, **options: Any) -> None:
        """A call of a method of the Context."""
        self._planned.append(Planned(method, arguments, options))

    def then(self, end: Callable[[list[Any]], object]) -> None:
        """To be done with what the calls return, when all have succeeded."""
        self._ends.append(end)

    def copies(
        self, to: Tensor, host: Tensor, shaped: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """The result for a tensor that potluck could not write itself."""
        self.then(lambda _: to.detach().copy_(shaped(host) if shaped else host.reshape(to.shape)))

    def work(self, result: Any, source: Callable[[int], int] | None = None) -> CallsWork:
        """Begins the calls. The Work ends with `result`, or with the first error.

        source: if it is a receive, the rank of PyTorch of a rank of the Context.
        """
        begun = [self._room.begin(begin) for begin in self._begins()]
        for call in begun:
            if call.error is not None:
                raise failed(call.error)
        work = CallsWork(source)
        left, lock = len(begun), threading.Lock()

        def one_is_over() -> None:
            nonlocal left
            with lock:
                left -= 1
                if left > 0:
                    return
            self._end(work, begun, result)

        if not begun:
            self._end(work, begun, result)
        for call in begun:
            call.when_over(one_is_over)
        return work

    def _begins(self) -> Iterator[Callable[[], Pending[Any]]]:
        """What begins the calls: several ones as a step, so that they succeed or fail together."""
        options = {"deadline": self._deadline, "async_op": True}
        if len(self._planned) > 1 and all(call.method in IN_STEPS for call in self._planned):
            for first in range(0, len(self._planned), STEP_MAX):
                yield partial(self._step, self._planned[first : first + STEP_MAX], options)
        else:
            for call in self._planned:
                yield partial(call.of, self._context, options)

    def _step(self, calls: list[Planned], options: dict[str, Any]) -> Pending[Any]:
        step = self._context.step()
        for call in calls:
            call.of(step, {})
        begun: Pending[Any] = step.commit(**options)
        return begun

    def _end(self, work: CallsWork, begun: list[Begun], result: Any) -> None:
        try:
            values = [call.result() for call in begun]
            for end in self._ends:
                end(values)
        except BaseException as error:
            work._end(failed(error), None, [])
        else:
            work._end(None, result, values)


@dataclass
class Planned:
    """A call of a Context, or of a step."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def of(self, caller: Context | Step, options: dict[str, Any]) -> Any:
        return getattr(caller, self.method)(*self.arguments, **self.options, **options)


class CallsWork(dist.Work):
    """A Work that raises the error of its calls. PyTorch's own Work of a future drops it."""

    def __init__(self, source: Callable[[int], int] | None) -> None:
        super().__init__()
        self._source = source
        self._values: list[Any] = []
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._result: Any = None
        self._future: Future[Any] = Future()
        # The error travels as a value, and is raised in `then`: C++ does not catch an exception
        # that is set on a future.
        self._told = self._future.then(_value)

    def _end(self, error: BaseException | None, result: Any, values: list[Any]) -> None:
        self._error, self._result, self._values = error, result, values
        self._is_over.set()
        self._future.set_result((error, result))

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for the end. The timeout is of this wait; the calls have deadlines."""
        if not self._is_over.wait(timeout.total_seconds() or None):
            raise RuntimeError(f"potluck: the call is still under way after {timeout}")
        if self._error is not None:
            raise self._error from None
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._is_over.is_set()

    def is_success(self) -> bool:
        return self._is_over.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        """The tensors that the call has written."""
        self.wait()
        return self._result

    def get_future(self) -> Any:
        return self._told

    def source_rank(self) -> int:
        """The rank that has sent what a receive has got."""
        if self._source is None:
            raise RuntimeError("potluck: only a receive has a source")
        self.wait()
        return self._source(self._values[-1])

    _source_rank = source_rank


def _value(future: Future[Any]) -> Any:
    error, value = future.value()
    if error is not None:
        raise error
    return value
