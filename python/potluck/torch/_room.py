"""Calls that wait until potluck has room for them."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .. import Pending


class Begun:
    """A call that has begun, or begins when there is room.

    As with a Pending, dropping it gives the call up, unless somebody is to be told of its end.
    """

    def __init__(self, begin: Callable[[], Pending[Any]]) -> None:
        self._begin: Callable[[], Pending[Any]] | None = begin
        self._told: list[Callable[[], object]] = []
        # A collection of garbage may drop another Work in the middle of it.
        self._lock = threading.RLock()
        self._call: Pending[Any] | None = None
        self.error: Exception | None = None
        """Why it could not begin."""
        self.is_watched = False
        """Whether its Room is told when it is over."""

    def start(self) -> None:
        """Begins it."""
        begin, self._begin = self._begin, None
        assert begin is not None, "a call begins once"
        call, error = None, None
        try:
            call = begin()
        except Exception as problem:
            error = problem
        with self._lock:
            self._call, self.error = call, error
            told, self._told = self._told, []
        for tell in told:
            self.when_over(tell)

    def is_over(self) -> bool:
        """Whether it has ended, or could not begin."""
        return self.error is not None or (self._call is not None and self._call.done())

    def when_over(self, tell: Callable[[], object]) -> None:
        """Calls `tell` once when it is over: at once if it is."""
        with self._lock:
            call, error = self._call, self.error
            if call is None and error is None:
                self._told.append(tell)
                return
        if call is None:
            tell()
        else:
            call.add_done_callback(lambda _: tell())

    def wait(self, timeout: float | None) -> bool:
        """Whether it is over, after so many seconds at most."""
        call = self._call
        if call is None:
            over = threading.Event()
            self.when_over(over.set)
            return over.wait(timeout)
        return call._ended(timeout)

    def result(self) -> Any:
        """The result of the call, when it is over. Raises its error."""
        if self.error is not None:
            raise self.error
        assert self._call is not None, "it is over"
        return self._call.wait()


class Room:
    """So many calls at once; those beyond begin in order, when earlier ones have ended.

    potluck has at most 32 undecided calls of groups and messages on a node. Messages have rooms of
    their own: a receive may wait for a send that comes after it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: list[weakref.ref[Begun]] = []
        self._waiting: deque[Begun] = deque()
        self._is_starting = False
        self._lock = threading.RLock()

    def begin(self, call: Callable[[], Pending[Any]]) -> Begun:
        """Begins a call now or later."""
        begun = Begun(call)
        with self._lock:
            self._waiting.append(begun)
        self._start()
        return begun

    def _start(self) -> None:
        # One thread at a time, so that they begin in order.
        while True:
            with self._lock:
                if self._is_starting or not self._waiting:
                    return
                unwatched = self._unwatched_if_full()
                if unwatched is None:
                    self._is_starting = True
                    begun = self._waiting.popleft()
                    self._open.append(weakref.ref(begun))
            if unwatched is not None:
                # One that has ended meanwhile comes back here at once.
                for call in unwatched:
                    call.when_over(self._start)
                return
            try:
                begun.start()
            finally:
                with self._lock:
                    self._is_starting = False

    def _unwatched_if_full(self) -> list[Begun] | None:
        """None if there is room. Else the open calls that do not tell of their ends yet."""
        if len(self._open) < self._most:
            return None
        called = [call for call in (known() for known in self._open) if call is not None]
        under_way = [call for call in called if not call.is_over()]
        self._open = [weakref.ref(call) for call in under_way]
        if len(under_way) < self._most:
            return None
        unwatched = [call for call in under_way if not call.is_watched]
        for call in unwatched:
            call.is_watched = True
        return unwatched
