"""The server process: socket, loading of models, and a shutdown that loses no request."""

import logging
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from ipaddress import ip_network
from types import FrameType

import uvicorn

from multihead.concurrency import n_threads
from multihead.console import Log
from multihead.errors import UsageError, UserError
from multihead.interop.hub import find_model
from multihead.serve.access import Access
from multihead.serve.app import AppState, make_app
from multihead.serve.fair_queue import RESERVED_LANES
from multihead.serve.middleware import LOG, MAX_HEADER_BYTES
from multihead.serve.options import ServerOptions
from multihead.serve.protocol import MAX_CONNECTIONS, protocol_of
from multihead.serve.service import Service, exempt_from_collection
from multihead.system import lower_thread_priority
from multihead.translation.translator import load

if sys.platform != "win32":
    import resource

SWITCH_SECONDS = 0.001  # after which a thread that runs Python yields to the event loop
MODEL_NICENESS = 4  # of the threads that translate; the event loop has 0
SPARE_FILES = 200  # descriptors beside those of connections


def serve(models: Sequence[str], options: ServerOptions, log: Log) -> None:
    """Serve until SIGINT or SIGTERM, then finish pending requests."""
    for model in models:
        find_model(model)  # report a wrong name before opening a socket
    state = AppState(
        limits=options.limits,
        access=Access.from_file(options.api_keys, options.rate_limit),
        offers_lesson=options.explain,
    )
    config = _uvicorn_config(state, options)
    listening = _listen(options.host, options.port)
    host, port = listening.getsockname()[:2]
    if options.log:
        _log_to_stderr()
    _raise_file_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    process = _Process(config, state)
    loading = threading.Thread(target=_load, args=(state, models, options, process, log), daemon=True)
    loading.start()
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    log(f"listening on {address}; loading {', '.join(models)}")
    process.run(sockets=[listening])
    if state.service:
        state.service.close(options.drain_seconds)
    if process.problem:
        raise process.problem


def _uvicorn_config(state: AppState, options: ServerOptions) -> uvicorn.Config:
    proxies = _networks(options.proxies)
    return uvicorn.Config(
        make_app(state),
        http=protocol_of(state, has_proxies=bool(proxies)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # it would log addresses
        server_header=False,
        proxy_headers=bool(proxies),  # by default uvicorn trusts 127.0.0.1, and so every local client
        forwarded_allow_ips=proxies,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=round(options.drain_seconds),
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )


def _raise_file_limit() -> None:
    """Let the process open as many connections as it accepts; many systems allow 1,024 files unless asked."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _networks(proxies: Sequence[str]) -> list[str]:
    """Return the networks of proxies; those of IPv4 also as they appear on an IPv6 socket (--host ::)."""
    try:
        networks = [ip_network(proxy, strict=False) for proxy in proxies]
    except ValueError as error:
        raise UsageError(f"--proxy takes an address or a network, such as 10.0.0.0/8: {error}") from None
    mapped = [f"::ffff:{one.network_address}/{96 + one.prefixlen}" for one in networks if one.version == 4]
    return [*map(str, networks), *mapped]


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))  # the message is a JSON object
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only if the protocol is named; otherwise each waits 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise UserError(f"cannot listen on {host}, port {port}: {error}") from None
    return listening


def _load(state: AppState, models: Sequence[str], options: ServerOptions, process: "_Process", log: Log) -> None:
    """Load the models while /health already answers; an error ends the process.

    The threads of the models start here and have the lower priority of this one, so that the event loop can accept and
    refuse requests while they use all cores.
    """
    lower_thread_priority(MODEL_NICENESS)
    try:
        n_lanes = n_threads() + RESERVED_LANES
        translators = [load(model, engine=options.engine, concurrent_searches=n_lanes) for model in models]
        service = Service(translators, options.limits, state.metrics.batches.observe, options.pivot)
    except Exception as error:
        process.problem = error
        process.should_exit = True
        return
    exempt_from_collection()
    state.service = service
    pairs = ", ".join(f"{source} to {target}" for source, target in service.directions)
    log(f"ready: {pairs}")


class _Process(uvicorn.Server):
    """A uvicorn server whose `/ready` fails as soon as shutdown begins."""

    problem: Exception | None = None

    def __init__(self, config: uvicorn.Config, state: AppState) -> None:
        super().__init__(config)
        self._state = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn's own handler would raise the signal again after shutdown, and the exit status would not be 0.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = self._state.is_draining = True
