"""Run the demo in a terminal of its own and keep what it shows as docs/demo.svg.

The drawing is rich's, without the web font that rich would link to: a document must not fetch anything.
Output that names the checkout or the home folder is not kept.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 104, 60
TARGET = ROOT / "docs" / "demo.svg"
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def run_demo() -> str:
    """What `fumehood demo` writes to a terminal. Raises SystemExit when it fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }
    command = [str(Path(sys.executable).with_name("fumehood")), "demo"]
    with subprocess.Popen(
        command, cwd="/", env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as demo:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the last writer has closed the terminal
                break
            if not part:
                break
            shown += part
    os.close(ours)
    text = shown.decode("utf-8", "replace").replace("\r\n", "\n")
    if demo.returncode != 0:
        sys.exit(f"{text}\nthe demo ended with {demo.returncode}")
    return text


def draw(text: str) -> str:
    """The terminal's text as SVG."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text.from_ansi(text), soft_wrap=True)
    return console.export_svg(title="fumehood demo", theme=MONOKAI, code_format=_FORMAT, unique_id="demo")


def main() -> None:
    """Run, draw, check, write."""
    text = run_demo()
    named = [folder for folder in (str(ROOT), str(Path.home())) if folder in text]
    if named:
        sys.exit(f"the demo's output names folders of this machine: {named}")
    svg = draw(text)
    TARGET.write_text(svg, encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}: {len(text.splitlines())} lines, {len(svg) // 1024} KiB")


if __name__ == "__main__":
    main()
