"""Make an animated picture of a short session with the real program.

    python docs/make_animation.py docs/pictures/session.svg --set data=resident --keys 10:x,12:enter

Takes a picture of the dashboard every second, and presses each key at its second, or later once no
A/B runs and there is something to try; ends so long after the last. What stands in
several pictures is in the file once, and is shown while it stands there: no script, one SVG.
"""

import argparse
import asyncio
import re
from collections import defaultdict
from pathlib import Path

from make_picture import COLUMNS, END_S, ROWS, session_over, tidied

from gpudash.protocol.commands import Plan
from gpudash.run.session import Session
from gpudash.tui.app import Dashboard

RULE = re.compile(r"\.terminal-\d+-(r\d+) \{ ([^}]*) \}")
PAINTED = re.compile(r'<rect [^>]*shape-rendering[^>]*/>|<text class="terminal-\d+-r\d+".*?</text>')
INKED = re.compile(r'class="terminal-\d+-(r\d+)"')
MATRIX = re.compile(r'<g class="terminal-\d+-matrix">')
CLIPPED = re.compile(r' clip-path="url\(#terminal-\d+-line-\d+\)"')


def is_ready(app: Dashboard, key: str) -> bool:
    """Return whether no A/B runs, and there is something to try for the key that does."""
    is_there = key != "x" or app.control.headline.first is not None
    return is_there and not app.control.comparing


async def film(
    session: Session, keys: dict[int, str], begin: int, last: int, most: int
) -> tuple[list[str], str]:
    """Return a picture of each second from `begin` on, as SVG, and the one before the last key."""
    app = Dashboard(lambda: session, session.plan)
    pictures = []
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        waiting, pressed, before = sorted(keys.items()), 0, ""
        for second in range(most):
            if waiting and second >= waiting[0][0] and is_ready(app, waiting[0][1]):
                before = tidied(app.export_screenshot(title="gpudash"))
                await pilot.press(waiting.pop(0)[1])
                pressed = second
            await pilot.pause(1.0)
            if second >= begin:
                pictures.append(tidied(app.export_screenshot(title="gpudash")))
            if not waiting and second >= pressed + last:
                break
    return pictures, before


def animated(pictures: list[str]) -> str:
    """Return one picture that shows these, a second each, again and again."""
    inks: dict[str, str] = {}  # what a style says → its class
    shown = defaultdict[str, set[int]](set)  # an element → the pictures that it stands in
    for number, picture in enumerate(pictures):
        rules = dict(RULE.findall(picture))
        names = {name: inks.setdefault(rule, f"i{len(inks)}") for name, rule in rules.items()}
        for element in PAINTED.findall(picture):
            shown[_named(element, names)].add(number)
    times = defaultdict[frozenset[int], list[str]](list)
    for element in sorted(shown, key=lambda one: one.startswith("<text")):  # fills lie behind
        times[frozenset(shown[element])].append(element)
    style = [f".{name} {{ {rule} }}" for rule, name in inks.items()]
    groups: list[str] = []
    for kind in ("<rect fill", "<rect class", "<text"):
        for index, (numbers, elements) in enumerate(times.items()):
            name = "" if len(numbers) == len(pictures) else f"t{index}"
            inside = "".join(one for one in elements if one.startswith(kind))
            if inside:
                groups.append(f'<g class="{name}">{inside}</g>')
    for index, numbers in enumerate(times):
        if len(numbers) < len(pictures):
            style.append(_shown_at(f"t{index}", numbers, len(pictures)))
    frame = PAINTED.sub("", pictures[0]).replace("</style>", f"{''.join(style)}</style>")
    return MATRIX.sub(lambda begin: begin[0] + "".join(groups), frame)


def _named(element: str, names: dict[str, str]) -> str:
    """Return an element with the common name of its ink, without what belongs to its picture."""
    return INKED.sub(lambda ink: f'class="{names[ink[1]]}"', CLIPPED.sub("", element))


def _shown_at(name: str, numbers: frozenset[int], count: int) -> str:
    """Return the animation of what stands in these of so many pictures."""
    changes = [n for n in range(count) if n == 0 or (n in numbers) != (n - 1 in numbers)]
    steps = "".join(
        f"{100 * n / count:.3f}%{{visibility:{'visible' if n in numbers else 'hidden'}}}"
        for n in changes
    )
    still = "visible" if count - 1 in numbers else "hidden"  # for viewers that do not animate
    rule = f"visibility:{still};animation:{name} {count}s step-end infinite"
    return f".{name}{{{rule}}}@keyframes {name}{{{steps}}}"


def main() -> None:
    """Make one picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("workload", nargs="?", default="encdec")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--run", nargs="+", default=[], help="a script and its arguments")
    parser.add_argument("--keys", default="", help="SECOND:KEY, comma-separated")
    parser.add_argument("--begin", type=int, default=0, help="second of the first picture")
    parser.add_argument("--last", type=int, default=10, help="seconds after the last key")
    parser.add_argument("--most", type=int, default=120, help="seconds at most")
    parser.add_argument("--before", type=Path, help="a picture of its own before the last key")
    arguments = parser.parse_args()
    settings = dict(pair.split("=") for pair in arguments.set)
    keys = dict(pair.split(":") for pair in arguments.keys.split(",") if pair)
    if arguments.run:
        session = session_over(arguments.run)
    else:
        session = Session(Plan(workload=arguments.workload, settings=settings))
    try:
        at = {int(second): key for second, key in keys.items()}
        filmed = film(session, at, arguments.begin, arguments.last, arguments.most)
        pictures, before = asyncio.run(filmed)
        session.stop()
        session.wait(END_S)
    finally:
        session.close()
    if arguments.before:
        arguments.before.write_text(before, encoding="utf-8")
    arguments.picture.write_text(animated(pictures), encoding="utf-8")


if __name__ == "__main__":
    main()
