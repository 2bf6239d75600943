"""Erasing messages, and what is told of it: what both clients share.

Room: client. Calls block, the faces wait for them.
Holds: the topic's dead-letter topics are asked as well; an erasure that broke off is begun again by
the same call.
See: _aio/browse.py for the call; broker/calls/erasure.py; docs/guides/erasure.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dejaqueue.client.browsing import Caller, check_where
from dejaqueue.client.sending.inputs import int64s_of, texts_of
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.topic_names import check_topic_name


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erasure did.

    Attributes:
        found: rows that were stored, copies and messages that were done before counted.
        ended: messages that lived until then.
        held: messages that are left, as they are in a transaction that is not decided yet, or on
            their way to a dead-letter topic: erase again.
        segments: of the journal, that were written again or deleted.
        bytes: of those, and of files of history that were written again.
        payloads: that were deleted from the payload store.
        changes: rows of history that are gone.
        took_ms: how long the brokers took, waiting included.
        backups: which still have what was there when they were taken, each with `id`, `url`,
            `cut_ms` (as of when it is) and, where the broker deletes it by itself, `until_ms`.
        unread: why backups could not be listed.
        silent: other brokers of the cluster that did not answer: they may have history of it, or a
            copy of a journal. Erase again when they are back.
        left: what was not found, and may be there yet, in words.
    """

    found: int = 0
    ended: int = 0
    held: int = 0
    segments: int = 0
    bytes: int = 0
    payloads: int = 0
    changes: int = 0
    took_ms: int = 0
    backups: tuple[dict[str, Any], ...] = ()
    unread: tuple[str, ...] = field(default=())
    silent: tuple[str, ...] = field(default=())
    left: tuple[str, ...] = field(default=())

    def joined(self, answer: dict[str, Any]) -> ErasureReport:
        """With what another topic's last answer says."""
        sums = {name: getattr(self, name) + int(answer[name]) for name in _SUMS}
        backups = (*self.backups, *(b for b in answer["backups"] if b not in self.backups))
        unread = (*self.unread, *(text for text in answer["unread"] if text not in self.unread))
        silent = tuple(sorted({*self.silent, *answer.get("silent", ())}))
        left = (*self.left, *answer.get("left", ()))
        return ErasureReport(**sums, backups=backups, unread=unread, silent=silent, left=left)


_SUMS = ("found", "ended", "held", "segments", "bytes", "payloads", "changes", "took_ms")


def check_erase(
    topic: str, keys: Sequence[str] | None, ids: Sequence[int] | None, where: dict[str, Any]
) -> dict[str, Any]:
    """The body of an erasure. Raises BadRequest."""
    fields = check_where(check_topic_name(topic), where)
    if "state" in fields:
        raise BadRequest("state", "not said: what is done is erased, too", where["state"])
    selects = len(fields) > 1
    if keys is not None:
        fields["keys"] = texts_of(keys, "keys").to_pylist()
    if ids is not None:
        fields["ids"] = int64s_of(ids, "ids").tolist()
    if [keys is not None, ids is not None, selects].count(True) != 1:
        raise BadRequest("keys", "keys, ids, or a filter, one of them", keys)
    return fields


def erase(caller: Caller, body: dict[str, Any], letters: bool) -> ErasureReport:
    """Erase until no file has any of it.

    Args:
        letters: from the dead-letter topics, too: the letters of this topic.
    """
    answer = _finished(caller, body)
    erased = ErasureReport().joined(answer)
    for topic in answer["letters"] if letters else ():
        try:
            erased = erased.joined(
                _finished(caller, body | {"topic": topic, "origin": body["topic"]})
            )
        except TopicUnknown:
            continue  # nothing died yet
    return erased


def _finished(caller: Caller, body: dict[str, Any]) -> dict[str, Any]:
    """The last answer of an erasure in one topic."""
    after: Any = None
    while True:
        answer = caller.action("erase", {**body, "after": after}).result()
        after = answer["next"]
        if after is None:
            return answer
