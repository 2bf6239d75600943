"""What users may test with: virtual clock, reference model, simulation, conformance suites.

    from dejaqueue.testing import VirtualClock

Room: testing. Shipped, but imported by nothing else of the project.
"""

from dejaqueue.testing.virtual_clock import VirtualClock

__all__ = ["VirtualClock"]
