"""The card of a verdict: as Markdown, and as SVG without variables and page fonts, for GitHub."""

from collections.abc import Callable, Iterator, Sequence
from math import floor, log10
from unicodedata import east_asian_width
from xml.etree.ElementTree import Element, tostring

import msgspec

from gpudash import __version__
from gpudash import format as fmt
from gpudash.compare.ab import contention
from gpudash.present.change_axis import interval_of
from gpudash.present.markup import NAMESPACE, element, svg
from gpudash.present.wording import change_of, figures
from gpudash.protocol.session import ComparisonShown, Sides
from gpudash.snapshot import Snapshot
from workloads.levers import phrase

WIDTH, HEIGHT = 1200.0, 630.0
"""The size in which pull requests and chats show a picture."""
FLAT = 400.0
"""Height of a banner."""
LEFT, RIGHT = 60.0, 1140.0
PLOT = 180.0
"""Where bars and axis begin, right of their labels."""
TEXT, DIM, EDGE, GROUND = "#1c2128", "#5a6472", "#dfe3e8", "#ffffff"
A, B = "#7d8a99", "#1f6fd0"
"""Hues of both settings."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
WIDEST = 0.61
"""Width of a usual letter over the font's size, in the widest of these fonts: a monospaced one."""
FARTHEST = 10.0
"""Where the axis of the gain ends at the latest: an interval may be of noise alone."""
SMALLEST = 13.0
CALLED = {"step": "one step", "host": "of it, the host is busy"}
"""Figures that a card calls by more than their word."""
WITHIN = "blocks of both in turns within a training"
DOUBLED = 1.0
"""From +100 % on a change is also told as `times as fast`, for the eye."""


class _Card(msgspec.Struct, frozen=True, kw_only=True):
    """What a card says, as text and numbers."""

    claim: str
    found: str
    """Change and interval."""
    proven: bool
    pairs: str
    how: str
    """How both were measured, as a clause."""
    change: float
    low: float
    high: float
    labels: tuple[str, str]
    """Of both settings."""
    figures: tuple[tuple[str, Sides, str], ...]
    """Word, values and unit of what is known of both settings: rates have no word."""
    unit: str
    """That of the bars."""
    where: tuple[str, ...]
    """Training, batch size, device and versions."""
    control: str
    """Whether the control has passed, and whether the training is the same."""
    command: str
    """Empty if it is not known."""

    @property
    def hue(self) -> str:
        """Of the second setting; that of the first unless there is a difference to be seen."""
        return B if self.proven else A

    def of(self, word: str, unit: str = "ms") -> tuple[float, float] | None:
        """Return the values of both; None unless both are measured."""
        for one, (a, b), its_unit in self.figures:
            if (one, its_unit) == (word, unit) and a is not None and b is not None:
                return a, b
        return None


def card_of(
    shown: ComparisonShown, snapshot: Snapshot, command: str, starts: int = 1
) -> _Card | None:
    """None without an interval."""
    if shown.verdict is None or (interval := interval_of(shown)) is None:
        return None
    low, change, high = interval
    labels = f"{shown.lever}={shown.a}", f"{shown.lever}={shown.b}"
    what = f"{shown.lever} {shown.a} → {shown.b}"
    if shown.doing:
        labels = phrase(shown.start) or "the start", phrase(shown.best) or "the start"
        what = labels[1]
    elif shown.of_starts:
        labels = shown.a, shown.b
        what = shown.b
    starts = shown.pairs if shown.of_starts else starts
    over = f"of {shown.pairs} pairs" if starts == 1 else f"over {starts} starts"
    return _Card(
        claim=fmt.plain(_claim(what, shown)),
        found=change_of(shown),
        proven=shown.proven,
        pairs=f"{100 * shown.confidence:g} % interval {over}",
        how="both started anew for each" if shown.of_starts else WITHIN,
        change=change,
        low=low,
        high=high,
        labels=(fmt.plain(labels[0]), fmt.plain(labels[1])),
        figures=tuple(figures(shown)),
        unit="samples/s" if all(shown.of("samples_per_s")) else shown.unit,
        where=tuple(map(fmt.plain, _where(shown, snapshot))),
        control=_control(shown),
        command=fmt.plain(command),
    )


def _claim(what: str, shown: ComparisonShown) -> str:
    change = shown.change or 0.0
    if shown.check_passed is False:
        return f"{what}: not proven, as the control failed"
    if not shown.proven:
        return f"{what}: no difference shown"
    if change >= DOUBLED:
        return f"{what} trains {fmt.significant(1 + change)} times as fast"
    return f"{what} trains {100 * abs(change):.3g} % {'faster' if change > 0 else 'slower'}"


def _where(shown: ComparisonShown, snapshot: Snapshot) -> Iterator[str]:
    yield snapshot.workload
    batch = snapshot.settings.get("batch_size", "")
    if batch.isdecimal() and shown.lever != "batch_size":
        yield f"batch size {batch}"
    if snapshot.ranks:
        yield f"{len(snapshot.ranks)} ranks"
    if snapshot.device is not None:
        yield snapshot.device.name
    if "torch" in snapshot.versions:
        yield f"torch {snapshot.versions['torch']}"
    yield f"gpudash {__version__}"


def _control(shown: ComparisonShown) -> str:
    known = {
        True: "control passed: the same setting twice shows no difference",
        False: "control failed: the same setting twice differs",
        None: "no control: too few pairs",
    }
    control = "" if shown.of_starts else f"{known[shown.check_passed]}; "
    return control + shown.losses + contention(shown.core_wait_pct)


# ── Markdown ────────────────────────────────────────────────────────────────────────────


def markdown(card: _Card) -> str:
    rows: list[Sequence[str]] = [("", *card.labels), ("---", "---", "---")]
    for word, both, unit in sorted(card.figures, key=lambda one: one[2] != "samples/s"):
        if None in both or (not word and not all(both)):
            continue
        told = map(fmt.significant, both) if not word else (_with_unit(ms, unit) for ms in both)
        rows.append([CALLED.get(word, word) or unit, *told])
    table = "\n".join(f"| {' | '.join(map(_escaped, row))} |" for row in rows)
    ways = f"{card.pairs}, {card.how}; {card.control}."
    command = f"\n\n    {card.command}" * bool(card.command)
    title = f"**{_escaped(card.claim)}: {card.found}**"
    where = _escaped(", ".join(card.where))
    return f"{title}\n\n{table}\n\n{ways}\n{where}.{command}\n"


def _with_unit(value: float | None, unit: str) -> str:
    number = fmt.milliseconds(value) if unit == "ms" else fmt.significant(value)
    return f"{number} {unit}"


def _escaped(text: str) -> str:
    return "".join(f"\\{one}" if one in "\\`*[<|" else one for one in text)


# ── the picture ─────────────────────────────────────────────────────────────────────────


def picture(card: _Card) -> str:
    drawn = [
        element("rect", width=WIDTH, height=HEIGHT, fill=GROUND),
        element("rect", width=12.0, height=HEIGHT, fill=card.hue),
        _text(card.claim, LEFT, 72, size=40, weight="bold"),
        _text(f"{card.found}, {card.pairs}", LEFT, 110, size=24, fill=DIM),
        *_rates(card, 148),
        *_gain(card, 322),
        *_steps(card, 392),
        element("line", x1=LEFT, x2=RIGHT, y1=488, y2=488, stroke=EDGE, stroke_width=2),
        _text(" · ".join(card.where), LEFT, 520, size=19, fill=DIM),
        _text(card.control, LEFT, 546, size=19, fill=DIM),
        *_command(card.command, 566),
    ]
    return _written(card, drawn, HEIGHT)


def banner(card: _Card, note: str) -> str:
    """Return a flat picture for the head of a page: a step of both settings on one scale."""
    steps_ms = card.of("step") or (0.0, 0.0)
    hosts_ms = card.of("host") or steps_ms
    told = [f"{fmt.milliseconds(step_ms)} ms a step" for step_ms in steps_ms]
    widest = max(*steps_ms, 1e-9)
    rows = zip((150, 226), steps_ms, hosts_ms, strict=True)
    paled = [
        _paled(y, (RIGHT - PLOT) * step_ms / widest, 30, host_ms / max(step_ms, 1e-9))
        for y, step_ms, host_ms in rows
    ]
    drawn = [
        element("rect", width=WIDTH, height=FLAT, fill=GROUND),
        element("rect", width=12.0, height=FLAT, fill=card.hue),
        _text(card.claim, LEFT, 62, size=40, weight="bold"),
        _text(f"{card.found}, {card.pairs} · {note}", LEFT, 98, size=24, fill=DIM),
        *_rows(card, 124, steps_ms, told),
        *paled,
        _text("full colour: the host works; pale: it waits", PLOT, 276, size=16, fill=DIM),
        *_gain(card, 314),
        _text(" · ".join((*card.where, card.control)), LEFT, 380, size=19, fill=DIM),
    ]
    return _written(card, drawn, FLAT)


def _written(card: _Card, drawn: Sequence[Element], height: float) -> str:
    about = f"{card.found}, {card.pairs}; {', '.join(card.where)}; {card.control}"
    whole = svg(card.claim, about, drawn, WIDTH, height, xmlns=NAMESPACE, font_family=FONT)
    whole.attrib |= {"width": f"{WIDTH:.0f}", "height": f"{height:.0f}"}
    return f"{tostring(whole, encoding='unicode')}\n"


def _text(
    text: str,
    x: float,
    y: float,
    *,
    size: float = 20.0,
    fill: str = TEXT,
    room: float = RIGHT - LEFT,
    **more: object,
) -> Element:
    """Make the text as small as it has to be to fit into the room, and then cut it."""
    wide = WIDEST * (1.1 if more.get("weight") == "bold" else 1.0)
    letters = sum(1.7 if east_asian_width(one) in "WF" else 1.0 for one in text) or 1.0
    size = max(min(size, room / (wide * letters)), SMALLEST)
    text = fmt.clip(text, int(len(text) * min(room / (wide * size * letters), 1.0)))
    if (weight := more.pop("weight", None)) is not None:
        more["font_weight"] = weight
    return element("text", text, x=x, y=y, font_size=size, fill=fill, **more)


def _bar(x: float, y: float, wide: float, high: float, fill: str) -> Element:
    return element("rect", x=x, y=y, width=max(wide, 2.0), height=high, fill=fill)


def _paled(y: float, wide: float, high: float, kept: float) -> Element:
    """Pale a bar but for its begin: one shape over another shows no seam."""
    begin = wide * min(kept, 1.0)
    return element(
        "rect", x=PLOT + begin, y=y, width=wide - begin, height=high, fill=GROUND,
        fill_opacity="0.6",
    )  # fmt: skip


SIDES = ("before", "after")


def _rates(card: _Card, y: float) -> Iterator[Element]:
    rates = next((both for _, both, unit in card.figures if unit == card.unit), (None, None))
    return _rows(card, y, rates, [f"{fmt.significant(rate)} {card.unit}" for rate in rates])


def _rows(card: _Card, y: float, values: Sides, told: Sequence[str]) -> Iterator[Element]:
    most = max(*(value or 0.0 for value in values), 1e-9)
    rows = zip(SIDES, (A, card.hue), card.labels, values, told, strict=True)
    for name, fill, label, value, text in rows:
        yield _text(name, LEFT, y + 16, fill=DIM)
        yield _text(label, PLOT, y + 16, room=600.0, weight="bold")
        yield _text(text, RIGHT, y + 16, room=320.0, weight="bold", text_anchor="end")
        yield _bar(PLOT, y + 26, (RIGHT - PLOT) * (value or 0.0) / most, 30, fill)
        y += 76


def _gain(card: _Card, y: float) -> Iterator[Element]:
    ends = [max(min(one, FARTHEST), -1.0) for one in (card.low, card.high)]
    ticks = _ticks(min(ends[0], 0.0), max(ends[1], 0.0))
    begin, end = ticks[0], ticks[-1]

    def x(change: float) -> float:
        return PLOT + (RIGHT - PLOT - 20) * (change - begin) / (end - begin)

    yield _text("gain", LEFT, y + 6, fill=DIM)
    yield element("line", x1=x(begin), x2=x(end), y1=y, y2=y, stroke=EDGE, stroke_width=2)
    for tick in ticks:
        zero = abs(tick) < (end - begin) / 1000
        top, ink = (y - 18, DIM) if zero else (y - 5, EDGE)
        yield element("line", x1=x(tick), x2=x(tick), y1=top, y2=y + 5, stroke=ink, stroke_width=2)
        label = "0" if zero else f"{100 * tick:+,.2f}".rstrip("0").rstrip(".")
        yield _text(
            f"{label} %" if tick == end else label,
            x(tick), y + 26, size=16, fill=DIM, room=110.0, text_anchor="middle",
        )  # fmt: skip
    yield element("line", x1=x(ends[0]), x2=x(ends[1]), y1=y, y2=y, stroke=card.hue, stroke_width=4)
    for at in (x(end) for end in ends if end < FARTHEST):
        yield element("line", x1=at, x2=at, y1=y - 11, y2=y + 11, stroke=card.hue, stroke_width=4)
    if card.change <= FARTHEST:
        yield element("circle", cx=x(card.change), cy=y, r=8.0, fill=card.hue)


def _ticks(low: float, high: float) -> Sequence[float]:
    """Return four to eight round values around both; none below -1, the loss of all."""
    apart = max(high - low, 0.01) / 4
    power = 10.0 ** floor(log10(apart))
    apart = next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= apart)
    first, last = floor(low / apart), -floor(-high / apart)
    return [max(apart * number, -1.0) for number in range(first, max(last, first + 1) + 1)]


def _steps(card: _Card, y: float) -> Iterator[Element]:
    """Both sides have one scale, so that the step is seen to shrink."""
    steps_ms, hosts_ms = card.of("step"), card.of("host")
    if steps_ms is None:
        return
    legend = "one step: its dark part is the host's work" if hosts_ms else "one step"
    yield _text(legend, LEFT, y, fill=DIM)
    room = RIGHT - PLOT - 130
    rows = zip(SIDES, (A, card.hue), steps_ms, hosts_ms or steps_ms, strict=True)
    for name, fill, step_ms, host_ms in rows:
        y += 34
        yield _text(name, LEFT, y, fill=DIM)
        wide = max(room * step_ms / max(steps_ms), 2.0)
        yield _bar(PLOT, y - 18, wide, 24, fill)
        yield _paled(y - 18, wide, 24, host_ms / step_ms)
        yield _text(
            f"{fmt.milliseconds(step_ms)} ms", PLOT + wide + 10, y, room=120.0, weight="bold"
        )


def _command(command: str, y: float) -> Iterator[Element]:
    if not command:
        return
    yield element("rect", x=LEFT, y=y, width=RIGHT - LEFT, height=42, rx=6, fill="#f1f3f6")
    yield _text(command, LEFT + 16, y + 27, room=RIGHT - LEFT - 32, size=19, font_family=MONO)


FORMS: dict[str, Callable[[_Card], str]] = {".svg": picture, ".md": markdown}
"""What a card is written as, by the end of its file's name."""
