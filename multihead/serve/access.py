"""TODO."""

import hmac
import time
from ipaddress import IPv4Address, IPv6Network, ip_address
from pathlib import Path

from limits import RateLimitItem, RateLimitItemPerMinute, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from multihead.errors import UsageError
from multihead.serve.errors import Forbidden, RateLimited

WRONG_KEYS = RateLimitItemPerMinute(10)  # of one client
MAX_ADDRESS = 64  # characters
MAX_CLIENTS = 10_000  # whose requests are counted at a time


class Access:
    """Which keys may ask, if any are set, and how often one client may, if that is limited."""

    def __init__(self, keys: frozenset[str] = frozenset(), rate: str = "") -> None:
        self.keys = keys
        try:
            self._rate = parse(rate) if rate else None
        except ValueError:
            raise UsageError(f"--rate is a number by a time, such as 60/minute; got '{rate}'") from None
        self._storage = MemoryStorage()
        self._limiter = MovingWindowRateLimiter(self._storage)

    @classmethod
    def read(cls, keys_file: Path | None, rate: str) -> "Access":
        """With the keys of a file, one a line."""
        if keys_file is None:
            return cls(rate=rate)
        try:
            lines = keys_file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as problem:
            raise UsageError(f"cannot read the keys in {keys_file}: {problem}") from None
        keys = frozenset(line.strip() for line in lines if line.strip())
        if not keys:
            raise UsageError(f"there is no key in {keys_file}")
        return cls(keys, rate)

    def check(self, key: object, client: str) -> None:
        """Refuse a request that may not be made; `client` is an address."""
        if len(self._storage.events) > MAX_CLIENTS:  # the storage never drops a client by itself
            self._storage.reset()
        network = _network(client)
        if self.keys:
            self._check_key(key, network)
        if self._rate and not self._limiter.hit(self._rate, str(key) if self.keys else network):
            raise self._too_often(self._rate, str(key) if self.keys else network)

    def _check_key(self, key: object, network: str) -> None:
        # After too many wrong keys not even a right one is accepted: guessing would go on otherwise.
        if not self._limiter.test(WRONG_KEYS, "wrong key", network):
            raise self._too_often(WRONG_KEYS, "wrong key", network)
        if any(self._same(key, known) for known in self.keys):
            return
        if key:  # a missing one is no guess: our own page asks before a key is typed
            self._limiter.hit(WRONG_KEYS, "wrong key", network)
        raise Forbidden("Invalid API key")

    def _too_often(self, rate: RateLimitItem, *who: str) -> RateLimited:
        reset = self._limiter.get_window_stats(rate, *who).reset_time
        return RateLimited(str(rate), max(1.0, reset - time.time()))

    def _same(self, key: object, known: str) -> bool:
        return isinstance(key, str) and hmac.compare_digest(key.encode(errors="replace"), known.encode())


def _network(address: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address, in which a client chooses its addresses freely."""
    try:
        ip = ip_address(address)
    except ValueError:  # whatever a proxy has forwarded
        return address[:MAX_ADDRESS]
    if isinstance(ip, IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or IPv6Network((int(ip), 64), strict=False))
