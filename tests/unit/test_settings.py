"""Settings: what each says of itself, relations between them, and what changes in a running broker.

Covered: descriptions, units, `adopt`. Files, environment and words: test_configuration.py. What
each setting does is tested where it is used.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dejaqueue import settings
from dejaqueue.settings import (
    BrokerSettings,
    ClockSettings,
    DispatchSettings,
    JournalSettings,
    ServerSettings,
)


def test_building_settings_in_code_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAQ_SERVER__PORT", "3")
    assert BrokerSettings().server.port == 7464
    assert BrokerSettings(journal=JournalSettings(url="memory:")).journal.url == "memory:"


def test_two_free_ports_may_be_asked_for() -> None:
    assert ServerSettings(port=0, http_port=0).http_port == 0


def test_true_is_no_number() -> None:
    with pytest.raises(ValidationError, match="true and false are no numbers"):
        DispatchSettings(workers=True)


def test_every_setting_says_what_it_is_and_whether_it_changes_live() -> None:
    for group, name, field in settings.known_settings():
        text = field.description or ""
        assert text.endswith((settings.LIVE_WORDS, settings.FIXED_WORDS)), f"{group}.{name}"
        number = isinstance(field.default, int) and not isinstance(field.default, bool)
        units = (
            "_bytes",
            "_ms",
            "_us",
            "_entries",
            "_per_s",
            "_rows_max",
            "_max",
            "port",
            "workers",
            "slots",
            "percent",
        )
        assert not number or name.endswith(units), f"{group}.{name} names no unit"


def test_adopt_changes_what_can_change_live_and_names_the_rest() -> None:
    mine = BrokerSettings().model_copy(deep=True)
    held = mine.dispatch
    changed, refused = mine.adopt(
        BrokerSettings(
            clock=ClockSettings(offset_us_max=7),
            dispatch=DispatchSettings(group_rows_max=9, workers=3),
        )
    )
    assert changed == [("dispatch.group_rows_max", 65_536, 9), ("clock.offset_us_max", 50_000, 7)]
    assert refused == [("dispatch.workers", 2, 3)]
    assert (held.group_rows_max, held.workers) == (9, 2)
    assert BrokerSettings().dispatch.group_rows_max == 65_536
    assert mine.adopt(mine) == ([], [])


def test_built_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        BrokerSettings().server.port = 1
