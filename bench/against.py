"""This tree against another commit, in turns, in one run: `python -m bench --against COMMIT`.

Room: bench. Runs itself as a child for each turn; the harness is this tree's in both.
Holds: each round measures both trees, one right after the other; who begins changes from round to
round; a ratio is made of the two turns of one round, so that a slow minute of the machine is in
both of its sides.

Changes of a few percent hide in the noise of two separate runs: 15 % were once lost in steps of
which none was seen. Processor time is steadier than the clock on a machine with other work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.systems.servers import ROOT, SOURCE

PROCESSOR = "processor_us"
UNITS = {PROCESSOR: "processor µs"}
"""Words for what is no unit by itself."""
TURN_SECONDS_MAX = 900
ONE_TURN = ("--rounds", "1", "--systems", "dejaq", "--no-keep")


@dataclass(frozen=True, slots=True)
class Ratio:
    """This tree's figure over the other commit's, of a case.

    Attributes:
        case: of the question.
        figure: the unit of what the clock says, or PROCESSOR, of which less is better.
        ours, theirs: medians over the rounds.
        rounds: the ratio of each round.
    """

    case: str
    figure: str
    ours: float
    theirs: float
    rounds: tuple[float, ...]

    @property
    def middle(self) -> float:
        """Median of the rounds' ratios."""
        return median(self.rounds)


Figures = dict[tuple[str, str], float]
"""What one turn measured, by case and figure."""


def checked_out(commit: str, folder: Path) -> Path:
    """The packages of a commit, in a folder below `folder`; taken from git, once.

    Raises:
        ValueError: git does not know the commit.
    """
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise ValueError(f"against: a commit of this repository, got: {commit}")
    place = (folder / found.stdout.strip()).resolve()
    if not (place / "src").is_dir():
        fresh = place.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        command = ["git", "archive", found.stdout.strip(), "src"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", str(fresh)], stdin=archive.stdout, check=True)
        if archive.returncode:
            raise ValueError(f"against: git cannot archive {commit}")
        fresh.rename(place)
    return place / "src"


def turn(question: str, source: Path, out: Path, arguments: Sequence[str]) -> Figures:
    """Measure a question once, with the packages of `source`."""
    shutil.rmtree(out, ignore_errors=True)
    path = os.pathsep.join([str(source), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "bench", question, *ONE_TURN, "--out", str(out), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, SOURCE: str(source)},
        capture_output=True,
        text=True,
        timeout=TURN_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"a turn with {source} failed:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}"
        )
    kept = out / "results"
    rows = json.loads((kept / "latest.json").read_text())
    units = {row["case"]: row["unit"] for row in rows if row["question"] == question}
    return figures_of(json.loads((kept / "runs.json").read_text())[question], units)


def figures_of(run: dict[str, object], units: dict[str, str]) -> Figures:
    """The figures in what a run keeps: the clock's, and processor time where it was measured."""
    figures: Figures = {}
    spreads = run["spreads"]
    assert isinstance(spreads, dict)
    for name, found in spreads.items():
        case = name.partition("/")[2]
        figures[case, units.get(case, "")] = found["median"]
        if PROCESSOR in found:
            figures[case, PROCESSOR] = median(found[PROCESSOR])
    return figures


def ratios_of(turns: Sequence[tuple[Figures, Figures]]) -> list[Ratio]:
    """A ratio for each figure that both trees have in all rounds; pairs are (ours, theirs)."""
    shared = [key for key in turns[0][0] if all(key in a and key in b for a, b in turns)]
    return [
        Ratio(
            *key,
            median(ours[key] for ours, _ in turns),
            median(theirs[key] for _, theirs in turns),
            tuple(ours[key] / theirs[key] for ours, theirs in turns),
        )
        for key in shared
        if all(theirs[key] for _, theirs in turns)
    ]


def measure(
    question: str,
    commit: str,
    rounds: int,
    out: Path,
    arguments: Sequence[str],
    report: Callable[[str], None],
) -> list[Ratio]:
    """Measure both trees in turns."""
    theirs = checked_out(commit, out / "against")
    sources = {"this tree": ROOT / "src", commit: theirs}
    turns = []
    for number in range(rounds):
        found = {}
        order = list(sources) if number % 2 else list(sources)[::-1]
        for name in order:
            found[name] = turn(question, sources[name], out / "turn", arguments)
            report(f"round {number + 1}: {name}")
        turns.append((found["this tree"], found[commit]))
    return ratios_of(turns)


def show(question: str, commit: str, ratios: Sequence[Ratio], console: Console) -> None:
    """Print the ratios as a table."""
    table = Table(title=f"{question}: this tree against {commit}", title_justify="left")
    for name in ("case", "figure", "this tree", commit, "ratio", "least – most"):
        table.add_column(name, justify="left" if name in ("case", "figure") else "right")
    for one in ratios:
        between = f"{min(one.rounds):.2f} – {max(one.rounds):.2f}"
        words = UNITS.get(one.figure, one.figure)
        figures = [
            f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in (one.ours, one.theirs)
        ]
        table.add_row(one.case, words, *figures, f"{one.middle:.2f}", between)
    console.print(table)
