"""Rows of an A/B: its intervals on an axis of relative change, where 0 is value A; verdicts."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from statistics import fmean, median

from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.compare.energy import worth_lines
from gpudash.compare.paired_t import pairs_until_check
from gpudash.present.cells import Parts, bar_of, fitted, whole, width_of
from gpudash.present.change_axis import ChangeInterval, PlacedAxis, interval_of, shared_axis
from gpudash.present.wording import change_of, counted, figures
from gpudash.protocol.session import ComparisonShown
from gpudash.snapshot import BlockShown
from workloads.levers import phrase

MOST_INTERVALS = 5
"""Most intervals drawn of a history, the newest among them."""
PAUSED = 10
"""A pair that took more than this many times the median had a pause in it."""
LABEL = 12
"""Columns left of an axis that no ledger has placed."""
GAP = 3
NONE_YET = "no A/B yet: it compares two values of a lever, in alternating blocks"


def sampled(count: int, rows: int) -> list[int]:
    """Return at most `rows` of `count` indices, evenly spaced, including the last one."""
    rows = min(rows, count)
    return [round((index + 1) * count / rows) - 1 for index in range(rows)]


def comparison_rows(
    shown: ComparisonShown | None,
    width: int,
    height: int,
    price: float | None = None,
    placed: PlacedAxis | None = None,
) -> Iterator[Parts]:
    """Yield the most important rows that fit; a verdict has joules, if asked for, and money.

    `placed` is the ledger's axis.
    """
    room = width - 2
    if shown is None:
        yield from (((f" {line}", "dim"),) for line in textwrap.wrap(NONE_YET, max(room, 1)))
        return
    head = _found(shown, room) if shown.is_over else [_so_far(shown, room)]
    foot = _sides(shown, room)
    if shown.doing:  # of a tune
        none = "the start stays" if shown.is_over else "nothing is faster so far"
        best = f"best so far: {phrase(shown.best)}" if shown.best else none
        head = head if shown.is_over else [((fitted(fmt.plain(shown.doing), room), "strong"),)]
        foot = [((fitted(fmt.plain(best), room), "dim"),)]
    elif not (shown.is_over or shown.of_starts):
        foot.append(_check(shown, room))
    intervals = _intervals(shown)
    left = height - len(head) - 2 * bool(intervals)
    if left < len(foot):  # one side without the other is useless
        foot = foot[-1:] if left > 0 and not shown.is_over else []
    spent = _spent(shown, room, price) if shown.verdict is not None else []
    if len(foot) + len(spent) <= left:
        foot += spent
    is_said = shown.of_starts or shown.verdict is None
    if not is_said and len(foot) < left:
        foot.append(((fitted(shown.losses, room), "dim"),))
    rows = height - len(head) - len(foot)
    if placed is None or shown.of_starts:
        widest = intervals[0][1] if intervals else ()  # the first one; an axis stands still
        placed = PlacedAxis(shared_axis(widest), 1 + LABEL, room - LABEL - 1)
    middle = _interval_rows(shown, intervals, placed, room, rows)
    for parts in (*head, *middle, *foot):
        yield ((" ", "text"), *parts)


def time_left(shown: ComparisonShown, blocks: Sequence[BlockShown]) -> str:
    """Empty before there are two pairs; `blocks` are the newest ones on the time axis."""
    if shown.of_starts:  # the status has it
        return ""
    begins = [one.begin_s for one in blocks[-2 * shown.pairs :]] if shown.pairs >= 2 else []
    # two blocks are a pair's time with its switches
    pairs_s = [after - before for before, after in zip(begins, begins[2:], strict=False)]
    if not pairs_s:
        return ""
    most_s = PAUSED * median(pairs_s)
    left_s = (shown.planned_pairs - shown.pairs) * fmean(one for one in pairs_s if one <= most_s)
    if left_s <= 90:
        return f"about {10 * max(math.ceil(left_s / 10), 1)} s left"
    return f"about {math.ceil(left_s / 60)} min left"


def _name(shown: ComparisonShown, value: str) -> str:
    return fmt.plain(value if shown.of_starts else f"{shown.lever}={value}")


def _intervals(shown: ComparisonShown) -> list[tuple[int, ChangeInterval]]:
    return [*enumerate(shown.history, shown.pairs - len(shown.history) + 1)]


def _interval_rows(
    shown: ComparisonShown,
    numbered: Sequence[tuple[int, ChangeInterval]],
    placed: PlacedAxis,
    width: int,
    height: int,
) -> Iterator[Parts]:
    axis, room, left = placed.axis, placed.width, placed.begin - 1  # a margin is left of the rows
    if height < 2 or not numbered or left < LABEL or not LABEL // 2 < room <= width - left:
        return
    numbered = [
        numbered[index] for index in sampled(len(numbered), min(height - 1, MOST_INTERVALS))
    ]
    before, counted = _name(shown, shown.a), "starts" if shown.of_starts else "pairs "
    zero = before if cell_len(before) <= room // 6 else "0"
    yield ((" " * left + axis.labels(room, zero), "dim"),)
    for pairs, interval in numbered:
        ink = "strong" if pairs == numbered[-1][0] else "text"
        low, change, high = interval
        figure = whole((fmt.change(change, low, high),), width - left - room - 1)
        label = f"{pairs:>{LABEL - 8}} {counted} ".ljust(left)
        yield ((label, "dim"), (axis.bar(interval, room), ink), (f" {figure}", ink))


def _found(shown: ComparisonShown, width: int) -> list[Parts]:
    if shown.verdict is not None:
        mark, ink = ("✓ ", "better") if shown.proven else ("  ", "strong")
        lines = textwrap.wrap(fmt.plain(shown.verdict), max(width - 2, 1))
    else:
        mark, ink = "✗ ", "bad"
        lines = textwrap.wrap(f"no verdict: {fmt.plain(shown.failure or '')}", max(width - 2, 1))
        if interval_of(shown):
            lines += [fitted(f"{_name(shown, shown.b)} so far {change_of(shown)}", width - 2)]
    marks = [mark] + ["  "] * len(lines)
    return [((before, ink), (line, "strong")) for before, line in zip(marks, lines, strict=False)]


def _so_far(shown: ComparisonShown, width: int) -> Parts:
    if interval_of(shown) is None:
        text = f"{counted(shown)}: too few for an interval"
        if shown.of_starts and shown.pairs:
            name = fmt.clip(_name(shown, shown.b), width // 3)
            text = f"so far {name} {change_of(shown)}, {text}"
    else:
        word = "sure:" if shown.is_sure else "so far"
        text = f"{word} {_name(shown, shown.b)} {change_of(shown)}"
    goal = f"goal ±{100 * shown.precision:g} %" if shown.precision else ""
    return ((whole((text, goal), width, " " * GAP) or fitted(text, width), "strong"),)


def _check(shown: ComparisonShown, width: int) -> Parts:
    if shown.check_passed is None:
        said = f"needs about {pairs_until_check(shown.blocks)} more pairs"
    else:
        said = "✓ passed so far" if shown.check_passed else "✗ failed so far"
    ink = "bad" if shown.check_passed is False else "dim"
    return ((fitted(f"control (the same setting twice) {said}", width), ink),)


def _spent(shown: ComparisonShown, width: int, price: float | None) -> list[Parts]:
    asked = shown.energy is not None or bool(shown.why_no_energy)
    said = worth_lines(shown, price, energy=asked)
    wrapped = (textwrap.wrap(fmt.plain(one), max(width, 1), subsequent_indent="  ") for one in said)
    return [((line, "text"),) for lines in wrapped for line in lines]


def _sides(shown: ComparisonShown, width: int) -> list[Parts]:
    names = [fmt.plain(value) for value in (shown.a, shown.b)]
    name_width = min(max(map(cell_len, names)), max(width // 3, 1))
    columns = []
    for before, values, unit in figures(shown):
        texts = [fmt.figure(value) for value in values]
        longest = max(map(len, texts))
        columns.append([f"{before} {text:>{longest}} {unit}".removeprefix(" ") for text in texts])
    if not columns:
        return []
    rates = [rate or 0.0 for rate in shown.rates]
    rows: list[Parts] = []
    for side, (name, ink) in enumerate(zip(names, "ab", strict=True)):
        row = (
            (fitted(name, name_width), ink),
            ("  ", "text"),
            (whole([column[side] for column in columns], width - name_width - 2, "  "), "text"),
        )
        bar = bar_of(rates[side] / (max(rates) or 1.0), width - width_of(row) - GAP)
        rows.append((*row, (f"{' ' * GAP}{bar}", ink)))
    return rows
