"""Options of `multihead serve`, and the limits that they set."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

AUTO = "auto"  # as a source language: detect it


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of every size and number that a client can choose."""

    characters: int = 5000  # per text
    texts: int = 50  # per request
    alternatives: int = 10
    beam: int = 12
    alpha: float = 5.0
    sentence_characters: int = 400  # of a sentence for /attention: the weights grow with the square of the length
    seconds: float = 30.0  # per request, from its arrival to its answer
    max_wait: float = 2.0  # seconds that a short request may have to wait; a long one may wait longer
    batch: int = 32  # sentences translated together

    @property
    def request_characters(self) -> int:
        """Characters of all texts of a request."""
        return 10 * self.characters

    @property
    def body_bytes(self) -> int:
        """Bytes of a request: every character in its longest form, two escapes of six bytes, and the other fields."""
        return 10_000 + 12 * self.request_characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a server process."""

    host: str = "127.0.0.1"
    port: int = 5000
    engine: str = "auto"
    api_keys: Path | None = None
    rate_limit: str = ""
    proxies: Sequence[str] = ()  # addresses and networks whose X-Forwarded-For header is trusted
    log: bool = True  # write a line of JSON for each request
    explain: bool = True  # offer the lesson, which contains the weights of the model
    pivot: bool = True  # translate through a third language where no model has the direction
    drain_seconds: float = 30.0  # time to finish pending requests on shutdown
    limits: Limits = field(default_factory=Limits)
