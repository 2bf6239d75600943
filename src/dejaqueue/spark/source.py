"""The data source: which reader and writer Spark gets for which options.

Room: spark. Made on the driver, from the user's options.
See: reader.py, writer.py.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from dejaqueue.errors import BadRequest
from dejaqueue.spark.columns import HISTORY, READ, check_read, schema_of
from dejaqueue.spark.history import FilteringHistoryReader, HistoryReader
from dejaqueue.spark.options import Options
from dejaqueue.spark.reader import FilteringReader, Reader
from dejaqueue.spark.stream_reader import StreamReader
from dejaqueue.spark.stream_writer import StreamWriter
from dejaqueue.spark.writer import Writer


class DejaqSource(DataSource):
    """Format `dejaq`."""

    @classmethod
    def name(cls) -> str:
        """What users call it."""
        return "dejaq"

    def schema(self) -> str:
        """All columns, or those of the option; a user's own schema may have fewer."""
        options = Options.of(self.options)
        return schema_of(options.columns, HISTORY if options.view == "history" else READ)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch query."""
        options = Options.of(self.options)
        if options.view == "history":
            check_read(schema, HISTORY)
            return HistoryReader(options, schema)
        check_read(schema)
        return Reader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For a batch job."""
        if overwrite:
            raise BadRequest("mode", "append: a topic is not overwritten", "overwrite")
        return Writer(Options.of(self.options).check_written(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For a streaming query."""
        check_read(schema)
        return StreamReader(Options.of(self.options).check_claimed(), schema)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """For a streaming query."""
        if overwrite:
            raise BadRequest("output mode", "append", "complete")
        return StreamWriter(Options.of(self.options).check_written(), schema)


class DejaqSourceWithFilters(DejaqSource):
    """As DejaqSource, for sessions that let sources apply filters."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch query."""
        options = Options.of(self.options)
        if options.view == "history":
            check_read(schema, HISTORY)
            return FilteringHistoryReader(options, schema)
        check_read(schema)
        return FilteringReader(options, schema)
