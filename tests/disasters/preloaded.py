"""What every command of a disaster needs, loaded once, before it is forked (processes.py)."""

import obstore.exceptions
import obstore.store

import dejaqueue.cli.backup
import dejaqueue.cli.main
import dejaqueue.cli.processes
import dejaqueue.cli.restore
import dejaqueue.cli.serve
import dejaqueue.flight.server
import dejaqueue.http.server
import dejaqueue.http.service
import dejaqueue.local
import dejaqueue.broker.backup.restoring
import dejaqueue.journal.records.bucket.store
import dejaqueue.journal.records.sql
import dejaqueue.journal.segments.store
