"""`dejaq serve`: a broker on this machine, until it is told to stop.

Room: cli. Puts settings, broker and servers together; decides nothing else.
Holds: SIGTERM and SIGINT stop gracefully, a second one at once; one line says where it listens when
it listens, and not before.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dejaqueue.cli.connection import json_option
from dejaqueue.cli.output import print_json

if TYPE_CHECKING:
    from dejaqueue.access.gate import Gate
    from dejaqueue.access.tls import ServerTls
    from dejaqueue.broker.broker import Broker
    from dejaqueue.http.health import HealthServer
    from dejaqueue.http.server import HttpServer
    from dejaqueue.settings import BrokerSettings

# Python hands the interpreter over after this long at most. The default of 5 ms is what a worker
# would wait for behind a thread that decodes batches; 0.5 ms costs little and keeps lateness low.
SWITCH_INTERVAL_SECONDS = 0.0005
STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@click.command(
    epilog="Examples: `dejaq serve` · `dejaq serve --data /var/lib/dejaq --host 0.0.0.0` · "
    "`dejaq serve --data memory: --port 0`. Every setting can also be in the --config file or in "
    "the environment, as DEJAQ_SERVER__PORT; this line wins over both.",
)
@click.option(
    "--data", metavar="DIR", help="Where messages are kept, or `memory:`.  [default: dejaq-data]"
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port; 0 = any free one.  [default: 7464]")
@click.option(
    "--http-port",
    type=int,
    help="Port of /livez, /readyz and /stats; 0 = any free one.  [default: 7465]",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="DEJAQ_CONFIG",
    show_envvar=True,
    help="A TOML file with settings.",
)
@json_option("Print where it listens as JSON.")
def serve(
    *,
    data: str | None,
    host: str | None,
    port: int | None,
    http_port: int | None,
    file: Path | None,
    as_json: bool,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C, then stop gracefully.

    A port of 0 also frees the other port from its default, unless it is given.
    """
    from dejaqueue.settings import load

    if port == 0 and http_port is None:
        http_port = 0
    settings = load(
        file,
        {
            "journal": {"url": data},
            "server": {"host": host, "port": port, "http_port": http_port},
        },
    )
    # gRPC reports a port in use in words of its own before we can say it in ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Blocked before any thread starts, so that all inherit it and only `sigwait` takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING_SIGNALS)
    _run(settings, as_json=as_json)


def _run(settings: BrokerSettings, *, as_json: bool) -> None:
    """Start everything from the inside out, wait for a signal, stop in reverse."""
    from dejaqueue.access.gate import Gate
    from dejaqueue.access.tls import load_tls
    from dejaqueue.broker.broker import Broker
    from dejaqueue.errors import BadRequest
    from dejaqueue.flight.server import FlightServer

    host = settings.server.host
    tls = load_tls(settings.server)
    _let_files_be_open()
    broker = Broker(settings)
    gate = Gate(broker.keys)
    ready = False
    try:
        http = _http_server(settings, broker, gate, tls, lambda: ready)
    except OSError as error:
        raise BadRequest(
            "server.http_port", f"a free port of {host} ({error})", settings.server.http_port
        ) from error
    # Alive before it is ready: recovery may take a while, and a probe must not end it.
    http.start()
    try:
        broker.start()
        _warn_if_open(host, gate, tls)
        flight = FlightServer(broker, host, settings.server.port, gate=gate, tls=tls)
        flight.start()
        _keep_pauses_short()
        ready = True
        _say_where(settings, flight.url, http.port, as_json=as_json)
        signal.sigwait(STOPPING_SIGNALS)
        _let_a_second_signal_end_it()
        ready = False
        click.echo("stopping (once more to stop at once; nothing is lost)", err=True)
        flight.stop()
    finally:
        broker.stop()
        http.stop()


def _warn_if_open(host: str, gate: Gate, tls: ServerTls | None) -> None:
    """Say plainly what others on the network can do."""
    from dejaqueue.access.administration import is_near

    if host == "localhost" or is_near(host):
        return
    if not gate.keys.required:
        click.echo(
            f"warning: {host} is open to others and there is no API key: whoever reaches the ports "
            "may read, send and delete everything (`dejaq key create --help`)",
            err=True,
        )
    if tls is None:
        click.echo(
            f"warning: {host} is open to others without TLS: messages and API keys can be read on "
            "the way (server.tls_certificate, server.tls_key)",
            err=True,
        )


def _http_server(
    settings: BrokerSettings,
    broker: Broker,
    gate: Gate,
    tls: ServerTls | None,
    is_ready: Callable[[], bool],
) -> HttpServer | HealthServer:
    """The HTTP API, or health alone where the extra `http` is not installed."""
    host, port = settings.server.host, settings.server.http_port
    try:
        from dejaqueue.http.server import HttpServer
    except ModuleNotFoundError as missing:
        from dejaqueue.http.health import HealthServer

        hint = 'only health is served over HTTP; the rest: pip install "dejaqueue[http]"'
        click.echo(f"{hint} ({missing.name} is missing)", err=True)
        return HealthServer(host, port, is_ready, broker.stats, gate, tls)
    from dejaqueue.http.service import Service

    return HttpServer(Service(broker, gate, is_ready), host, port, tls=tls)


def _say_where(settings: BrokerSettings, url: str, http_port: int, *, as_json: bool) -> None:
    host, data = settings.server.host, settings.journal.url
    http_url = f"http{'s' if settings.server.tls_certificate else ''}://{host}:{http_port}"
    if as_json:
        print_json({"url": url, "http_url": http_url, "data": data})
    else:
        click.echo(f"listening {url} ({http_url}/stats, data in {data})")


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


def _let_a_second_signal_end_it() -> None:
    for number in STOPPING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING_SIGNALS)
