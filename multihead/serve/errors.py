"""What stands before the routes: how large a body may be, who may ask and how often, what is counted and logged."""


class Overloaded(Exception):
    """Too much is waiting already; `seconds` says when to come again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many requests are waiting; try again in {seconds:.0f} seconds")
        self.seconds = seconds


class ShuttingDown(Exception):
    """The batcher is being shut down and takes no more."""


class Forbidden(Exception):
    """The key of a request is none of ours."""


class RateLimited(Exception):
    """A client asks more often than it may; `seconds` says when it may again."""

    def __init__(self, limit: str, seconds: float) -> None:
        super().__init__(f"Slowdown: {limit}")
        self.seconds = seconds


class BadRequest(Exception):
    """A request that cannot be served; the message is for the client."""
