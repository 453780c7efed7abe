"""Calls that wait until potluck has room for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .. import Pending


class Begun:
    """A call that has begun, or begins when there is room."""

    def __init__(self, begin: Callable[[], Pending[Any]]) -> None:
        self._begin: Callable[[], Pending[Any]] | None = begin
        self._ended: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._call: Pending[Any] | None = None
        self._is_over = False
        self.error: Exception | None = None
        """Why it could not begin."""

    def start(self, ended: Callable[[], object]) -> None:
        """Begins it. `ended` is called once, perhaps at once."""
        begin, self._begin = self._begin, None
        assert begin is not None, "a call begins once"
        try:
            call = begin()
        except Exception as error:
            self.error = error
            self._end(ended)
        else:
            self._call = call
            call.add_done_callback(lambda _: self._end(ended))

    def _end(self, ended: Callable[[], object]) -> None:
        ended()
        with self._lock:
            self._is_over, told = True, self._ended
        for tell in told:
            tell()

    def when_over(self, tell: Callable[[], object]) -> None:
        """Calls `tell` once when the call is over: at once if it is."""
        with self._lock:
            if not self._is_over:
                self._ended.append(tell)
                return
        tell()

    def result(self) -> Any:
        """What the call returned, when it is over. Raises its error."""
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
        self._open = 0
        self._waiting: deque[Begun] = deque()
        self._is_starting = False
        self._lock = threading.Lock()

    def begin(self, call: Callable[[], Pending[Any]]) -> Begun:
        """Begins a call now or later."""
        begun = Begun(call)
        with self._lock:
            self._waiting.append(begun)
        self._start()
        return begun

    def _start(self) -> None:
        # One thread at a time, so that they begin in order. A call that ends at once comes back
        # here, and finds that thread at work.
        while True:
            with self._lock:
                if self._is_starting or not self._waiting or self._open >= self._most:
                    return
                self._is_starting = True
                self._open += 1
                begun = self._waiting.popleft()
            try:
                begun.start(self._one_has_ended)
            finally:
                with self._lock:
                    self._is_starting = False

    def _one_has_ended(self) -> None:
        with self._lock:
            self._open -= 1
        self._start()
