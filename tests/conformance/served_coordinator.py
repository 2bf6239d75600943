"""A coordinator on a server of its own, for the classes that prove one backend each."""

from __future__ import annotations

import uuid

from dejaqueue.testing.coordinator_conformance import ServedCoordinatorConformance
from dev.services import Service


class ServiceCoordinatorConformance(ServedCoordinatorConformance):
    """The suite on a service of `dev.services`; each test has facts of its own.

    Attributes:
        service: what the class's fixture starts once, and gives to `use`.
        name: apart from those of other tests, for the URL.
    """

    service: Service
    name: str

    def use(self, service: Service) -> None:
        """The next test runs on this service, under a new name."""
        self.service, self.name = service, uuid.uuid4().hex

    def port(self) -> int:
        return self.service.port

    def stop(self) -> None:
        self.service.kill()

    def start(self) -> None:
        self.service.start()
