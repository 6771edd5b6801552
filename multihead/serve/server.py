"""The process: a socket, a deadline for slow clients, models loaded behind it, and a way to leave that loses nobody."""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from multihead.errors import UsageError, UserError
from multihead.interop.hub import find_model
from multihead.serve.access import Access
from multihead.serve.app import AppState, make_app
from multihead.serve.middleware import LOG
from multihead.serve.service import Limits, Service
from multihead.translation.translator import load

RECEIVE_SECONDS = 20.0  # in which a request has to be there, from its first byte to its last
MOST_CONNECTIONS = 2000  # with idle ones; beyond it a client is hung up on
MOST_HEADER_BYTES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a server is run."""

    host: str = "127.0.0.1"
    port: int = 5000
    engine: str = "auto"
    api_keys: Path | None = None
    rate: str = ""
    proxies: Sequence[str] = ()  # addresses and networks whose X-Forwarded-For is trusted
    log: bool = True  # a line of JSON for each request
    drain_seconds: float = 30.0  # for what is under way when the server is asked to leave
    limits: Limits = field(default_factory=Limits)


def serve(models: Sequence[str], options: Options, log: Callable[[str], None]) -> None:
    """Serve until a signal comes, then finish what is under way."""
    for model in models:
        find_model(model)  # a wrong name is said now, not after a socket is open
    proxies = _networks(options.proxies)
    server = AppState(limits=options.limits, access=Access.read(options.api_keys, options.rate))
    listening = _listen(options.host, options.port)
    host, port = listening.getsockname()[:2]
    config = uvicorn.Config(
        make_app(server),
        http=DeadlineProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # its lines have addresses in them
        server_header=False,
        proxy_headers=bool(proxies),  # uvicorn would trust 127.0.0.1 by default, and so every local client
        forwarded_allow_ips=proxies,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=round(options.drain_seconds),
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )
    if options.log:
        _log_to_stderr()
    process = _Process(config, server)
    loading = threading.Thread(target=_load, args=(server, models, options, process, log), daemon=True)
    loading.start()
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    log(f"loading {', '.join(models)}; {address} answers when they are there")
    process.run(sockets=[listening])
    if server.service:
        server.service.close(options.drain_seconds)
    if process.problem:
        raise process.problem


def _networks(proxies: Sequence[str]) -> list[str]:
    """The networks of proxies, and for IPv4 how they appear on an IPv6 socket (--host ::)."""
    try:
        networks = [ip_network(proxy, strict=False) for proxy in proxies]
    except ValueError as error:
        raise UsageError(f"--proxy is an address or a network, such as 10.0.0.0/8: {error}") from None
    mapped = [f"::ffff:{one.network_address}/{96 + one.prefixlen}" for one in networks if one.version == 4]
    return [*map(str, networks), *mapped]


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))  # which is a JSON object already
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only where the protocol is named does asyncio send small answers at once; else each waits 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise UserError(f"cannot listen on {host}, port {port}: {error}") from None
    return listening


def _load(
    server: AppState, models: Sequence[str], options: Options, process: "_Process", log: Callable[[str], None]
) -> None:
    """Load the models while /health answers already; a model that cannot be loaded ends the process, in words."""
    try:
        service = Service([load(model, engine=options.engine) for model in models], options.limits)
    except Exception as error:
        process.problem = error
        process.should_exit = True
        return
    server.open(service)
    pairs = ", ".join(f"{source} to {target}" for source, target in service.directions)
    log(f"ready: {pairs}")


class _Process(uvicorn.Server):
    """uvicorn, which says that it is leaving before it does."""

    problem: Exception | None = None

    def __init__(self, config: uvicorn.Config, server: AppState) -> None:
        super().__init__(config)
        self._server = server

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own: it would raise the signal again after all is done, and the process would have failed.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = self._server.is_draining = True


class DeadlineProtocol(H11Protocol):
    """HTTP/1.1 that hangs up on a client which takes too long to say what it wants."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.close()
        self._deadline = self.loop.call_later(RECEIVE_SECONDS, self._hang_up)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(RECEIVE_SECONDS, self._hang_up)
        super().data_received(data)
        if self.conn.their_state is h11.DONE:  # the request is there, body and all
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self._deadline = None
        self.transport.close()
