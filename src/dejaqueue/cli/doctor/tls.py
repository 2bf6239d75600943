"""What `dejaq doctor` looks at of certificates: that they can be used, until when, and by whom.

Room: cli.
See: access/certificates.py; access/tls.py, which the broker itself loads them with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dejaqueue.errors import BadRequest
from dejaqueue.findings import Finding, hurts

if TYPE_CHECKING:
    from dejaqueue.settings import BrokerSettings


def check_certificates(settings: BrokerSettings, now_ms: int) -> Iterator[Finding]:
    """What there is to say of the files that the settings name, and of having none."""
    from dejaqueue.access.certificates import check_papers
    from dejaqueue.access.tls import load_papers, load_tls
    from dejaqueue.addresses import is_loopback

    server, cluster = settings.server, settings.cluster
    if not server.tls_certificate and not is_loopback(server.host):
        text = f"{server.host} is open to others without TLS: API keys can be read on the way"
        yield hurts("certificates", text, "server.tls_certificate and server.tls_key")
    try:
        load_tls(server)
        load_papers(server, cluster)
    except BadRequest as error:
        mend = f"openssl x509 -noout -text -in {server.tls_certificate or cluster.tls_certificate}"
        yield hurts("certificates", str(error), mend)
        return
    yield from check_papers(settings, now_ms)
