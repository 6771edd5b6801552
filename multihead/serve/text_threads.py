"""Threads for work that grows with a text, such as splitting it into sentences."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

INLINE_CHARACTERS = 300  # of a text that takes less time than to start a thread for it


class TextThreads:
    """Run functions in threads, one at a time for each client, so that no client can occupy all threads."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(
        self,
        client: str,
        n_characters: int,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Return the result of a function; for a short text, call it here and now."""
        if n_characters <= INLINE_CHARACTERS:
            return function(*args, **kwargs)
        async with self._locks.setdefault(client, asyncio.Lock()):
            return await asyncio.to_thread(function, *args, **kwargs)
