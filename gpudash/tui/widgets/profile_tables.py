"""What a step's time goes into, as tables: pure functions from a summary to rows of text."""

from collections.abc import Iterator

import msgspec
from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.trace.summary import IdleCause, Summary, SyncUse
from gpudash.tui.cells import Parts, fitted

GAP = 2
LEAST_NAME = 16
"""Columns that a table's first column keeps: numbers give way to it, the last first."""
MOST_ROWS = 20
"""Of a table."""
IDLE: dict[IdleCause, tuple[str, str]] = {
    "host": ("idle: the host had launched nothing", "operator"),
    "stream": ("idle: a stream waited for another", "copy"),
    "communication": ("idle: a collective was waited for", "collective"),
    "other": ("idle: cause unknown", "runtime"),
}
"""Why the device is idle → words, and whose hue in the timeline it has."""


class Table(msgspec.Struct, frozen=True):
    """What its rows are, the heads of the numbers, and rows of a text and its numbers."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


def summary_rows(summary: Summary, width: int) -> Iterator[Parts]:
    """Yield the page of one profile."""
    steps = f"mean of {summary.steps} steps" if summary.steps != 1 else "one step"
    yield _text(f"a step took {_ms(summary.step_ms)} while it was traced, {steps}", width, "strong")
    if summary.on_device:
        yield from _split_rows(summary, width)
    else:
        yield _text("the trace has no device events", width, "dim")
    for fact in facts(summary):
        yield _text(fact, width)
    for table in tables(summary):
        if table.rows:
            yield ()
            yield from table_rows(table, width)


def _text(text: str, width: int, ink: str = "text") -> Parts:
    return ((fitted(f" {text}", width), ink),)


def _ms(value: float | None) -> str:
    return fmt.ABSENT if value is None else f"{fmt.significant(value)} ms"


def _split_rows(summary: Summary, width: int) -> Iterator[Parts]:
    """Yield the device's step as a bar, and what its parts are."""
    whole_ms = summary.step_ms or 1.0
    idle = [(*IDLE[cause], ms) for cause, ms in summary.idle_ms.items() if ms > 0]
    parts = [("busy", "kernel", summary.busy_ms or 0.0), *idle]
    columns, until_ms, bar = max(width - 2, 0), 0.0, []
    for _, hue, ms in parts:
        begin, until_ms = round(until_ms / whole_ms * columns), until_ms + ms
        end = min(round(until_ms / whole_ms * columns), columns)
        bar.append((" " * (end - begin), f"lit-{hue}"))
    yield ((" ", "text"), *bar)
    for name, hue, ms in parts:
        words = f" {_ms(ms):>9} {fmt.percent(100 * ms / whole_ms):>5}  {name}"
        yield ((" ", "text"), ("  ", f"lit-{hue}"), (fitted(words, max(width - 3, 0)), "text"))


def facts(summary: Summary) -> Iterator[str]:
    """Yield what is told in a sentence each; nothing of what was not measured."""
    if summary.overlap_ms is not None:
        yield f"two streams or more at work: {_ms(summary.overlap_ms)}"
    if summary.launches is not None:
        spent = f", the host spent {_ms(summary.launch_ms)} in them" if summary.launch_ms else ""
        yield f"launches: {fmt.significant(summary.launches)}{spent}"
    if summary.blocked_ms is not None:
        yield f"the host waited for the device: {_ms(summary.blocked_ms)}"
    if summary.communication_ms is not None:
        exposed = f", {_ms(summary.exposed_ms)} of it with nothing else at work"
        yield f"communication: {_ms(summary.communication_ms)}{exposed}"
    if summary.tensor_core_pct is not None:
        share = fmt.percent(summary.tensor_core_pct)
        yield f"kernels that use tensor cores: {share} of kernel time"
    if summary.mfu_pct is not None:
        yield f"MFU: {fmt.percent(summary.mfu_pct)} of the peak that was measured here"
    if summary.profiled is not None:
        yield f"profiling took {_ms(summary.profiled.took_ms)} besides its steps"
    if summary.dropped:
        yield f"left out as impossible: {summary.dropped:,} events"


def tables(summary: Summary) -> tuple[Table, ...]:
    """Return the tables, what can be acted upon first. All numbers are of one step."""
    number = fmt.significant
    return (
        Table(
            "the host waits for the device",
            ("ms", "count"),
            [(_sync(one), number(one.blocked_ms), number(one.count)) for one in summary.syncs],
        ),
        Table(
            "kernels",
            ("ms", "count", "tensor"),
            [
                (
                    " · ".join(filter(None, (one.name, one.operator, one.module))),
                    number(one.ms),
                    number(one.count),
                    "yes" if one.uses_tensor_cores else "no",
                )
                for one in summary.kernels
            ],
        ),
        Table(
            "operators, without what they call",
            ("host ms", "count"),
            [(one.name, number(one.self_ms), number(one.count)) for one in summary.operators],
        ),
        Table(
            "streams",
            ("busy ms", "kernels"),
            [(one.label, number(one.busy_ms), number(one.kernels)) for one in summary.streams],
        ),
        Table(
            "copies",
            ("ms", "count", "MiB", "GB/s"),
            [
                (
                    one.direction + PINNED[one.is_pinned],
                    number(one.ms),
                    number(one.count),
                    number(one.mib),
                    number(one.gb_s),
                )
                for one in summary.copies
            ],
        ),
        Table(
            "gaps between the device's work",
            ("ms", "count"),
            [(_gap(least_us), number(ms), number(count)) for least_us, count, ms in summary.gaps],
        ),
    )


PINNED = {True: ", pinned", False: ", not pinned", None: ""}


def _sync(one: SyncUse) -> str:
    """Return where the wait is and what waits there."""
    if not one.file:
        return one.what
    function = f" in {one.function}" if one.function else ""
    return f"{one.file}:{one.line}{function} · {one.what}"


def _gap(least_us: float) -> str:
    if least_us <= 0:
        return "shorter than 10 µs"
    return f"from {least_us:g} µs on" if least_us < 1e3 else f"from {least_us / 1e3:g} ms on"


def table_rows(table: Table, width: int) -> Iterator[Parts]:
    """Yield the table; where it is narrow, without its last columns."""
    shown = table.rows[:MOST_ROWS]
    columns = [
        GAP + max(cell_len(text) for text in column)
        for column in zip(table.heads, *(row[1:] for row in shown), strict=True)
    ]
    while columns and width - 2 - sum(columns) < LEAST_NAME:
        columns.pop()
    name = max(width - 2 - sum(columns), 0)
    left = len(table.rows) - len(shown)
    title = f"{table.title}{f', {left:,} more' if left > 0 else ''}"
    for first, numbers, ink in (
        (title, table.heads, "head"),
        *((fmt.plain(row[0]), row[1:], "text") for row in shown),
    ):
        cells = "".join(f"{text:>{size}}" for text, size in zip(numbers, columns, strict=False))
        yield ((f" {fitted(first, name)}{cells}", ink),)
