"""Calls in asyncio."""

import asyncio
from typing import Any

from ._native import Pending


async def ended(pending: Pending[Any]) -> object:
    """The result of a call, when it has ended. A task that is cancelled here drops the call."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not future.done():
            future.set_result(None)

    def tell_loop() -> None:
        # The loop may have ended before the call.
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell)

    pending._when_ended(tell_loop)
    try:
        await future
    except BaseException:
        # The traceback keeps this frame, and must not keep the call.
        del pending
        raise
    return pending.wait()
