"""Every hard limit of DejaQ, with its unit and its reason.

Room: vocabulary; imports nothing. What an operator may change is in `settings.py` instead.
Holds: the relations between limits, asserted when this file is imported.
See: docs/reference/limits.md, generated from this file (the comment above a name is its reason).
"""

from typing import Final

# An id is partition << 47 | sequence in 63 bits, so that it stays positive in an int64.
SEQUENCE_BITS: Final = 47
# 16 bits are left for the partition; 65,536 itself is not used, so that a count fits in uint16.
PARTITIONS_MAX: Final = 65_535
# Shards of a topic: each is a stream of its own to every consumer.
SPREAD_MAX: Final = 64
# At a million messages a second, one partition needs 4.4 years to use up its sequences.
SEQUENCE_MAX: Final = (1 << SEQUENCE_BITS) - 1

# The middle of uint16: as many levels above as below.
PRIORITY_DEFAULT: Final = 32_768
# The least urgent; what fits a uint16.
PRIORITY_MAX: Final = 65_535

# Fits a file name on every file system, with nothing to escape.
TOPIC_NAME_BYTES_MAX: Final = 255
# A key is a name, not a document; it is compared on every keyed call.
KEY_BYTES_MAX: Final = 256
# A group is a tenant or an ordering unit, kept in a dictionary.
GROUP_BYTES_MAX: Final = 256
# A message matches filters by few words.
TAGS_MAX: Final = 16
# A tag is a word.
TAG_BYTES_MAX: Final = 64
# Enough for trace context and a content type; more belongs in the payload.
HEADERS_BYTES_MAX: Final = 4_096
# The default of a topic's max_payload; larger ones make every copy and buffer on the way larger.
PAYLOAD_BYTES_DEFAULT: Final = 1 << 20
# The most that the payload of a message in a batch may be: that must still fit a Flight message.
PAYLOAD_BYTES_MAX: Final = 64 << 20
# The most that a payload may have that is streamed in parts, past messages: what object stores
# take as one object, too. A topic says by its max_payload how much of that it takes.
STREAMED_BYTES_MAX: Final = 5 << 30
# A part of it. Client and broker hold a few at a time, in several copies on their way: with 4 MiB
# they took 200 and 124 MiB for a first payload, with this 66 and 30, and less for the next ones.
PART_BYTES: Final = 1 << 20
# The JSON before the bytes of a call that has some.
CONTENT_HEAD_BYTES_MAX: Final = 16 << 10
# What is sent as a stream and is no larger travels in its message, as payloads do: two requests
# less, and every client can read it.
UNSTREAMED_BYTES_MAX: Final = 256 << 10
# The first instant that a due time may name (3 March 1973), 0 aside. A number below it is a time in
# seconds that was taken for milliseconds: 1_800_000_000 would be a day in January 1970, and the
# message would go out at once instead of years later.
INSTANT_MS_MIN: Final = 100_000_000_000
# The last instant that datetime can show: 9999-12-31T23:59:59.999Z.
INSTANT_MS_MAX: Final = 253_402_300_799_999

# A locator is journal position << 20 | row, so one batch has at most 2^20 rows.
ROW_BITS: Final = 20
BATCH_ROWS_MAX: Final = 1 << ROW_BITS
# Offsets of a batch's payloads are int32 and a batch is written in one append.
BATCH_BYTES_MAX: Final = 128 << 20
# A buffer of a compressed Arrow batch over Flight; a batch to send has 31 of them at most, so that
# what is small on the wire takes less than a GiB before anybody can look at it.
UNPACKED_BYTES_MAX: Final = 31 << 20
# 43 bits of position: 8.8e12 entries in the life of a partition.
POSITION_MAX: Final = (1 << (63 - ROW_BITS)) - 1

# attempts is uint16 and stops counting there.
ATTEMPTS_MAX: Final = 65_535
# A lease shorter than this ends before a reply can travel.
LEASE_MS_MIN: Final = 10
# Seven days; a longer lease hides a dead consumer for too long.
LEASE_MS_MAX: Final = 7 * 24 * 3_600_000
# Leasing further ahead than this would make cancel and move come too late without need.
LEASE_AHEAD_MS_MAX: Final = 1_000
# A minute: what a partition leases in it, thirty millions, is what thirty consumers can ask for.
SPIKE_AHEAD_MS_MAX: Final = 60_000

# A weight of 2^20 beside one of 1 is as good as all; virtual times stay in an int64 for ever.
WEIGHT_MAX: Final = 1 << 20
# Groups that have a weight of their own; they are kept in the topic's settings.
WEIGHTS_MAX: Final = 10_000
# Labels of a topic, names and texts: they are kept in its settings, like weights.
LABELS_BYTES_MAX: Final = 64 << 10
# Named subscriptions of a topic: each has a row of its own for each message.
SUBSCRIPTIONS_MAX: Final = 64
# What an ephemeral subscription outlives its last consumer by: at least what a reconnect takes, and
# at most thirty days: what stays longer is deleted by somebody.
EPHEMERAL_MS_MIN: Final = 1_000
EPHEMERAL_MS_MAX: Final = 30 * 24 * 3_600_000
# Thirty days: a message that waits longer between attempts is better sent anew.
BACKOFF_MS_MAX: Final = 30 * 24 * 3_600_000

# Why a message was refused: a line for a reader, not a traceback.
REASON_BYTES_MAX: Final = 1_024

# Slabs of the message table: 65,536 rows of each column are whole memory pages.
SLAB_BITS: Final = 16
SLAB_ROWS: Final = 1 << SLAB_BITS

# Batches of one producer whose answers a partition remembers (rule 10).
PRODUCER_WINDOW_BATCHES: Final = 128
# Producers a partition remembers at once; the longest silent one is forgotten first.
PRODUCERS_MAX: Final = 10_000
# A producer silent for this long is forgotten: its retries have long given up.
PRODUCER_IDLE_MS_MAX: Final = 3_600_000
# The name a producer gives itself.
PRODUCER_NAME_BYTES_MAX: Final = 64

# Consumers of one topic on one broker: the dispatcher walks them in turn.
CONSUMERS_PER_TOPIC_MAX: Final = 10_000
# Messages a consumer may ask for ahead.
CREDIT_MAX: Final = 1_000_000
# Leases that one frame extends: a consumer of small deliveries has so many.
LEASES_PER_EXTENSION_MAX: Final = 10_000
# Messages in one dispatch: one lease, one batch on the wire.
DISPATCH_ROWS_MAX: Final = 8_192
# Payload bytes in one dispatch: gRPC messages above this help nobody.
DISPATCH_BYTES_MAX: Final = 16 << 20
# A transaction that nobody decides for so long is aborted; what it acked is held up until then.
TRANSACTION_MS_DEFAULT: Final = 60_000
# Fifteen minutes: staged acks hold messages up, and a client that is gone leaves them so.
TRANSACTION_MS_MAX: Final = 900_000
# A home answers a repeated commit for so long after the transaction's time is over.
TRANSACTION_MEMORY_MS: Final = 600_000
# Decisions that one home remembers when all participants know them; the oldest go first.
TRANSACTION_DECISIONS_MAX: Final = 10_000
# Undecided transactions in one partition: they are kept in memory.
TRANSACTIONS_OPEN_MAX: Final = 10_000
# Partitions that one transaction may touch: each is told the decision.
TRANSACTION_PARTICIPANTS_MAX: Final = 4_096

# A transaction in branches only stages messages, which holds nobody up: a job may take a week.
BRANCHED_MS_MAX: Final = 7 * 24 * 3_600_000
# Branches that one commit names: a job has as many tasks.
TRANSACTION_BRANCHES_MAX: Final = 100_000
# What a write is called when somebody asks what became of it: the name of its transaction fits.
LABEL_BYTES_MAX: Final = 512
# Request line and headers over HTTP: a key, a trace and some more are a kilobyte.
HTTP_HEAD_BYTES_MAX: Final = 32_768
# Headers of one request; each costs some objects before anybody asks for it.
HTTP_HEADERS_MAX: Final = 128
# A body over HTTP comes at least so fast, in bytes: a bad line of a telephone does.
HTTP_BODY_BYTES_PER_SECOND_MIN: Final = 4_096
# Requests that one connection sends ahead of their answers: more gain nothing.
HTTP_PIPELINED_MAX: Final = 64
# Frames of one lane that are not answered yet; after so many it is read on when half are.
LANE_WAITING_MAX: Final = 1_024
# One batch, as base64 in JSON.
BODY_BYTES_MAX: Final = 192 << 20
# A minute: what lies between a client and a broker often ends a silent connection after that.
LEASE_WAIT_MS_MAX: Final = 60_000
# Messages in one answer to a lease over HTTP: one dispatch.
LEASE_ROWS_MAX: Final = DISPATCH_ROWS_MAX

# Rows of one claim: leasing them keeps the partition's worker for some 30 milliseconds.
CLAIM_ROWS_MAX: Final = 1_000_000

# Topics of one broker.
TOPICS_MAX: Final = 100_000
# Rows answered by one peek.
PEEK_ROWS_MAX: Final = 10_000
# Rows of the message table looked at in one stretch for a peek, a count or a change by filter:
# about a millisecond of work, two with tags.
BROWSE_ROWS_MAX: Final = 1 << 18
# Messages moved or cancelled by one command of a change by filter: about a millisecond of work.
CHANGE_ROWS_MAX: Final = 2_048
# Messages of one partition whose due times a move into a window looks at first: 8 bytes each.
WINDOW_ROWS_MAX: Final = 10_000_000
# Buckets of one histogram.
BUCKETS_MAX: Final = 10_000
# Groups or tags in one answer to `counts`.
COUNTS_ROWS_MAX: Final = 10_000

# A cron entry fires so long before its time, so that its message is durable and leased by then.
CRON_AHEAD_MS: Final = 500
# A firing that is later than this was missed: longer than a broker ever needs for its work.
CRON_GRACE_MS: Final = 5_000
# Cron expressions know seconds and nothing smaller; whoever needs more wants a timeline.
CRON_EVERY_MS_MIN: Final = 1_000
# One day: what comes later than that is another schedule.
CRON_JITTER_MS_MAX: Final = 86_400_000
# The longest lists of minutes and hours fit.
CRON_EXPRESSION_BYTES_MAX: Final = 1_024
# Entries live in memory and in every snapshot; what is larger belongs elsewhere.
CRON_PAYLOAD_BYTES_MAX: Final = 64 << 10
# Entries looked at in one step of a partition: some tens of milliseconds.
CRON_STEP_ENTRIES_MAX: Final = 2_048
# Entries in one call.
CRON_CALL_ENTRIES_MAX: Final = 10_000
# Firings in one preview.
CRON_PREVIEW_MAX: Final = 1_000

# Streams of producers and consumers over Flight that are open at once: each has a thread of gRPC's.
FLIGHT_STREAMS_MAX: Final = 16_384
# Of how many streams a principal has its share: all that it has may end at one moment, and each end
# takes some 0.3 ms of Python. A tenth of 4,096 delays others by about 0.1 s at most; a tenth of all
# that may be open held them up for seconds.
FLIGHT_STREAMS_EXPECTED: Final = 4_096
# Streams that a broker opens and closes in a second when it does nothing else: about a millisecond
# of Python for each.
FLIGHT_OPENINGS_PER_S: Final = 1_000
# Bytes that a broker is expected to take in within a second: about twice what one principal's
# stream of large batches reached on two cores. A tenth leaves the disk and the interpreter to
# others; twice the whole of a plain disk would not.
INGRESS_BYTES_PER_S: Final = 256 << 20
# Servers whose certificates were replaced and whose streams still run: each keeps some threads.
FLIGHT_GENERATIONS_MAX: Final = 8
# The body of an action or a ticket over Flight: the longest list of ids, names or cron entries.
ACTION_BYTES_MAX: Final = 64 << 20
# API keys of one broker: they are kept in memory, and stored anew with every change.
API_KEYS_MAX: Final = 10_000
# A shorter secret of a cluster can be guessed; `openssl rand -hex 32` writes 64 characters.
CLUSTER_SECRET_LENGTH_MIN: Final = 16
# Ids of revoked API keys that are remembered, for ever if the key had no end: 300 kB.
API_KEYS_REVOKED_MAX: Final = 10_000
# Roles and patterns of one key: each is tried on every call.
API_KEY_GRANTS_MAX: Final = 64
# Bearer tokens of an issuer: gRPC takes 8 KiB of headers.
OIDC_TOKEN_BYTES_MAX: Final = 7_168
# Tokens that were verified and are remembered until they end; more are verified again.
OIDC_TOKENS_MAX: Final = 10_000
# Roles of one token that are looked at.
OIDC_ROLES_MAX: Final = 256
# An issuer's keys: how many, how long their document, how often it is asked (regularly; in between,
# when a token names a key that is not known).
OIDC_KEYS_MAX: Final = 100
OIDC_KEYS_BYTES_MAX: Final = 1 << 20
OIDC_REFRESH_MS: Final = 600_000
OIDC_REFETCH_MS: Final = 10_000
# An API key has 80; what is longer is no key, and only so much of it is looked at.
API_KEY_BYTES_MAX: Final = 256
# Buckets of the scale by which clients report lateness: 16 for each doubling of a microsecond,
# each 4.4 % wide, up to a year.
LATENESS_BUCKETS: Final = 720

assert SEQUENCE_BITS + 16 == 63
assert PARTITIONS_MAX < 1 << 16
assert DISPATCH_ROWS_MAX <= BATCH_ROWS_MAX
assert PAYLOAD_BYTES_MAX <= BATCH_BYTES_MAX < 1 << 31
assert LEASE_MS_MIN < LEASE_MS_MAX
