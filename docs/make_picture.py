"""Make the README's picture from the real program.

    python docs/make_picture.py docs/pictures/dashboard.svg [--set LEVER=VALUE …]
    python docs/make_picture.py /tmp/ab.svg --keys p,a --last 20
    python docs/make_picture.py docs/pictures/own-training.svg --keys 1 --run train.py 1000

Runs the dashboard over a real session, moves levers as a user would, and saves what is on
the screen then: with `a` as the last key, the A/B panel closing in. `--run` takes a script of the
user's, and ends it.
"""

import argparse
import asyncio
import re
from collections.abc import Iterator
from html import escape, unescape
from itertools import groupby
from pathlib import Path

from gpudash import rendezvous
from gpudash.protocol.commands import Plan
from gpudash.run.command_process import keep
from gpudash.run.job import TrainingJob
from gpudash.run.session import Session
from gpudash.run.user_command import understand
from gpudash.tui.app import Dashboard

COLUMNS, ROWS = 120, 40
END_S = 10.0
"""So long a script may take to end; closing a session leaves it running."""
# the exported picture names web fonts; whoever shows it has a monospace font of their own
WEB_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
TEXT = re.compile(
    r'<text (class="[^"]*") x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>([^<]*)</text>'
)
LINE, ASCENT, OVERLAP = 24.4, 18.5, 0.25
"""Height of a row in the exported picture, its top above the baseline, and how rows overlap."""
UPRIGHT = (0.45, 0.0, 0.55, 1.0)
SHAPES = {
    **{character: [(0.0, 1 - n / 8, 1.0, 1.0)] for n, character in enumerate("▁▂▃▄▅▆▇█", 1)},
    **{character: [(0.0, 0.0, n / 8, 1.0)] for n, character in enumerate("▏▎▍▌▋▊▉", 1)},
    "─": [(0.0, 0.48, 1.0, 0.53)],
    "━": [(0.0, 0.45, 1.0, 0.55)],
    "│": [UPRIGHT],
    "├": [UPRIGHT, (0.5, 0.48, 1.0, 0.53)],
    "┤": [UPRIGHT, (0.0, 0.48, 0.5, 0.53)],
}
"""Rectangles that a character draws: left, upper, right and lower side, in parts of its cell."""


async def photograph(session: Session, keys: list[str], seconds: float, last: float) -> str:
    """Return the screen as SVG after the keys.

    Trains `seconds` before each key, and `last` seconds after them all.
    """
    app = Dashboard(lambda: session, session.plan)
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        while app.control.snapshot.state != "training":
            await pilot.pause(0.1)
        for key in keys:
            await pilot.pause(seconds)
            await pilot.press(key)
        await pilot.pause(last)
        return app.export_screenshot(title="gpudash")


def session_over(words: list[str]) -> Session:
    """Return a session over a script of the user's."""
    command, place = understand(words), rendezvous.begin()

    def start(_plan: Plan) -> TrainingJob:
        return TrainingJob(command.name, keep(command, place), place)

    return Session(Plan(workload=command.name, settings={}), start_source=start)


def tidied(picture: str) -> str:
    """Return the picture without what viewers get wrong.

    Glyphs of blocks and lines leave seams between rows, which differ from font to font: they become
    rectangles. librsvg drops the blanks at a text's ends and stretches the rest into their room:
    words of which one ends where the next begins then stand glued, and beside their place.
    """
    return TEXT.sub(_drawn, WEB_FONTS.sub("", picture))


def _drawn(text: re.Match[str]) -> str:
    """Return a text with its blocks and lines as rectangles."""
    ink, x_text, y_text, length, attributes, written = text.groups()
    characters, x, y = unescape(written), float(x_text), float(y_text)
    width = float(length) / len(characters) if characters else 0.0
    found: list[str] = []
    for is_drawn, same in groupby(enumerate(characters), key=lambda one: one[1] in SHAPES):
        run = [*same]
        begin, word = run[0][0], "".join(character for _, character in run)
        if is_drawn:
            found += _rectangles(word, x + begin * width, y - ASCENT, width, ink)
        elif kept := word.strip():
            at = x + (begin + len(word) - len(word.lstrip())) * width
            inside = escape(kept).replace("\N{NO-BREAK SPACE}", "&#160;")
            found.append(
                f'<text {ink} x="{at:g}" y="{y_text}" textLength="{width * len(kept):g}"'
                f"{attributes}>{inside}</text>"
            )
    return "".join(found)


def _rectangles(word: str, x: float, top: float, width: float, ink: str) -> Iterator[str]:
    """Yield rectangles: one for each run of the same block or line that fills its cells' width."""
    place = 0
    for character, same in groupby(word):
        count = len([*same])
        for left, above, right, below in SHAPES[character]:
            joined = count if right - left >= 1 else 1
            at, down = top + above * LINE, (below - above) * LINE + OVERLAP * (below >= 1)
            for begin in range(place, place + count, joined):
                yield (
                    f'<rect {ink} x="{x + (begin + left) * width:g}" y="{at:g}" '
                    f'width="{(joined - 1 + right - left) * width:g}" height="{down:g}" '
                    'shape-rendering="crispEdges"/>'
                )
        place += count


def main() -> None:
    """Take one picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--run", nargs="+", default=[], help="a script and its arguments")
    parser.add_argument("--keys", default="p,plus,p,plus,p", help="pressed one after the other")
    parser.add_argument("--seconds", type=float, default=8.0, help="before each key")
    parser.add_argument("--last", type=float, default=8.0, help="seconds after the last key")
    arguments = parser.parse_args()
    settings = dict(pair.split("=") for pair in arguments.set)
    if arguments.run:
        session = session_over(arguments.run)
    else:
        session = Session(Plan(workload="encdec", settings=settings))
    try:
        keys = arguments.keys.split(",")
        picture = asyncio.run(photograph(session, keys, arguments.seconds, arguments.last))
        session.stop()
        session.wait(END_S)
    finally:
        session.close()
    arguments.picture.write_text(tidied(picture), encoding="utf-8")


if __name__ == "__main__":
    main()
