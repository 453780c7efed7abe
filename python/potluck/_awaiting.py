"""Calls in asyncio."""

import asyncio
from typing import Any

from ._native import Pending


async def ended(pending: Pending[Any]) -> object:
    """The result of a call, when it has ended. A task that is cancelled here gives the call up."""
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
    except asyncio.CancelledError:
        pending._give_up()
        raise
    return pending.wait()
