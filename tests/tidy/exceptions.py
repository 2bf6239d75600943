"""What the house rules let pass, and why. A list without reasons may only shrink."""

from __future__ import annotations

# File of more than 600 lines (800 of tests), and a sentence that says why it is one noun.
LONG_FILES: dict[str, str] = {
    "src/dejaqueue/http/shapes.py": "The parts of the OpenAPI document, read by their names.",
    "src/dejaqueue/testing/reference_model.py": "The model: each command, told obviously.",
    "src/dejaqueue/testing/shared_journal_conformance.py": (
        "The suite of journals that brokers share: a backend inherits it as one class."
    ),
    "src/dejaqueue/broker/broker.py": (
        "The broker: its life, its topics, its streams, a few lines for each call of them."
    ),
}

_FIELDS_OF_A_MESSAGE = "The fields of a message, by the names that users give them."
_FIELDS_OF_A_CHANGE = "What names messages and what changes of them, each by its name."
_CHOICES_OF_A_CONSUMER = "What a consumer may choose, each with a default and by its name."
_OPTIONS_OF_A_COMMAND = "The options of a command; the library that reads them passes each by name."
_FIELDS_OF_A_QUERY = "The fields of a query; the framework reads each from its own parameter."

# File::function with more than 8 parameters, and a sentence that says why they are no record.
MANY_PARAMETERS: dict[str, str] = {
    "src/dejaqueue/cli/changes.py::move": _OPTIONS_OF_A_COMMAND,
    "src/dejaqueue/cli/demo/command.py::demo": _OPTIONS_OF_A_COMMAND,
    "src/dejaqueue/cli/messages.py::consume": _OPTIONS_OF_A_COMMAND,
    "src/dejaqueue/cli/restore.py::restore": _OPTIONS_OF_A_COMMAND,
    "src/dejaqueue/cli/send.py::send": _OPTIONS_OF_A_COMMAND,
    "src/dejaqueue/cli/worker.py::worker": _OPTIONS_OF_A_COMMAND,
    "src/dejaqueue/client/_aio/changes.py::AsyncChanges.move": _FIELDS_OF_A_CHANGE,
    "src/dejaqueue/client/_sync/changes.py::Changes.move": _FIELDS_OF_A_CHANGE,
    "src/dejaqueue/client/_aio/client.py::AsyncClient.consume": _CHOICES_OF_A_CONSUMER,
    "src/dejaqueue/client/_aio/client.py::AsyncClient.consume_batches": _CHOICES_OF_A_CONSUMER,
    "src/dejaqueue/client/_aio/client.py::AsyncClient.send": _FIELDS_OF_A_MESSAGE,
    "src/dejaqueue/client/_aio/producer.py::AsyncProducer.send": _FIELDS_OF_A_MESSAGE,
    "src/dejaqueue/client/_sync/client.py::Client.consume": _CHOICES_OF_A_CONSUMER,
    "src/dejaqueue/client/_sync/client.py::Client.consume_batches": _CHOICES_OF_A_CONSUMER,
    "src/dejaqueue/client/_sync/client.py::Client.send": _FIELDS_OF_A_MESSAGE,
    "src/dejaqueue/client/_sync/producer.py::Producer.send": _FIELDS_OF_A_MESSAGE,
    "src/dejaqueue/client/sending/sent.py::row_of": _FIELDS_OF_A_MESSAGE,
    "src/dejaqueue/http/routes/browsing.py::peek": _FIELDS_OF_A_QUERY,
    "src/dejaqueue/cluster/jetstream.py::JetStreamServer.__init__": (
        "What a server of a cluster is started with; all but three by name, with defaults."
    ),
    "src/dejaqueue/journal/records/journal.py::RecordJournal.__init__": (
        "Half of them are bounds that its store takes from the settings; tests pass other ones."
    ),
    "src/dejaqueue/journal/segments/log.py::ShardLog.__init__": (
        "What a store makes it with: place, bounds, and its two questions; all but two by name."
    ),
}

# Paths whose functions may take a whole Partition, and until when.
TAKES_A_PARTITION: dict[str, str] = {
    "src/dejaqueue/broker/topic/": "the partitions of a topic are kept and closed there",
}

# File::function: the lines it has, docstring not counted.
LONG_FUNCTIONS: dict[str, int] = {}

# Rooms whose modules may import each other in a circle, and why for now.
CIRCLES: dict[str, str] = {}

# Modules without behaviour of their own (contracts, lists of names), and those whose behaviour is
# proved elsewhere: where, is the reason.
WITHOUT_UNIT_TEST: dict[str, str] = {
    "src/dejaqueue/broker/calls/port.py": "a contract",
    "src/dejaqueue/broker/topic/peers.py": "a contract",
    "src/dejaqueue/broker/topic/served_view.py": "a contract",
    "src/dejaqueue/pipelines/archiving/finished.py": "tests/spark/test_history.py",
    "src/dejaqueue/pipelines/auditing/faults.py": "tests/spark/test_history.py",
    "src/dejaqueue/pipelines/auditing/figures.py": "tests/spark/test_history.py",
    "src/dejaqueue/broker/streams.py": "names",
    "src/dejaqueue/client/transport.py": "a contract",
    "src/dejaqueue/journal/interface.py": "a contract",
    "src/dejaqueue/journal/records/interface.py": "a contract",
    "src/dejaqueue/broker/topic/cluster_port.py": "a contract",
    "src/dejaqueue/coordinator/interface.py": "a contract",
    "src/dejaqueue/outbox/django/apps.py": "names",
    "src/dejaqueue/outbox/django/migrations/0001_tables.py": (
        "tests/unit/outbox/django/test_models.py"
    ),
}

# Modules that are a list of names, not a room.
WITHOUT_PLATE: set[str] = {
    "src/dejaqueue/__init__.py",
    "src/dejaqueue/version.py",
}

# Nouns of modules and classes that any programmer knows; they mean here what they mean elsewhere.
ORDINARY_NOUNS: set[str] = set(
    """
    address administration app apply array bar bench block body bound bucket cache candidate
    capacity certificate chart check child choice clock close cluster column comparison
    concurrency config
    configuration conflict connection content context copy count credential cursor directory disk
    driver encode end error executor extra failure field figure file flag flow folder format future
    gateway get hash head health histogram hour input instant interface life limit line list
    listener load local lock loop machine main management measure memory meta metric migration mode
    model monitor name network number object op option outcome output parameter phase piece ping
    placeholder plain plan pong pool problem process progress protocol proxy queue rate reader
    readiness receiver recovery redirect registry repair report restart result runtime sample
    schema series server service set shape shard simulation slot socket source space span system
    table tail target template test text thread tile tracing type upstream url variant verdict
    version view wait watch wire word world write zone
    """.split()  # noqa: SIM905 - a page of quotes would say no more
)

# Names of other systems and formats.
FOREIGN_NOUNS: set[str] = set(
    """
    aio cassandra celery cli dejaqueue django doq etcd flight http jetstream kafka mysql nats oidc
    openapi postgresql redis spark sql sqlalchemy sqlite sync tls
    """.split()  # noqa: SIM905 - a page of quotes would say no more
)

# What modules and classes were called before their nouns were looked up. May only shrink: a word
# that is a noun of ours goes to the glossary, a participle gives way to a noun.
STRANGE_NOUNS: set[str] = set(
    """
    answered awaited begun bounded carried cast changed collecting configure consumption counted
    deaths decided decoded deleted deleting delivered described died direct disciplined done
    drawing embedded encoded encrypted expected finished gathered gone handed held kept known
    lack landed leased listed loaded made many merged moved named once onward opened outbound
    planned promise purged pushed quiet reachable reading ready recorded recovered redriven
    refused reloadable remember repeats returned sealed sent serve settled sharded
    shown sick side staged stored taken told transacting translated undecided undecodable
    unsynced untraced wanted warm where whole written
    """.split()  # noqa: SIM905 - a page of quotes would say no more
)

# File::name that is a banned word elsewhere, and why it is right here.
NAMES: dict[str, str] = {
    "src/dejaqueue/cli/demo/command.py::data": "the option --data",
    "src/dejaqueue/cli/demo/run.py::data": "the option --data",
    "src/dejaqueue/cli/serve.py::data": "the option --data",
    "src/dejaqueue/celery/channel.py::queue": "kombu's word, and the name of its arguments",
    "src/dejaqueue/celery/names.py::queue": "kombu's word: what is to become a topic",
    "src/dejaqueue/celery/routes.py::queue": "kombu's word: what is bound to an exchange",
    "src/dejaqueue/schema/keys.py::data": "Arrow's word for the bytes of a text column",
}
