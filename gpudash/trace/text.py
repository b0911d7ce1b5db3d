"""Word a profile: as blocks of rows, which the screen lays out, and as plain text of 80 columns."""

from collections.abc import Iterator
from itertools import chain
from textwrap import wrap

import msgspec
from msgspec.structs import replace

from gpudash.format import (
    ABSENT,
    clip,
    milliseconds,
    percent,
    plain,
    significant,
    source_line,
)
from gpudash.trace.mfu import CONVENTION, flop, mfu_by_phase, mfu_text
from gpudash.trace.names import short
from gpudash.trace.summary import (
    CAUSES,
    CopyUse,
    IdleCause,
    KernelChange,
    KernelUse,
    Phase,
    ProfileComparison,
    Summary,
    SyncUse,
    TotalChange,
)

WIDTH = 80
LABEL = 34
VALUE, SHARE = 10, 7
MOST = 10
"""Most rows of a block."""
PHASE: dict[Phase, str] = {
    "data": "waits for data",
    "copy": "copy",
    "frozen": "forward, frozen",
    "forward": "forward",
    "backward": "backward",
    "communication": "communication",
    "optimizer": "optimizer",
    "graph": "graph",
    "other": "other work",
}
IDLE: dict[IdleCause, str] = {
    "host": "nothing was launched",
    "stream": "another stream",
    "communication": "communication",
    "other": "between kernels",
}
EVALUATE = "autograd::engine::evaluate_function: "
GAPS = ("below 10 µs", "of 10 to 100 µs", "of 0.1 to 1 ms", "of 1 to 10 ms", "over 10 ms")
KERNELS, OPERATORS = "kernels and copies (* tensor cores)", "operators on the host, own time"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a block, a sentence if it has no value."""

    what: str
    value: str = ""
    share: str = ""
    """Of the step, in percent."""
    more: str = ""
    """What stands behind it where there is room."""
    ms: float | None = None
    """The length of its bar; None for none."""
    hue: str = "idle"
    """What the bar has the colour of: a phase, a kind of event, `overlap` or `idle`."""


class Section(msgspec.Struct, frozen=True):
    """Rows with a common title."""

    title: str
    rows: tuple[Figure, ...]
    is_list: bool = False
    """Whether the longest come first, and the last may be left out."""
    full_ms: float | None = None
    """What a full bar stands for; None: the longest one."""

    def cut(self, most: int) -> "Section":
        if not self.is_list or len(self.rows) <= most or most < 1:
            return self
        left = self.rows[most - 1 :]
        took_ms = sum(row.ms or 0.0 for row in left)
        value = _ms(took_ms) if took_ms else ""
        others = Figure(what=f"{len(left):,} others", value=value)
        return replace(self, rows=(*self.rows[: most - 1], others))


def blocks(summary: Summary) -> tuple[Section, ...]:
    step_ms = summary.step_ms
    mean = f"one step, mean of {summary.steps:,}" if summary.steps != 1 else "one step"
    found = (
        Section(mean, tuple(_phases(summary)), full_ms=step_ms),
        Section(KERNELS, tuple(_kernels(summary)), is_list=True),
        Section(OPERATORS, () if summary.on_device else tuple(_operators(summary)), is_list=True),
        Section("the host waits", tuple(_waits(summary)), is_list=True, full_ms=step_ms),
        Section("the GPU", tuple(_device(summary)) if summary.on_device else (), full_ms=step_ms),
        Section("arithmetic and memory", tuple(_arithmetic(summary))),
        Section("not in the trace", tuple(_missing(summary))),
    )
    return tuple(block for block in found if block.rows)


def summary_lines(summary: Summary, most: int = MOST) -> list[str]:
    steps = f"{summary.steps:,} step{'s' * (summary.steps != 1)} traced"
    lines = [f"{steps}{f' on {summary.device}' if summary.device else ''}; all values are means"]
    for block in blocks(summary):
        lines += ["", block.title, *chain.from_iterable(map(_lines, block.cut(most).rows))]
    return [clip(line, WIDTH).rstrip() for line in lines]


def _lines(row: Figure) -> list[str]:
    if not row.value:
        return wrap(row.what, WIDTH, initial_indent="  ", subsequent_indent="    ")
    what = clip(row.what, LABEL - 1)
    return [f"  {what:{LABEL}}{row.value:>{VALUE}}{row.share:>{SHARE}}  {row.more}"]


# ── the blocks ──────────────────────────────────────────────────────────────────────────


def _phases(summary: Summary) -> Iterator[Figure]:
    for phase, ms in summary.phases_ms.items():
        yield _part(summary, PHASE[phase], ms, phase)
    rest_ms = summary.step_ms - sum(summary.phases_ms.values())
    idle = "otherwise idle" if "data" in summary.phases_ms else "GPU idle"
    if summary.phases_ms and rest_ms > 0:
        if summary.on_device:
            yield _part(summary, idle, rest_ms)
        else:
            yield _part(summary, "none of these", rest_ms, "other")
    yield replace(_part(summary, "step", summary.step_ms), ms=None)


def _kernels(summary: Summary) -> Iterator[Figure]:
    rows = [*map(_kernel, summary.kernels), *map(_copy, summary.copies)]
    yield from sorted(rows, key=lambda row: -(row.ms or 0.0))


def _kernel(one: KernelUse) -> Figure:
    name, mark = plain(short(one.name)), "* " * one.uses_tensor_cores
    operator = _operator(one.operator)
    if one.module:
        what = f"{operator or name} in {plain(one.module)}"
        return _longest(f"{mark}{what}", one.ms, one.count, name if operator else "")
    what = f"{operator} {name.partition('<')[0]}" if operator else name
    return _longest(f"{mark}{what}", one.ms, one.count)


def _operator(name: str) -> str:
    return plain(name.removeprefix("aten::").replace(EVALUATE, "autograd: "))


def _copy(one: CopyUse) -> Figure:
    pinned = {True: ", pinned", False: ", pageable", None: ""}[one.is_pinned]
    size = f"{significant(one.mib)} MiB, {significant(one.gb_s)} GB/s"
    return replace(_longest(f"copy {one.direction}{pinned}", one.ms, one.count, size), hue="copy")


def _operators(summary: Summary) -> Iterator[Figure]:
    for one in summary.operators:
        row = _longest(_operator(one.name), one.self_ms, one.count)
        yield replace(row, hue="operator")


def _waits(summary: Summary) -> Iterator[Figure]:
    if summary.loader_ms is not None:
        yield _part(summary, "in next(DataLoader)", summary.loader_ms, "data")
    if summary.on_device:
        yield _part(summary, "for the GPU", summary.blocked_ms, "sync")
        if summary.allocation_ms:
            memory = _part(summary, "for device memory", summary.allocation_ms, "sync")
            yield replace(memory, more=f"asked {_times(summary.allocations or 0.0)}")
        yield _part(summary, "in calls that copy", summary.copy_call_ms, "copy")
        yield from map(_sync, summary.syncs)


def _sync(one: SyncUse) -> Figure:
    where = f"{source_line(one.file, one.line)}  " if one.file else ""
    times = _times(one.count)
    return Figure(what=plain(f"  {where}{one.what}"), value=_ms(one.blocked_ms), more=times)


def _device(summary: Summary) -> Iterator[Figure]:
    yield _part(summary, "busy", summary.busy_ms, "kernel")
    for stream in summary.streams if len(summary.streams) > 1 else ():
        yield _part(summary, f"  {stream.label}", stream.busy_ms, "kernel")
    if summary.overlap_ms is not None:
        yield _part(summary, "  two streams at once", summary.overlap_ms, "overlap")
    yield _part(summary, "idle", sum(summary.idle_ms.values()))
    data_ms = summary.phases_ms.get("data", 0.0)
    if data_ms:
        yield _part(summary, f"  {PHASE['data']}", data_ms, "data")
    for cause in CAUSES:
        ms = summary.idle_ms.get(cause, 0.0) - (data_ms if cause == "host" else 0.0)
        if ms > 0:
            yield _part(summary, f"  {IDLE[cause]}", ms)
    if summary.communication_ms:
        communication = _part(summary, "communication", summary.communication_ms, "collective")
        yield replace(communication, more=_times(summary.collectives or 0.0))
        yield _part(summary, "  nothing else ran", summary.exposed_ms, "collective")
    each_us = 1e3 * (summary.launch_ms or 0.0) / summary.launches if summary.launches else None
    times = f"{_times(summary.launches or 0.0)}, {significant(each_us)} µs each"
    launching = _part(summary, "launch calls", summary.launch_ms, "runtime")
    yield replace(launching, more=times if summary.launches else "")
    for name, (_, count, ms) in zip(GAPS, summary.gaps, strict=False):
        if count:
            gaps = f"{_count(count)} gap{'s' * (count != 1)} {name}"
            yield Figure(what=gaps, value=_ms(ms), ms=ms)


def _arithmetic(summary: Summary) -> Iterator[Figure]:
    noted = summary.profiled
    if noted is not None and noted.flops is not None:
        gflop, untraced_ms = noted.flops.step_gflop, noted.untraced_step_ms
        rate = flop(gflop / (untraced_ms or summary.step_ms) * 1e3)
        which = "untraced" if untraced_ms else "while traced"
        yield Figure(what=f"{flop(gflop)} a step: {rate}/s {which}")
        if noted.flops.covered_pct < 99.5:
            yield Figure(what=f"counted in {percent(noted.flops.covered_pct)} of the products")
        yield Figure(what=mfu_text(noted))
        by_phase = mfu_by_phase(noted)
        if by_phase:
            yield Figure(what=by_phase)
        yield Figure(what=f"MFU counts {CONVENTION}")
    if summary.tensor_core_pct is not None:
        yield Figure(what=f"{percent(summary.tensor_core_pct)} of kernel time in tensor cores")
    weights = noted.weights if noted is not None else None
    if weights is not None:
        state = f"optimizer state {significant(weights.state_mib)} MiB"
        yield Figure(what=f"weights {significant(weights.mib)} MiB, {state}")


def _missing(summary: Summary) -> Iterator[Figure]:
    """Yield what the trace cannot tell, so that nobody takes it for zero."""
    untraced_ms = summary.profiled.untraced_step_ms if summary.profiled is not None else None
    if not summary.on_device:
        yield Figure(what="no device events: this is a trace of the host alone")
    if untraced_ms:
        slower = f"traced {summary.step_ms / untraced_ms:.1f} times that"
        yield Figure(what=f"untraced a step took {_ms(untraced_ms)}, {slower}")
    else:
        yield Figure(what="how long a step takes untraced: tracing slows it")
    if summary.loader_ms is None:
        yield Figure(what="waits for data: no DataLoader was called")
    else:
        yield Figure(what="what loader workers do: they are processes of their own")
    if summary.is_cut:
        yield Figure(what="what followed: the file ends early")
    if summary.dropped:
        yield Figure(what=f"{summary.dropped:,} events: they contradicted themselves")


def _part(
    summary: Summary,
    what: str,
    ms: float | None,
    hue: str = "idle",
) -> Figure:
    share = percent(100 * ms / summary.step_ms) if ms is not None and summary.step_ms else ""
    return Figure(what=what, value=_ms(ms), share=share, ms=ms, hue=hue)


def _longest(what: str, ms: float, count: float, more: str = "") -> Figure:
    times = _times(count)
    return Figure(
        what=what, value=_ms(ms), more=", ".join(filter(None, (times, more))), ms=ms, hue="kernel"
    )


def _ms(ms: float | None) -> str:
    return ABSENT if ms is None else f"{milliseconds(ms)} ms"


def _times(count: float) -> str:
    return f"{_count(count)} time{'s' * (count != 1)}"


def _count(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 or count == round(count) else f"{count:.1f}"


# ── changes ─────────────────────────────────────────────────────────────────────────────


def comparison_lines(comparison: ProfileComparison, most: int = MOST) -> list[str]:
    lines = [f"{'':{LABEL}}{'before':>10}{'after':>10}{'change':>10}"]
    known = (one for one in comparison.totals if (one.before, one.after) != (None, None))
    lines += map(_total, known)
    rows = map(_kernel_change, comparison.kernels[:most])
    lines += ["", f"{'before ms':>9}{'after ms':>10}{'change':>9}  kernel", *rows]
    lines += _more(len(comparison.kernels) - most)
    return [clip(line, WIDTH).rstrip() for line in lines]


def _more(left: int) -> list[str]:
    return [f"{'':20}and {left:,} more"] if left > 0 else []


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
