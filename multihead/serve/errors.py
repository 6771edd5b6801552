"""Errors that a client is told about, each with its HTTP status."""


class ServeError(Exception):
    """An error whose message is sent to the client as `{"error": message}`."""

    status = 500

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"retry-after": str(max(1, round(self.retry_after)))}


class BadRequest(ServeError):
    """The request is invalid or not supported."""

    status = 400


class Forbidden(ServeError):
    """The API key is missing or wrong."""

    status = 403


class BodyTooLarge(ServeError):
    """The body is longer than any valid request."""

    status = 413

    @property
    def headers(self) -> dict[str, str]:
        return {"connection": "close"}  # the rest of the body is not read, so the connection cannot be reused


class RateLimited(ServeError):
    """A client sends more requests than it may, or too many wrong keys."""

    status = 429


class NotInstalled(ServeError):
    """The server was installed without what this route needs."""

    status = 501


class Unavailable(ServeError):
    """The models are not loaded yet."""

    status = 503

    def __init__(self, message: str, retry_after: float = 5) -> None:
        super().__init__(message, retry_after)


class Overloaded(Unavailable):
    """The queue is full."""


class ShuttingDown(Unavailable):
    """The server accepts no more work."""
