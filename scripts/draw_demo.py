"""Draw docs/pictures/demo.svg: what `dejaq demo` prints on a terminal, as a moving picture.

    python scripts/draw_demo.py [OPTION OF THE DEMO ...]

The demo is run on a pseudo-terminal, and what it writes is kept with the moment at which it came.
A small model of a terminal makes screens of it, of which some are drawn: the run in a few seconds,
then its report for as long as one reads. The picture is a file of text that asks nobody for
anything; for who wants no motion it is the report alone.

Room: scripts. Runs the demo; writes one file.
Holds: every figure of the picture is one that this run printed.
See: src/dejaqueue/cli/demo/progress.py for what it draws with; tests/docs/test_demo_picture.py.
"""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/pictures/demo.svg"
COLUMNS, ROWS = 84, 40
FRAMES = 40
"""Screens of the run, evenly in time."""
RUN_SECONDS, READ_SECONDS = 10.0, 8.0
"""How long the picture shows the run, and then its report."""
LINE_PIXELS, CHARACTER_PIXELS, EDGE_PIXELS = 19, 8.43, 16
INK, FAINT, ACCENT, GROUND = "#e2e8f0", "#475569", "#38bdf8", "#0f172a"
CONTROL = re.compile(r"\x1b\[(?P<given>[?\d;]*)(?P<what>[A-Za-z])|(?P<text>[^\x1b])", re.DOTALL)

Cell = tuple[str, str]
Screen = list[list[Cell]]


class Terminal:
    """What stands on a terminal: as much of one as the demo's bars need.

    Attributes:
        lines: of cells, each a character and its color.
    """

    def __init__(self) -> None:
        self.lines: Screen = [[]]
        self._row = self._column = 0
        self._color = INK
        self._rest = ""

    def write(self, text: str) -> None:
        """Take what a program wrote; the end of a sequence may come later."""
        text = self._rest + text
        begun = re.search(r"\x1b(\[[?\d;]*)?\Z", text)
        self._rest = begun[0] if begun else ""
        for found in CONTROL.finditer(text[: begun.start()] if begun else text):
            if found["text"] is None:
                self._control(found["what"], found["given"])
            elif found["text"] == "\r":
                self._column = 0
            elif found["text"] == "\n":
                self._row += 1
                self._column = 0
                self._reach()
            else:
                self._put(found["text"])

    def _put(self, character: str) -> None:
        line = self.lines[self._row]
        line += [(" ", INK)] * (self._column + 1 - len(line))
        line[self._column] = (character, self._color)
        self._column += 1

    def _reach(self) -> None:
        while len(self.lines) <= self._row:
            self.lines.append([])

    def _control(self, what: str, given: str) -> None:
        if what == "A":
            self._row = max(0, self._row - int(given or 1))
        elif what == "K" and given == "2":
            self.lines[self._row] = []
        elif what == "m":
            self._color = color_of(given)
        elif what not in "lhK":
            raise ValueError(f"a terminal's sequence that nobody taught this one: {given}{what}")


def color_of(given: str) -> str:
    """Our color for one of rich's: a bar that is done, what is left of it, text."""
    if given in ("38;5;237", "38;2;58;58;58"):
        return FAINT
    return ACCENT if given.startswith("38;") else INK


def recorded(command: list[str]) -> list[tuple[float, bytes]]:
    """Run a command on a terminal; what it wrote, each with the seconds since its start."""
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    began, written = time.monotonic(), []
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=its, stdout=its, stderr=its, env=environment
    )
    os.close(its)
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # the program has ended, and with it the terminal's other end
            break
        if not piece:
            break
        written.append((time.monotonic() - began, piece))
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"draw_demo.py: {' '.join(command)} ended with {process.returncode}")
    return written


def screens(written: list[tuple[float, bytes]], count: int) -> list[Screen]:
    """What stood there at so many moments, evenly from the first byte to the last."""
    terminal, found, left = Terminal(), [], list(written)
    first, last = written[0][0], written[-1][0]
    for number in range(1, count + 1):
        until = first + (last - first) * number / count
        while left and (left[0][0] <= until or number == count):
            terminal.write(left.pop(0)[1].decode(errors="replace"))
        found.append([list(line) for line in terminal.lines])
    return found


def drawn_line(cells: list[Cell], y: float) -> str:
    """A line of text, each run of a color by itself."""
    runs: list[list[str]] = []
    for character, color in cells:
        if runs and (runs[-1][1] == color or character == " "):
            runs[-1][0] += character
        else:
            runs.append([character, color])
    spans = []
    for text, color in runs:
        fill = "" if color == INK else f' fill="{color}"'
        spans.append(f"<tspan{fill}>{escape(text)}</tspan>" if fill else escape(text))
    return f'<text x="{EDGE_PIXELS}" y="{y:g}">{"".join(spans)}</text>'


def drawn(frames: list[Screen], prompt: str, seconds: float) -> str:
    """The picture.

    Args:
        frames: screens in their order; the last one is shown longest.
        prompt: what was typed.
        seconds: how long the run took.
    """
    rows = max(len(frame) for frame in frames) + 1
    height = rows * LINE_PIXELS + 2 * EDGE_PIXELS
    width = round(COLUMNS * CHARACTER_PIXELS + 2 * EDGE_PIXELS)
    whole = RUN_SECONDS + READ_SECONDS
    styles, groups = [], []
    for number, frame in enumerate(frames):
        begin = 100 * RUN_SECONDS / whole * number / len(frames)
        is_last = number == len(frames) - 1
        end = 100.0 if is_last else 100 * RUN_SECONDS / whole * (number + 1) / len(frames)
        steps = ["0%{visibility:hidden}"] if number else []
        steps.append(f"{begin:.3f}%{{visibility:visible}}")
        steps.append(f"{end:.3f}%{{visibility:{'visible' if is_last else 'hidden'}}}")
        styles.append(
            f"@keyframes f{number}{{{''.join(steps)}}}"
            f"#f{number}{{animation:f{number} {whole:g}s step-end infinite}}"
        )
        lines = [
            drawn_line(line, EDGE_PIXELS + (row + 2) * LINE_PIXELS - 5)
            for row, line in enumerate(frame)
            if line
        ]
        kind = ' class="last"' if is_last else ""
        groups.append(f'<g id="f{number}"{kind}>\n' + "\n".join(lines) + "\n</g>")
    label = f"dejaq demo: {seconds:.0f} seconds in {RUN_SECONDS:.0f}, then its report"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-labelledby="title" '
            f"font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, monospace\" "
            f'font-size="14" fill="{INK}">',
            f'<title id="title">{escape(label)}</title>',
            "<style>",
            "text{white-space:pre}g{visibility:hidden}",
            *styles,
            "@media (prefers-reduced-motion:reduce){g{animation:none!important}"
            ".last{visibility:visible}}",
            "</style>",
            f'<rect width="{width}" height="{height}" rx="10" fill="{GROUND}"/>',
            f'<text x="{EDGE_PIXELS}" y="{EDGE_PIXELS + LINE_PIXELS - 5:g}">'
            f'<tspan fill="{ACCENT}">$</tspan> {escape(prompt)}</text>',
            *groups,
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Run the demo, and draw it."""
    options = sys.argv[1:]
    written = recorded([sys.executable, "-m", "dejaqueue", "demo", *options])
    frames = screens(written, FRAMES)
    seconds = written[-1][0]
    prompt = " ".join(["dejaq demo", *options])
    PICTURE.write_text(drawn(frames, prompt, seconds), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}: {len(frames)} screens of {seconds:.0f} seconds")


if __name__ == "__main__":
    main()
