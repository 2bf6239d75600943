"""`dejaq serve`: a broker on this machine, until it is told to stop.

Room: cli. Puts settings, broker and servers together; decides nothing else.
Holds: SIGTERM and SIGINT stop gracefully, a second one at once; SIGHUP reads the settings again, or
stops too if the terminal is gone; one line says where it listens when it listens, and not before.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.clustering import ClusterSeat
from dejaqueue.cli.config import read_settings, settings_options
from dejaqueue.cli.connection import json_option
from dejaqueue.cli.memory import bound_memory, split_pools
from dejaqueue.cli.output import print_json
from dejaqueue.cli.parent import Parent
from dejaqueue.cli.systemd import READY, RELOADING, STOPPING, tell_systemd
from dejaqueue.cli.trimming import trimmer
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from dejaqueue.access.gate import Gate
    from dejaqueue.access.oidc import Tokens
    from dejaqueue.access.start_token import StartToken
    from dejaqueue.access.tls import BrokerPapers, ServerTls
    from dejaqueue.access.watching import TlsWatch
    from dejaqueue.broker.broker import Broker
    from dejaqueue.configuration import Loaded
    from dejaqueue.flight.forwarding import Forwarding
    from dejaqueue.http.health import HealthServer
    from dejaqueue.http.server import HttpServer
    from dejaqueue.settings import BrokerSettings

# Python hands the interpreter over after this long at most. The default of 5 ms is what a worker
# would wait for behind a thread that decodes batches; 0.5 ms costs little and keeps lateness low.
SWITCH_INTERVAL_SECONDS = 0.0005
# Objects that are made between two looks of the garbage collector. A small request makes a hundred,
# nearly all of which end by themselves: with Python's 700, a tenth of its time went into looking.
COLLECTED_AFTER = 10_000
STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
TERMINAL = "/dev/tty"

log = logging.getLogger("dejaqueue.serve")


@click.command(
    epilog="Examples: `dejaq serve` · `dejaq serve --data /var/lib/dejaq --host 0.0.0.0` · "
    "`dejaq serve --data memory: --port 0`. Every setting can also be in the --config file or in "
    "the environment, as DEJAQ_SERVER__PORT; this line wins over both.",
)
@settings_options
@json_option("Print where it listens as JSON.")
def serve(*, as_json: bool, **chosen: Any) -> None:
    """Run a broker until SIGTERM or Ctrl-C, then stop gracefully.

    SIGHUP reads the settings again. A port of 0 also frees the other port from its default, unless
    it is given.
    """
    parent = Parent.of_this_process()
    overruling = None if parent is None else parent.settings
    loaded = read_settings(chosen, overruling)
    if loaded.settings.server.processes:
        from dejaqueue.cli.processes import Processes

        Processes(loaded.settings, chosen).run(as_json=as_json)
        return
    bound_memory(loaded.settings.server.memory_bytes_max)
    # Blocked before any thread starts, so that all inherit it and only `sigwait` takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPPING_SIGNALS, signal.SIGHUP))
    split_pools()
    # What loads pyarrow comes after what says how pyarrow has its memory.
    from dejaqueue.schema.warm import warm_up

    warm_up(has_pandas=False)
    if not _run(loaded, lambda: read_settings(chosen, overruling), parent, as_json=as_json):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)  # everything is durable and closed; see FlightServer.stop


def _run(
    loaded: Loaded, read_again: Callable[[], Loaded], parent: Parent | None, *, as_json: bool
) -> bool:
    """Start everything from the inside out, wait for a signal, stop in reverse.

    Args:
        parent: what this process has in common with others; None = it has no parent.

    Returns:
        False if threads of streams that nobody ended still run.
    """
    from dejaqueue.access.gate import Gate
    from dejaqueue.access.tls import load_papers, load_tls
    from dejaqueue.broker.broker import Broker
    from dejaqueue.client.credentials import Tls
    from dejaqueue.errors import BadRequest
    from dejaqueue.flight.forwarding import Forwarding
    from dejaqueue.flight.server import FlightServer
    from dejaqueue.logs import set_up

    settings = loaded.settings
    set_up(settings.log)
    log.info("dejaq %s, process %d, settings from %s", __version__, os.getpid(), loaded.file)
    host = settings.server.host
    tls = load_tls(settings.server)
    papers = load_papers(settings.server, settings.cluster)
    forwarding = Forwarding(Tls(papers.ca or None, papers.certificate or None, papers.key or None))
    watch = _watch(settings, tls, papers)
    _let_files_be_open()
    seat = ClusterSeat(settings, parent)
    if not seat.prepare(STOPPING_SIGNALS):
        return True
    broker = Broker(seat.settings, node=seat.node)
    tokens = _tokens(settings, broker)
    gate = Gate(broker.keys, tokens=tokens, observers_read=settings.server.observers_read)
    ready = False
    try:
        http = _http_server(
            settings, broker, gate, tls, lambda: ready, (forwarding, papers.context), parent
        )
    except OSError as error:
        raise BadRequest(
            "server.http_port", f"a free port of {host} ({error})", settings.server.http_port
        ) from error
    # Alive before it is ready: recovery may take a while, and a probe must not end it.
    http.start()
    with ExitStack() as ending:  # each of them, whatever goes wrong in another one
        for end in (seat.close, http.stop, broker.stop, seat.leave):
            ending.callback(end)
        if not seat.start(broker):
            return True
        _warn(host, gate, tls, tokens)
        if (token := _start_token(settings, gate, parent)) is not None:
            ending.callback(token.remove)
        flight = FlightServer(
            broker, host, settings.server.port, gate=gate, tls=tls, forwarding=forwarding
        )
        flight.start()
        broker.where = f"{flight.url} at {socket.gethostname()}"
        ending.callback(flight.stop)
        ending.callback(seat.leave)
        if not seat.join(broker, flight, http.port, tls=tls is not None):
            return True
        _keep_pauses_short()
        if (trims := trimmer()) is not None:
            trims.start()  # it ends with the process
        papers.on_change += [forwarding.renew, flight.sharded.renew, seat.reload_files]
        watch.start()
        ready = True
        log.info("serving at port %d, HTTP at port %d", flight.port, http.port)
        doq_port = getattr(http, "doq_port", None)
        _say_where(settings, flight.url, http.port, doq_port, as_json=as_json)
        tell_systemd(READY, f"serving {flight.url}")
        _wait_for_the_end(lambda: _look_again(broker, read_again, seat, watch))
        _let_a_second_signal_end_it()
        ready = False
        watch.stop()
        tell_systemd(STOPPING, "stopping")
        log.info("stopping (once more to stop at once; nothing is lost)")
        seat.leave()  # others take over while this one still says where things are
        return flight.stop()


def _start_token(
    settings: BrokerSettings, gate: Gate, parent: Parent | None = None
) -> StartToken | None:
    """Have the first key of a broker that others can reach need a token; None = it needs none."""
    from dejaqueue.access.start_token import StartToken
    from dejaqueue.addresses import is_loopback
    from dejaqueue.journal.interface import store_path

    keys = gate.keys
    if is_loopback(settings.server.host) or keys.required:
        return None
    url = settings.journal.url
    is_here = parent is not None or "://" not in url.removeprefix("segment://")
    token = StartToken(store_path(url) if is_here else None, is_made=parent is not None)
    keys.start_token = token.text
    keys.on_change.append(token.remove)
    log.info("the first API key is made with the start-up token in %s", token.path)
    return token


def _watch(settings: BrokerSettings, tls: ServerTls | None, papers: BrokerPapers) -> TlsWatch:
    """What looks after the TLS files there are."""
    from dejaqueue.access.watching import Reloadable, TlsWatch

    watched: dict[str, Reloadable] = {}
    if tls is not None:
        watched["certificate of the server"] = tls
    if settings.cluster.coordinator or settings.cluster.nodes:
        watched["certificate towards other brokers"] = papers
    return TlsWatch(watched, settings.server.tls_check_ms)


def _tokens(settings: BrokerSettings, broker: Broker) -> Tokens | None:
    """Tokens of the issuer that the settings name; its keys are asked for from now on."""
    if not settings.oidc.issuer:
        return None
    from dejaqueue.connections.extras import load

    load("jwt", "oidc", "oidc:")
    from dejaqueue.access.issuer_keys import IssuerKeys
    from dejaqueue.access.oidc import Tokens

    issuer = IssuerKeys(settings.oidc)
    issuer.start()  # it ends with the process
    return Tokens(settings.oidc, broker.keys, issuer)


def _warn(host: str, gate: Gate, tls: ServerTls | None, tokens: Tokens | None) -> None:
    """Say once what an operator should know before others rely on this broker."""
    from dejaqueue.clock import is_kept

    _warn_if_open(host, gate, tls, tokens)
    if is_kept() is False:
        log.warning(
            "no time synchronisation keeps the clock of this machine, says its kernel: messages "
            "are due by that clock, right or wrong"
        )


def _warn_if_open(host: str, gate: Gate, tls: ServerTls | None, tokens: Tokens | None) -> None:
    """Say plainly what others on the network can do."""
    from dejaqueue.addresses import is_loopback

    if is_loopback(host):
        return
    if not gate.keys.required and tokens is None:
        log.warning(
            "%s is open to others and there is no API key: whoever reaches the ports may read, "
            "send and delete everything (`dejaq key create --help`)",
            host,
        )
    if tls is None:
        log.warning(
            "%s is open to others without TLS: messages and API keys can be read on the way "
            "(server.tls_certificate, server.tls_key)",
            host,
        )


def _http_server(
    settings: BrokerSettings,
    broker: Broker,
    gate: Gate,
    tls: ServerTls | None,
    is_ready: Callable[[], bool],
    onward: tuple[Forwarding, ssl.SSLContext],
    parent: Parent | None = None,
) -> HttpServer | HealthServer:
    """The HTTP API, or health alone where the extra `http` is not installed."""
    host, port = settings.server.host, settings.server.http_port
    try:
        from dejaqueue.http.server import HttpServer
    except ModuleNotFoundError as missing:
        from dejaqueue.access.pages import Pages
        from dejaqueue.broker.watching import health_of
        from dejaqueue.http.health import HealthServer

        hint = 'only health is served over HTTP; the rest: pip install "dejaqueue[http]"'
        log.warning("%s (%s is missing)", hint, missing.name)

        def is_healthy() -> bool:
            return is_ready() and health_of(broker).is_ready

        stats = partial(broker.call, "stats")
        pages = Pages.of(broker.settings)
        return HealthServer(host, port, is_healthy, stats, gate, tls, pages)
    from dejaqueue.flight.gathering import stats_of_all
    from dejaqueue.http.service import Service

    forwarding, context = onward
    service = Service(
        broker,
        gate,
        is_ready,
        broker.is_shared,
        context,
        partial(stats_of_all, broker, forwarding),
        forwarding.tls,
        is_divided=parent is not None,
    )
    return HttpServer(
        service, host, port, tls=tls, shared=None if parent is None else parent.http_socket
    )


def _say_where(
    settings: BrokerSettings,
    url: str,
    http_port: int,
    doq_port: int | None = None,
    *,
    as_json: bool,
) -> None:
    from dejaqueue.setting_secrets import masked

    host, data = settings.server.host, masked("journal.url", settings.journal.url)
    http_url = f"http{'s' if settings.server.tls_certificate else ''}://{host}:{http_port}"
    doq = "" if doq_port is None else f"{host}:{doq_port}"
    if as_json:
        more = {"doq_address": doq} if doq else {}
        print_json({"url": url, "http_url": http_url, "data": data, **more})
    else:
        more_text = f", DOQ's gRPC at {doq}" if doq else ""
        click.echo(f"listening {url} ({http_url}/stats, data in {data}{more_text})")


def _let_files_be_open() -> None:
    """Connections are files: what the system lets this process have, it takes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _keep_pauses_short() -> None:
    """The process is the broker's alone: have Python interrupt it for less.

    What was loaded by now stays for ever; the garbage collector need not walk it again each time.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER)


def _wait_for_the_end(read_again: Callable[[], None]) -> None:
    """Return at a signal to stop."""
    had_terminal = _has_terminal()
    while True:
        number = signal.sigwait((*STOPPING_SIGNALS, signal.SIGHUP))
        if number != signal.SIGHUP or (had_terminal and not _has_terminal()):
            return
        read_again()


def _has_terminal() -> bool:
    """True if this process can be stopped from a terminal."""
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _look_again(
    broker: Broker, read_again: Callable[[], Loaded], seat: ClusterSeat, watch: TlsWatch
) -> None:
    """What SIGHUP asks for."""
    tell_systemd(RELOADING, "reads its settings again")
    _change_settings(broker, read_again, seat)
    watch.look()
    tell_systemd(READY, "serving")


def _change_settings(broker: Broker, read_again: Callable[[], Loaded], seat: ClusterSeat) -> None:
    """Read the settings again and take over what can change live; say what that is."""
    from dejaqueue.errors import BadRequest
    from dejaqueue.logs import set_up
    from dejaqueue.setting_secrets import masked

    try:
        loaded = read_again()
    except BadRequest as error:
        log.error("the settings stay as they are: %s", error)
        return
    changed, refused = broker.change_settings(seat.beside(loaded.settings))
    set_up(broker.settings.log)
    for change in (*changed, *refused):
        before, after = masked(change.name, change.before), masked(change.name, change.after)
        facts = {"setting": change.name}
        source = loaded.source_of(change.name)
        if change in changed:
            log.info("%s: %r instead of %r (%s)", change.name, after, before, source, extra=facts)
        else:
            text = "%s: needs a new start to be %r (%s); it stays %r"
            log.warning(text, change.name, after, source, before, extra=facts)
    if not changed and not refused:
        log.info("settings read again: nothing has changed")


def _let_a_second_signal_end_it() -> None:
    for number in STOPPING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING_SIGNALS)
