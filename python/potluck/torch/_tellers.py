"""Threads that tell the program that something has ended."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable


class Tellers:
    """Daemon threads, as many as are busy at once.

    The functions that they call may wait for another call, so they must not keep the thread of
    potluck busy that ends calls, nor one that others wait for.
    """

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._lock, self._idle = threading.Lock(), 0

    def tell(self, call: Callable[[], object]) -> None:
        """Calls it soon, in another thread."""
        with self._lock:
            is_idle = self._idle > 0
            self._idle -= is_idle
        if is_idle:
            self._told.put(call)
        else:
            threading.Thread(target=self._work, args=(call,), daemon=True).start()

    def _work(self, call: Callable[[], object]) -> None:
        while True:
            call()
            del call
            with self._lock:
                self._idle += 1
            call = self._told.get()


TELLERS = Tellers()


def _after_fork() -> None:
    """A fork has none of the threads."""
    global TELLERS
    TELLERS = Tellers()


os.register_at_fork(after_in_child=_after_fork)


def tell(call: Callable[[], object]) -> None:
    """Calls it soon, in a thread of its own."""
    TELLERS.tell(call)
