"""Make kill.svg: a real terminal in which acode is killed with -9 and resumed, as an animated picture.

    python3 dev.py picture

It drives tmux, so what the picture shows is what a person would have seen; the times between its frames are shortened.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
COLUMNS, LINES = 100, 34
CHAR_PX, LINE_PX, PAD_PX = 7.8, 17, 14
FRAME_S_MAX = 1.6
COLORS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff", "2": "#8b949e", "1": "#ffffff"}
PLAN = """title: Count the words
tasks:
  - title: Prepare the words
    steps:
      - write: {path: words.txt, content: "durable\\nevidence\\nresume\\n"}
  - title: Count them
    steps:
      - run: sleep 3 && wc -l < words.txt > counted.txt
        title: Count
        outputs: [counted.txt]
  - title: Publish
    steps:
      - run: sleep 1 && echo published >> ledger.txt
        title: Publish
"""


class Terminal:
    """One tmux session on a server of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.base = ["tmux", "-L", f"acode-{os.getpid()}", "-f", "/dev/null"]
        env = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "HOME": str(place),
            "ACODE_HOME": str(place / "state"),
            "PS1": "$ ",
            "PYTHONPATH": str(SOURCE),
            "LC_ALL": "C.UTF-8",
        }
        shell = f"alias acode='{sys.executable} -m acode'; PS1='$ '; clear"
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        command = [*self.base, "new-session", "-d", *size, "-c", str(place / "work"), "bash", "--norc"]
        subprocess.run(command, env=env, check=True)
        self.type(shell)
        time.sleep(1)

    def type(self, line: str) -> None:
        subprocess.run([*self.base, "send-keys", "-l", line], check=True)
        subprocess.run([*self.base, "send-keys", "Enter"], check=True)

    def screen(self) -> str:
        return subprocess.run(
            [*self.base, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True
        ).stdout

    def close(self) -> None:
        subprocess.run([*self.base, "kill-server"], check=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "work").mkdir()
        (place / "work" / "plan.yml").write_text(PLAN)
        terminal = Terminal(place)
        try:
            frames = list(played(terminal))
        finally:
            terminal.close()
    (HERE / "kill.svg").write_text(svg(frames), encoding="utf-8")


def played(terminal: Terminal) -> Iterator[tuple[float, str]]:
    """Frames with the seconds that each was seen."""
    terminal.type("acode run plan.yml")
    yield from frames_until(terminal, lambda screen: "Task 2, Step 1" in screen)
    yield from frames_for(terminal, 1.0)
    found = subprocess.run(["pgrep", "-f", "acode run plan.yml"], capture_output=True, text=True, check=True)
    os.kill(int(found.stdout.split()[0]), 9)
    yield from frames_for(terminal, 4.0)
    terminal.type("acode resume --last --yes")
    yield from frames_until(terminal, lambda screen: "Resume completed" in screen)
    yield 4.0, terminal.screen()


def frames_until(terminal: Terminal, ends: object) -> Iterator[tuple[float, str]]:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        time.sleep(0.2)
        screen = terminal.screen()
        yield 0.2, screen
        if callable(ends) and ends(re.sub(r"\x1b\[[0-9;]*m", "", screen)):
            return
    raise SystemExit("the terminal did not show what was expected")


def frames_for(terminal: Terminal, seconds: float) -> Iterator[tuple[float, str]]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.2)
        yield 0.2, terminal.screen()


# The picture.


def svg(frames: list[tuple[float, str]]) -> str:
    shown = merged(frames)
    total = sum(seconds for seconds, _ in shown)
    width, height = COLUMNS * CHAR_PX + 2 * PAD_PX, LINES * LINE_PX + 2 * PAD_PX
    groups, rules, at = [], [], 0.0
    for number, (seconds, screen) in enumerate(shown):
        start, end = at / total * 100, (at + seconds) / total * 100
        at += seconds
        rules.append(
            f"@keyframes f{number}{{0%,{start:.3f}%{{visibility:hidden}}"
            f"{start + 0.001:.3f}%,{end:.3f}%{{visibility:visible}}"
            f"{min(end + 0.001, 100):.3f}%,100%{{visibility:{'visible' if end >= 99.99 else 'hidden'}}}}}"
            f".f{number}{{animation:f{number} {total:.1f}s infinite step-end}}"
        )
        groups.append(f'<g class="f f{number}">{lines(screen)}</g>')
    style = (
        "text{font:13px ui-monospace,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre}.f{visibility:hidden}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none}.f:last-of-type{visibility:visible}}" + "".join(rules)
    )
    title = "A terminal: acode run is killed with -9 in the middle; acode resume finishes the plan without a repetition"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
        f"<title>{title}</title><style>{style}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>{"".join(groups)}</svg>\n'
    )


def merged(frames: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Frames that look the same are one; none is longer than a reader needs."""
    found: list[tuple[float, str]] = []
    for seconds, screen in frames:
        if found and found[-1][1] == screen:
            found[-1] = (found[-1][0] + seconds, screen)
        else:
            found.append((seconds, screen))
    last = len(found) - 1
    return [(seconds if n == last else min(seconds, FRAME_S_MAX), screen) for n, (seconds, screen) in enumerate(found)]


def lines(screen: str) -> str:
    made = []
    for number, line in enumerate(screen.rstrip("\n").split("\n")):
        if line.strip():
            y = PAD_PX + (number + 0.8) * LINE_PX
            made.append(f'<text x="{PAD_PX}" y="{y:.0f}">{spans(line)}</text>')
    return "".join(made)


def spans(line: str) -> str:
    made, color = "", ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line.rstrip()):
        if part.startswith("\x1b["):
            codes = [code for code in part[2:-1].split(";") if code in COLORS]
            color = COLORS[codes[-1]] if codes else ""
        elif part:
            made += f'<tspan fill="{color}">{escape(part)}</tspan>' if color else escape(part)
    return made


if __name__ == "__main__":
    main()
