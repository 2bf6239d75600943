"""Settings in words: ranges, masks, and the example file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dejaqueue.configuration import look
from dejaqueue.setting_words import example
from dejaqueue.settings import BrokerSettings, known_settings


def test_the_example_shows_every_setting_and_is_all_defaults() -> None:
    text = example()
    assert all(not values for values in tomllib.loads(text).values())
    for group, name, field in known_settings():
        assert f"#{name} = " in text.partition(f"[{group}]\n")[2]
        assert str(field.description).split(" ")[0] in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_example_with_every_setting_taken_in_is_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text(re.sub(r"^#(\w+ = )", r"\1", example(), flags=re.MULTILINE))
    loaded, problems = look(file, environment=False)
    assert problems == []
    assert loaded is not None
    assert loaded.settings == BrokerSettings()
    assert len(loaded.sources) == len(list(known_settings()))
