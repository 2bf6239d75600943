"""Where Spark finds the format `dejaq` by itself: it looks into packages whose names begin so.

Room: spark.
Holds: importing it never fails, because then Spark would find no data source at all; it pushes no
filters, because Spark fails queries of sources that do where its setting for that is off.
See: dejaqueue/spark/__init__.py, `register` for the source that pushes filters.
"""

from __future__ import annotations

try:
    from dejaqueue.spark.source import DejaqSource as DefaultSource
except ImportError:  # a Spark that is too old: `register` says so to who asks for the format
    __all__ = []
else:
    __all__ = ["DefaultSource"]
