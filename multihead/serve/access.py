"""API keys and rate limits."""

import hmac
import time
from ipaddress import IPv4Address, IPv6Network, ip_address
from pathlib import Path

from limits import RateLimitItem, RateLimitItemPerMinute, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from multihead.errors import UsageError
from multihead.serve.errors import Forbidden, RateLimited

WRONG_KEYS = RateLimitItemPerMinute(10)  # per client network
MAX_ADDRESS = 64  # characters
MAX_CLIENTS = 10_000  # counted at a time


class Access:
    """The accepted API keys, if any are required, and the rate limit per client, if there is one."""

    def __init__(self, keys: frozenset[str] = frozenset(), rate_limit: str = "") -> None:
        self.keys = keys
        try:
            self._rate = parse(rate_limit) if rate_limit else None
        except ValueError:
            raise UsageError(f"--rate-limit takes requests per time, such as 60/minute; got '{rate_limit}'") from None
        self._storage = MemoryStorage()
        self._limiter = MovingWindowRateLimiter(self._storage)

    @classmethod
    def from_file(cls, keys_file: Path | None, rate_limit: str) -> "Access":
        """Read the keys from a file with one key per line."""
        if keys_file is None:
            return cls(rate_limit=rate_limit)
        try:
            lines = keys_file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the API keys in {keys_file}: {error}") from None
        keys = frozenset(line.strip() for line in lines if line.strip())
        if not keys:
            raise UsageError(f"{keys_file} contains no key")
        return cls(keys, rate_limit)

    def check(self, key: object, client: str) -> str:
        """Return which client this is, by its key or network; raise `Forbidden` or `RateLimited` unless it has access.

        `client` is an IP address.
        """
        if len(self._storage.events) > MAX_CLIENTS:  # the storage never removes a client
            self._storage.reset()
        network = network_of(client)
        if self.keys:
            self._check_key(key, network)
        counted = str(key) if self.keys else network
        if self._rate and not self._limiter.hit(self._rate, counted):
            raise self._rate_limited(self._rate, counted)
        return counted

    def _check_key(self, key: object, network: str) -> None:
        # After too many wrong keys even a correct one is refused, or guessing could go on.
        if not self._limiter.test(WRONG_KEYS, "wrong key", network):
            raise self._rate_limited(WRONG_KEYS, "wrong key", network)
        if any(_is_equal(key, known) for known in self.keys):
            return
        if key:  # a missing key is not a guess: our own page sends requests before the user has entered one
            self._limiter.hit(WRONG_KEYS, "wrong key", network)
        raise Forbidden("Invalid API key")

    def _rate_limited(self, rate: RateLimitItem, *identifiers: str) -> RateLimited:
        reset = self._limiter.get_window_stats(rate, *identifiers).reset_time
        return RateLimited(f"Slowdown: {rate}", retry_after=reset - time.time())


def _is_equal(key: object, known: str) -> bool:
    return isinstance(key, str) and hmac.compare_digest(key.encode(errors="replace"), known.encode())


def network_of(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address, in which a client can choose any address."""
    try:
        ip = ip_address(address)
    except ValueError:  # anything that a proxy has forwarded
        return address[:MAX_ADDRESS]
    if isinstance(ip, IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or IPv6Network((int(ip), 64), strict=False))
