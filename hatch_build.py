"""What a package index shows: the README, and where the project lives. There is no repository
beside either, so a link into one is made one to its public home, or plain text where there is none.

Room: packaging. Called by hatchling for each wheel and sdist.
Holds: the one place that names the home is `home` in pyproject.toml; no link of the description is
relative; without a home, what is left of such a link is its text, and pictures are left out.
See: pyproject.toml, CONTRIBUTING.md, tests/cli/test_wheel.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\[\]]*)\]\((?P<target>[^)\s]+)\)")
_PICTURE = re.compile(r'<picture>.*?<img alt="([^"]*)" src="([^"]*)".*?</picture>', re.DOTALL)
_COMMENT = re.compile(r"<!-- .*? -->\n*")
_HERE = ("https:", "http:", "mailto:", "#")
_HOME = re.compile(r"https://[^\s/]+(/[^\s/]+)+")
# As GitHub, GitLab and their like have it.
_FILE, _RAW = "{home}/blob/main/{path}", "{home}/raw/main/{path}"


def described(readme: str, home: str = "") -> str:
    """The README without what it needs a checkout for.

    Args:
        home: where the repository can be seen; "" = nowhere.
    """

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        if target.startswith(_HERE):
            return found[0]
        if not home:
            return "" if found["picture"] else found["text"]
        place = (_RAW if found["picture"] else _FILE).format(home=home, path=target)
        return f"{found['picture']}[{found['text']}]({place})"

    text = _COMMENT.sub("", _PICTURE.sub(r"![\1](\2)", readme))
    pieces = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    shown = [piece if piece.startswith("```") else _LINK.sub(link, piece) for piece in pieces]
    return re.sub(r"\n{3,}", "\n\n", "".join(shown))


def urls(home: str) -> dict[str, str]:
    """Links that an index shows beside the description."""
    if not home:
        return {}
    return {
        "Source": home,
        "Documentation": _FILE.format(home=home, path="docs/index.md"),
        "Changelog": _FILE.format(home=home, path="CHANGELOG.md"),
        "Issues": f"{home}/issues",
    }


class CustomMetadataHook(MetadataHookInterface):
    """Gives the metadata its long description and its links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        home = str(self.config.get("home", ""))
        if home and not _HOME.fullmatch(home):
            raise ValueError(
                f"home: https://HOST/OWNER/NAME without a slash at its end, got: {home}"
            )
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(readme, home)}
        metadata["urls"] = urls(home)
