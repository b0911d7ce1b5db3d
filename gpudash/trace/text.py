"""Format a profile as plain text, at most 80 columns wide."""

from collections.abc import Iterator

from gpudash.format import (
    ABSENT,
    clip,
    memory,
    milliseconds,
    percent,
    plain,
    significant,
    source_line,
)
from gpudash.trace.compare import KernelChange, ProfileComparison, TotalChange
from gpudash.trace.names import short
from gpudash.trace.summary import CopyUse, IdleCause, KernelUse, Summary, SyncUse

WIDTH = 80
LABEL = 34
MOST = 10
"""Most lines of a table."""
CAUSES: dict[IdleCause, str] = {
    "host": "the host had launched nothing",
    "stream": "waited for another stream",
    "communication": "waited for communication",
    "other": "between kernels, and unknown",
}
GAPS = ("below 10 µs", "10 to 100 µs", "100 µs to 1 ms", "1 to 10 ms", "10 ms and more")


def summary_lines(summary: Summary, most: int = MOST) -> list[str]:
    """Return a summary as lines; tables show the `most` largest."""
    return [clip(line, WIDTH).rstrip() for line in _summary(summary, most)]


def _summary(summary: Summary, most: int) -> Iterator[str]:
    step_ms = summary.step_ms
    plural = "s" if summary.steps != 1 else ""
    where = f" on {summary.device}" if summary.device else ""
    yield f"{summary.steps:,} step{plural} traced{where}; all values are means for one step"
    yield _row("step", step_ms)
    if summary.loader_ms is not None:
        yield _row("waits for the next batch", summary.loader_ms, step_ms)
    if not summary.on_device:
        yield "no device events: this is a trace of the host alone"
    else:
        yield _row("device busy", summary.busy_ms, step_ms)
        yield _row("device idle", sum(summary.idle_ms.values()), step_ms)
        for cause, ms in summary.idle_ms.items():
            yield _row(f"  {CAUSES[cause]}", ms, step_ms)
        yield _row("two streams at once", summary.overlap_ms, step_ms)
        for stream in summary.streams:
            yield _row(f"  {stream.label}", stream.busy_ms, step_ms)
        yield _row("launch calls on the host", summary.launch_ms, step_ms, summary.launches)
        yield _row("copy calls on the host", summary.copy_call_ms, step_ms)
        yield _row("host waits for the device", summary.blocked_ms, step_ms)
        if summary.communication_ms:
            yield _row("communication", summary.communication_ms, step_ms)
            yield _row("  nothing else ran meanwhile", summary.exposed_ms, step_ms)
        yield f"{'kernel time in tensor cores':{LABEL}}{percent(summary.tensor_core_pct):>18}"
        mfu = f"{'model flops of measured peak':{LABEL}}{percent(summary.mfu_pct):>18}"
        yield f"{mfu}  {_untraced(summary)}"
    yield from _table("syncs", "ms", map(_sync, summary.syncs[:most]), len(summary.syncs))
    yield from _table(
        "kernels (* in tensor cores)",
        "ms",
        (_kernel(one) for one in summary.kernels[:most]),
        len(summary.kernels),
    )
    yield from _table("copies", "ms", map(_copy, summary.copies), len(summary.copies))
    if summary.gaps:
        rows = (
            _table_row(ms, count, name)
            for name, (_, count, ms) in zip(GAPS, summary.gaps, strict=True)
        )
        yield from _table("gaps on the device", "ms", rows, len(GAPS))
    operators = (_table_row(one.self_ms, one.count, one.name) for one in summary.operators[:most])
    yield from _table("operators on the host", "self ms", operators, len(summary.operators))
    if summary.dropped or summary.is_cut:
        yield ""
    if summary.is_cut:
        yield "the file ends early: this is what it holds until there"
    if summary.dropped:
        yield f"{summary.dropped:,} events contradicted themselves and were left out"


def comparison_lines(comparison: ProfileComparison, most: int = MOST) -> list[str]:
    """Return a comparison as lines."""
    lines = [f"{'':{LABEL}}{'before':>10}{'after':>10}{'change':>10}"]
    known = (one for one in comparison.totals if (one.before, one.after) != (None, None))
    lines += map(_total, known)
    rows = map(_kernel_change, comparison.kernels[:most])
    lines += ["", f"{'before ms':>9}{'after ms':>10}{'change':>9}  kernel", *rows]
    lines += _more(len(comparison.kernels) - most)
    return [clip(line, WIDTH).rstrip() for line in lines]


def _row(
    what: str, ms: float | None, of_ms: float | None = None, count: float | None = None
) -> str:
    share = percent(100 * ms / of_ms) if ms is not None and of_ms else ""
    times = f"  {_count(count)} times" if count is not None else ""
    unit = "" if ms is None else "ms"
    return f"{clip(what, LABEL - 1):{LABEL}}{milliseconds(ms):>7} {unit:2}{share:>8}{times}"


def _untraced(summary: Summary) -> str:
    """Return whether the flops are of an untraced or a traced step."""
    if summary.mfu_pct is None or summary.profiled is None:
        return ""
    untraced_ms = summary.profiled.untraced_step_ms
    return f"untraced: {milliseconds(untraced_ms)} ms" if untraced_ms else "while traced"


def _table(title: str, unit: str, rows: Iterator[str], there_are: int) -> Iterator[str]:
    shown = list(rows)
    if shown:
        yield ""
        yield f"{unit:>9}{'count':>9}  {title}"
        yield from shown
        yield from _more(there_are - len(shown))


def _more(left: int) -> list[str]:
    return [f"{'':20}and {left:,} more"] if left > 0 else []


def _table_row(ms: float, count: float, what: str) -> str:
    return f"{milliseconds(ms):>9}{_count(count):>9}  {plain(what)}"


def _count(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 or count == round(count) else f"{count:.1f}"


def _kernel(one: KernelUse) -> str:
    mark = "*" if one.uses_tensor_cores else " "
    who = " in ".join(filter(None, (one.operator.removeprefix("aten::"), one.module))) or ABSENT
    return _table_row(one.ms, one.count, f"{mark} {clip(who, 22):22}  {short(one.name)}")


def _copy(one: CopyUse) -> str:
    pinned = {True: ", pinned", False: ", pageable", None: ""}[one.is_pinned]
    rate = f"{significant(one.gb_s)} GB/s"
    return _table_row(one.ms, one.count, f"{one.direction}{pinned}  {memory(one.mib)}  {rate}")


def _sync(one: SyncUse) -> str:
    where = f"{source_line(one.file, one.line)}  " if one.file else ""
    return _table_row(one.blocked_ms, one.count, f"{where}{one.what}")


def _total(one: TotalChange) -> str:
    change = None if one.before is None or one.after is None else one.after - one.before
    what = f"{one.what} ({one.unit})" if one.unit else one.what
    values = f"{significant(one.before):>10}{significant(one.after):>10}{_signed(change):>10}"
    return f"{clip(what, LABEL - 1):{LABEL}}{values}"


def _kernel_change(one: KernelChange) -> str:
    before, after = (milliseconds(use.ms) if use else ABSENT for use in (one.before, one.after))
    return f"{before:>9}{after:>10}{_signed(one.change_ms):>9}  {short(one.name)}"


def _signed(value: float | None) -> str:
    if value is None:
        return ABSENT
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return f"{sign}{significant(abs(value))}"
