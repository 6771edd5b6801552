"""The lesson about a served model: made when somebody first asks for it, and kept."""

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from multihead.lesson.explain import MAX_LIVE_PARAMETERS, can_run_in_a_page, lesson_page
from multihead.lesson.page import content_policy
from multihead.serve.errors import BadRequest
from multihead.storage.model_folder import ModelFolder

PART_BYTES = 65_536  # a slow client holds up one part at a time, not the page
_MAKER = ThreadPoolExecutor(1, "lesson")  # one page at a time, beside translation


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it is sent."""

    content: bytes
    etag: str

    def parts(self) -> Iterator[bytes]:
        for start in range(0, len(self.content), PART_BYTES):
            yield self.content[start : start + PART_BYTES]


class Lesson:
    """The page about one model, which contains its weights."""

    def __init__(self, folder: ModelFolder | None) -> None:
        self._folder = folder if folder and can_run_in_a_page(folder) else None
        self._lock = threading.Lock()
        self._page: Future[Page] | None = None

    @property
    def is_available(self) -> bool:
        return self._folder is not None

    async def page(self) -> Page:
        """Return the page; requests that arrive while it is made wait for the same one."""
        # Shielded: a client that leaves does not cancel what others wait for.
        return await asyncio.shield(asyncio.wrap_future(self._start()))

    def _start(self) -> Future[Page]:
        if self._folder is None:
            raise BadRequest(
                f"there is no lesson about this model: it has more than {MAX_LIVE_PARAMETERS // 1_000_000} million "
                "parameters, or layers that a page cannot compute. `multihead explain MODEL TEXT` writes a page with "
                "the numbers of one sentence"
            )
        with self._lock:
            if self._page is None or (self._page.done() and self._page.exception()):
                self._page = _MAKER.submit(_make, self._folder)
            return self._page


def _make(folder: ModelFolder) -> Page:
    text, _ = lesson_page(folder, None)
    content = text.encode()
    return Page(content, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


@cache
def policy() -> str:
    """Return the content security policy of the page: what it needs, and only our own page may embed it."""
    return f"{content_policy()}; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
