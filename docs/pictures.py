"""Regenerate the figures of the top-level README with the commands shown there: `nox -s pictures`.

The training display is real: the command runs in a pseudo-terminal, an emulator tracks its screen, and the screen three
quarters through the run is drawn. The other figures are copied from the run directory.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 100, 24
PICTURES = Path(__file__).parent / "pictures"


def main() -> None:
    """Train, evaluate, and save the figures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "runs" / "first"
        screens = record(["psdenets.train", "--cut", "vertical", "--out", "runs/first"], folder)
        draw_screen(screens[len(screens) * 3 // 4], PICTURES / "training.svg")
        command = ["psdenets.evaluate", "runs/first", "--samples", "32", "--ood", "noise"]
        subprocess.run([sys.executable, "-m", *command], cwd=folder, check=True)
        for source, name in (
            (run / "evaluation" / "reliability.png", "reliability.png"),
            (run / "evaluation" / "entropy.png", "entropy.png"),
            (run / "plots" / "weights.png", "weights.png"),
        ):
            shutil.copy(source, PICTURES / name)


def record(command: list[str], folder: str) -> list[list[Text]]:
    """Run `python -m COMMAND` in a pseudo-terminal and return its screens, one for each chunk of output."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.execv(sys.executable, [sys.executable, "-m", *command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screens = []
    while True:
        try:
            output = os.read(terminal, 65536)
        except OSError:  # raised on Linux once the other side has closed
            break
        if not output:
            break
        stream.feed(output)
        screens.append(lines_of(screen))
    _, status = os.waitpid(process, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit("\n".join(line.plain for line in screens[-1]))
    return [lines for lines in screens if any("epochs" in line.plain for line in lines)]


def lines_of(screen: pyte.Screen) -> list[Text]:
    """The lines of a screen with their colours, without empty lines at the end."""
    lines = []
    for y in range(screen.lines):
        line = Text()
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            line.append(cell.data, style=style_of(cell))
        line.rstrip()
        lines.append(line)
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def style_of(cell: pyte.screens.Char) -> str:
    """The style of a cell in rich's notation."""
    colour = f"#{cell.fg}" if re.fullmatch(r"[0-9a-f]{6}", cell.fg) else cell.fg.replace("brown", "yellow")
    words = [] if cell.fg == "default" else [colour]
    return " ".join([*words, *(["bold"] if cell.bold else [])])


def draw_screen(lines: list[Text], path: Path) -> None:
    """Write a terminal window as SVG."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115 - closed at exit
    for line in lines:
        console.print(line)
    console.save_svg(str(path), title="python -m psdenets.train --cut vertical --out runs/first")


if __name__ == "__main__":
    main()
