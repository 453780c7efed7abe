"""The calls of potluck that make one Work of PyTorch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from .. import Context, Pending, Step
from .. import Error as PotluckError
from ._room import Begun, Room
from ._tellers import tell
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
    """The calls of one Work, and the actions on their results."""

    def __init__(self, context: Context, room: Room, deadline: float | None) -> None:
        """deadline: of each call, in seconds."""
        self._context, self._room, self._deadline = context, room, deadline
        self._planned: list[Planned] = []
        self._ends: list[Callable[[list[Any]], object]] = []

    def add(self, method: str, *arguments: Any, **options: Any) -> None:
        """A call of a method of the Context."""
        self._planned.append(Planned(method, arguments, options))

    def then(self, end: Callable[[list[Any]], object]) -> None:
        """To be done with the results of the calls, when all have succeeded."""
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
                _let_go_on(begun)
                raise failed(call.error)
        return CallsWork(begun, self._ends, result, source)

    def _begins(self) -> Iterator[Callable[[], Pending[Any]]]:
        """The functions that begin the calls: several as a step, so that they end alike."""
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


@dataclass
class Planned:
    """A call of a Context, or of a step."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def of(self, caller: Context | Step, options: dict[str, Any]) -> Any:
        return getattr(caller, self.method)(*self.arguments, **self.options, **options)


class CallsWork(dist.Work):
    """A Work that raises the error of its calls. PyTorch's own Work of a future drops it.

    The thread that waits processes the results. With a future, and if results must be copied,
    possibly no thread waits: then a thread of potluck processes them. A future is set in a thread
    of its own, because the callbacks of the program may wait for other calls.
    """

    def __init__(
        self,
        begun: list[Begun],
        ends: list[Callable[[list[Any]], object]],
        result: Any,
        source: Callable[[int], int] | None,
    ) -> None:
        super().__init__()
        self._begun, self._ends, self._result, self._source = begun, ends, result, source
        self._values: list[Any] = []
        self._error: BaseException | None = None
        self._is_over = False
        self._future: Future[Any] | None = None
        self._told: Any = None
        # Held while it ends: also `_ends` are carried out once.
        self._lock = threading.RLock()
        if ends:
            self._end_by_itself()

    def _end_by_itself(self) -> None:
        """Ends it when all calls have ended, if nobody waits before."""
        left, lock = len(self._begun), threading.Lock()

        def one_is_over() -> None:
            nonlocal left
            with lock:
                left -= 1
                if left > 0:
                    return
            self._end()

        if not self._begun:
            self._end()
        for call in self._begun:
            call.when_over(one_is_over)

    def _end(self) -> None:
        """All calls are over."""
        with self._lock:
            if self._is_over:
                return
            try:
                values = [call.result() for call in self._begun]
                # Tensors of inference mode can be written only inside it.
                # The mode is that of a thread, and this one may be another than the program's.
                with torch.inference_mode():
                    for end in self._ends:
                        end(values)
            except Exception as error:
                self._error, self._result = failed(error), None
            else:
                self._values = values
            self._is_over = True
            # They hold objects that the program may not need any more.
            self._begun, self._ends = [], []
            future = self._future
        if future is not None:
            tell(partial(future.set_result, (self._error, self._result)))

    def __del__(self) -> None:
        # A program may drop the Work of a call that is to go on.
        _let_go_on(self._begun)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for the end. The timeout is of this wait; the calls have deadlines."""
        until = time.monotonic() + timeout.total_seconds() if timeout else None
        for call in self._begun:
            left = None if until is None else max(until - time.monotonic(), 0.0)
            if not call.wait(left):
                raise RuntimeError(f"potluck: the call is still under way after {timeout}")
        self._end()
        if self._error is not None:
            raise self._error from None
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._is_over and all(call.is_over() for call in self._begun):
            self._end()
        return self._is_over

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error if self.is_completed() else None

    def result(self) -> Any:
        """The tensors that the call has written."""
        self.wait()
        return self._result

    def get_future(self) -> Any:
        with self._lock:
            if self._told is not None:
                return self._told
            self._future = Future()
            # The error travels as a value, and is raised in `then`: C++ does not catch an exception
            # that is set on a future.
            self._told = self._future.then(_value)
            is_over = self._is_over
        if is_over:
            self._future.set_result((self._error, self._result))
        elif not self._ends:
            self._end_by_itself()
        return self._told

    def source_rank(self) -> int:
        """The sender of the message that a receive has got."""
        if self._source is None:
            raise RuntimeError("potluck: only a receive has a source")
        self.wait()
        return self._source(self._values[-1])

    _source_rank = source_rank


def _let_go_on(begun: list[Begun]) -> None:
    """Keeps calls until they are over: dropping them would give them up."""
    for call in begun:
        call.when_over(partial(_keep, call))


def _keep(_call: Begun) -> None:
    """Keeps it by being kept."""


def _value(future: Future[Any]) -> Any:
    error, value = future.value()
    if error is not None:
        raise error
    return value
