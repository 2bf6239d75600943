"""DejaQ: a message queue that delivers at a time, to the millisecond, in columns."""

from dejaqueue.version import __version__

__all__ = ["__version__"]
