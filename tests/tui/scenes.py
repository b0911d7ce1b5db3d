"""The states of the mock-ups as scripted snapshots: what a run on an H200 looks like.

Rates are those of benchmarks/RESULTS.md: encdec, data resident, serial and on two streams. How a
step divides into phases, and what the host does, is plausible and not measured.
"""

import math
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace as changed

from gpudash.protocol.readings import HostReading
from gpudash.protocol.session import ComparisonShown, Playback
from gpudash.snapshot import AB, BlockShown, Marker, Result, Series, Snapshot, Values
from tests.tui.fake_engine import CPU, H200, NO_GPU, PHASES, gpu_sample, settings

TICK_S = 0.5
GIB = 1024.0


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run with the same levers."""

    change: str
    """From the stretch before."""
    ticks: int
    batch: int
    steps_per_s: float
    ms: Mapping[str, float]
    """Of a step, by phase; `overlap` and `host` too."""
    power_w: float = 0.0
    memory_gib: float = 0.0

    @property
    def step_ms(self) -> float:
        return 1000 / self.steps_per_s


def stretch(change: str, ticks: int, batch: int, rate: float, *ms: float, gib: float) -> Stretch:
    """A stretch on the H200; `ms` of encode, forward, backward, optimizer, overlap and host."""
    names = ("prepare", "forward", "backward", "optimizer", "overlap", "host")
    power_w = 300.0 + 50 * math.log2(batch) - (20 if not ms[4] else 0)
    return Stretch(
        change=change, ticks=ticks, batch=batch, steps_per_s=rate,
        ms=dict(zip(names, ms, strict=True)), power_w=power_w, memory_gib=gib,
    )  # fmt: skip


SERIAL_8 = stretch("", 16, 8, 281.0, 1.06, 0.86, 1.42, 0.16, 0.0, 2.94, gib=1.4)
STREAMS_8 = stretch("pipelined=on", 16, 8, 328.8, 1.62, 1.14, 1.70, 0.16, 1.62, 2.64, gib=1.5)
STREAMS_16 = stretch("batch_size=16", 18, 16, 227.1, 2.71, 1.63, 2.55, 0.16, 2.71, 2.66, gib=2.0)
SERIAL_16 = stretch("pipelined=off", 18, 16, 195.5, 1.73, 1.22, 1.92, 0.16, 0.0, 2.97, gib=1.9)
SERIAL_32 = stretch("batch_size=32", 18, 32, 130.6, 2.73, 1.86, 2.84, 0.16, 0.0, 2.91, gib=2.7)
STREAMS_32 = stretch("pipelined=on", 20, 32, 146.2, 5.58, 2.69, 3.96, 0.16, 5.58, 2.61, gib=2.8)
RUN = (SERIAL_8, STREAMS_8, STREAMS_16, SERIAL_16, SERIAL_32, STREAMS_32)
"""What was tried in the first minute."""


def noisy(level: float, tick: int, share: float = 0.004, seed: float = 0.0) -> float:
    """A level with a little noise that is always the same."""
    return level * (1 + share * math.sin(12.9898 * tick + seed) + share * math.sin(tick / 5 + seed))


def at_tick(one: Stretch, tick: int) -> dict[str, float]:
    """What is measured of a stretch in one tick."""
    rate = noisy(one.steps_per_s, tick)
    device_ms = one.ms["forward"] + one.ms["backward"] + one.ms["optimizer"]
    device_ms += one.ms["prepare"] - one.ms["overlap"]
    measured = {
        "steps_per_s": rate,
        "samples_per_s": one.batch * rate,
        "step_ms": 1000 / rate,
        "data_ms": 0.01,
        "device_ms": min(device_ms, 1000 / rate),
        **{f"{name}_ms": noisy(ms, tick, seed=ms) for name, ms in one.ms.items()},
        "cpu_pct": noisy(104.0, tick, 0.02),
        "worker_rss_mib": noisy(3.1 * GIB, tick, 0.001),
        "core_wait_pct": abs(noisy(0.4, tick, 0.5)),
    }
    if one.ms["overlap"] == 0:
        del measured["overlap_ms"]
    if one.power_w:
        measured |= {
            "gpu_util_pct": 97.0 if one.ms["overlap"] == 0 else 100.0,
            "sm_active_pct": noisy(72 + 4 * math.log2(one.batch), tick, 0.01),
            "tensor_active_pct": noisy(18 + 4 * math.log2(one.batch), tick, 0.02),
            "dram_active_pct": noisy(16 + 3 * math.log2(one.batch), tick, 0.02),
            "mem_used_mib": one.memory_gib * GIB,
            "power_w": noisy(one.power_w, tick, 0.01),
            "sm_clock_mhz": 1980.0,
            "temperature_c": 41 + tick / 20,
        }
    return measured


def series_of(run: tuple[Stretch, ...]) -> Series:
    """The series of a run."""
    of_ticks = [one for one in run for _ in range(one.ticks)]
    ticks = [at_tick(one, tick) for tick, one in enumerate(of_ticks)]
    names = dict.fromkeys(name for tick in ticks for name in tick)
    values: dict[str, Values] = {name: tuple(tick.get(name) for tick in ticks) for name in names}
    return Series(at_s=tuple(TICK_S * (n + 1) for n in range(len(ticks))), values=values)


def markers_of(run: tuple[Stretch, ...]) -> tuple[Marker, ...]:
    """The changes between the stretches of a run."""
    begins = [sum(one.ticks for one in run[:n]) for n in range(1, len(run))]
    return tuple(
        Marker(kind="change", at_s=TICK_S * begin, label=one.change)
        for begin, one in zip(begins, run[1:], strict=True)
    )


def row_of(number: int, configuration: str, one: Stretch, **values: object) -> Result:
    """The results row of a stretch."""
    row = Result(
        number=number,
        configuration=configuration,
        workload="encdec",
        steps=round(one.ticks * TICK_S * one.steps_per_s) - 5,
        steps_per_s=one.steps_per_s,
        samples_per_s=one.batch * one.steps_per_s,
        step_ms_p50=one.step_ms,
        step_ms_p95=1.02 * one.step_ms,
        values={
            "host_ms": one.ms["host"],
            "gpu_util_pct": 97.0 if one.ms["overlap"] == 0 else 100.0,
            "cpu_pct": 104.0,
        },
    )
    return changed(row, **values)


NAMES = (
    "pipelined=off, batch_size=8",
    "pipelined=on",
    "pipelined=on, batch_size=16",
    "batch_size=16",
    "batch_size=32",
    "pipelined=on, batch_size=32",
)
SETTINGS = settings(pipelined="on", batch_size="32", data="resident")


def running() -> Snapshot:
    """Six settings were tried within a minute; the last one trains, on two streams."""
    series = series_of(RUN)
    now = STREAMS_32
    rows = tuple(
        row_of(n, name, one, live=one is now)
        for n, (name, one) in enumerate(zip(NAMES, RUN, strict=True), 1)
    )
    readings = {
        name: series.values[name][-1]
        for name in ("sm_active_pct", "tensor_active_pct", "dram_active_pct", "power_w")
    }
    return Snapshot(
        state="training",
        status="",
        elapsed_s=series.at_s[-1],
        training_s=series.at_s[-1] - 4.5,
        workload="encdec",
        device=H200,
        settings=SETTINGS,
        requested={"pipelined": "on", "batch_size": "32", "data": "resident"},
        worker_pid=4242,
        total_steps=10_323,
        total_samples=168_440,
        steps_since_break=1_450,
        phases=PHASES[1:],
        steps_per_s=146.2,
        samples_per_s=4678.0,
        step_ms_p50=6.84,
        step_ms_p95=6.94,
        loss=2.303,
        gpu=gpu_sample(
            gpu_util_pct=100.0, mem_used_mib=2.8 * GIB, temperature_c=47.0, **readings
        ),
        host=HostReading(
            at_s=0.0,
            values={
                "cpu_pct": 104.0,
                "worker_rss_mib": 3.1 * GIB,
                "core_wait_pct": 0.4,
                "usable_cores": 16.0,
            },
        ),
        series=series,
        markers=markers_of(RUN),
        results=rows,
        instruments_ms=0.009,
    )  # fmt: skip


PAIRS = 16
AFTER = changed(SERIAL_32, ticks=14)
"""What runs when an A/B of two streams has ended: what ran before it."""


def compared(pairs: int) -> ComparisonShown:
    """The A/B of pipelining at batch 32: 12.0 % faster [11.9, 12.1]."""
    history = tuple(
        (0.1197 - 0.2 / n**2, 0.1197 + 0.01 * math.sin(n) / n**2, 0.1197 + 0.25 / n**2)
        for n in range(5, pairs + 1)
    )
    low, change, high = history[-1]
    return ComparisonShown(
        lever="pipelined",
        a="off",
        b="on",
        pairs=pairs,
        planned_pairs=40,
        change=change,
        low=low,
        high=high,
        history=history,
        sides={
            "steps_per_s": (130.6, 146.2),
            "samples_per_s": (4179.0, 4678.0),
            "host_ms": (2.91, 2.61),
        },
        core_wait_pct=0.4,
        verdict=None,
        failure=None,
        precision=0.005,
        blocks="ABBABAABBAABABBAABBABAABBAABABBA"[: 2 * pairs],
        check_passed=True if pairs >= 8 else None,
        settings={name: value for name, value in SETTINGS.items() if name != "pipelined"},
    )


BLOCK_TICKS = 3


def blocks_of(one: ComparisonShown, begin_tick: int) -> tuple[BlockShown, ...]:
    """The blocks of a comparison on the time axis."""
    return tuple(
        BlockShown(
            begin_s=TICK_S * (begin_tick + BLOCK_TICKS * number),
            end_s=TICK_S * (begin_tick + BLOCK_TICKS * (number + 1)),
            side="a" if side == "A" else "b",
        )
        for number, side in enumerate(one.blocks)
    )


def serial() -> Snapshot:
    """Two batch sizes were tried on one stream; the larger one trains."""
    run = (SERIAL_8, SERIAL_32)
    series = series_of(run)
    return changed(
        running(),
        elapsed_s=series.at_s[-1],
        total_steps=3_424,
        total_samples=55_616,
        steps_since_break=1_170,
        steps_per_s=SERIAL_32.steps_per_s,
        samples_per_s=32 * SERIAL_32.steps_per_s,
        step_ms_p50=7.66,
        step_ms_p95=7.72,
        settings=settings(pipelined="off", batch_size="32", data="resident"),
        series=series,
        markers=markers_of(run),
        results=(
            row_of(1, NAMES[0], SERIAL_8),
            row_of(2, NAMES[4], SERIAL_32, live=True),
        ),
    )


def comparing(pairs: int = 9, *after: Stretch) -> Snapshot:
    """An A/B of pipelining runs, begun in `serial`."""
    before, one = serial(), compared(pairs)
    sides = {
        "A": changed(SERIAL_32, ticks=BLOCK_TICKS),
        "B": changed(STREAMS_32, ticks=BLOCK_TICKS),
    }
    series = series_of((SERIAL_8, SERIAL_32, *(sides[side] for side in one.blocks), *after))
    newest = after[-1] if after else sides[one.blocks[-1]]
    return changed(
        before,
        elapsed_s=series.at_s[-1],
        total_steps=before.total_steps + 138 * 3 * pairs,
        steps_per_s=newest.steps_per_s,
        samples_per_s=newest.batch * newest.steps_per_s,
        series=series,
        markers=(*before.markers, Marker(kind="blocks", at_s=before.series.at_s[-1], label=AB)),
        comparison=one,
        blocks=blocks_of(one, len(before.series.at_s)),
    )


VERDICT = "pipelined=on is 12.0 % faster [11.9, 12.1], 16 pairs, control passed"


def decided() -> Snapshot:
    """The A/B of `comparing` has ended with a verdict."""
    before = comparing(PAIRS, AFTER)
    one = changed(compared(PAIRS), verdict=VERDICT)
    steps = round(AFTER.ticks * TICK_S * AFTER.steps_per_s)
    return changed(
        before,
        steps_since_break=steps,
        comparison=one,
        verdicts=(one,),
    )


def starting() -> Snapshot:
    """The worker imports torch."""
    return Snapshot(
        state="starting",
        awaits="torch",
        status="importing torch",
        elapsed_s=2.4,
        workload="encdec",
        settings={"data": "resident"},
        requested={"data": "resident"},
        worker_pid=4242,
    )


CPU_STEP = Stretch(
    change="", ticks=60, batch=4, steps_per_s=3.1,
    ms={"prepare": 118.0, "forward": 61.0, "backward": 128.0, "optimizer": 11.0,
        "overlap": 0.0, "host": 322.0},
)  # fmt: skip


def without_gpu() -> Snapshot:
    """A small model trains on two cores."""
    series = series_of((CPU_STEP,))
    row = row_of(1, "pipelined=off, batch_size=4", CPU_STEP, live=True)
    row = changed(row, values={"host_ms": CPU_STEP.ms["host"], "cpu_pct": 104.0})
    return changed(
        running(),
        elapsed_s=series.at_s[-1],
        device=CPU,
        settings=settings(model_scale="small", batch_size="4", num_workers="0"),
        requested={"model_scale": "small", "batch_size": "4", "num_workers": "0"},
        total_steps=92,
        total_samples=368,
        steps_since_break=92,
        steps_per_s=3.1,
        samples_per_s=12.4,
        step_ms_p50=322.0,
        step_ms_p95=341.0,
        gpu=None,
        gpu_missing=NO_GPU,
        host=HostReading(
            at_s=0.0,
            values={
                "cpu_pct": 188.0,
                "worker_rss_mib": 620.0,
                "core_wait_pct": 1.2,
                "usable_cores": 16.0,
            },
        ),
        series=with_values(series, cpu_pct=188.0, worker_rss_mib=620.0, device_ms=318.0),
        markers=(),
        results=(row,),
    )


def with_values(series: Series, **levels: float) -> Series:
    """The series with these metrics at a level of their own."""
    ticks = range(len(series.at_s))
    values = {name: tuple(noisy(one, tick) for tick in ticks) for name, one in levels.items()}
    return changed(series, values=series.values | values)


FAILURE = "out of memory on the GPU at batch_size=4096: 139.8 of 140.4 GiB were in use"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "gpudash/worker/loop.py", line 301, in run',
    "    self._steps.train(batch)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.40 GiB.",
)


def failed() -> Snapshot:
    """The batch did not fit: the worker has ended, its rows stay."""
    before = running()
    return changed(
        before,
        state="failed",
        requested={"pipelined": "on", "batch_size": "4096", "data": "resident"},
        status=FAILURE,
        steps_per_s=None,
        samples_per_s=None,
        results=tuple(changed(row, live=False) for row in before.results),
    )


def replayed() -> Snapshot:
    """A recording of `running` at its 31st second, four times as fast."""
    run = (SERIAL_8, STREAMS_8, STREAMS_16, changed(SERIAL_16, ticks=12))
    series = series_of(run)
    whole = running()
    playback = Playback(
        name="h200.csv",
        position_s=31.0,
        length_s=whole.elapsed_s,
        speed=4.0,
        markers=tuple((marker.at_s, marker.label) for marker in whole.markers),
    )
    return changed(
        whole,
        can=(),
        playback=playback,
        elapsed_s=31.0,
        settings=settings(pipelined="off", batch_size="16", data="resident"),
        total_steps=7_741,
        steps_since_break=1_170,
        steps_per_s=195.5,
        samples_per_s=3128.0,
        step_ms_p50=5.11,
        step_ms_p95=5.22,
        series=series,
        markers=markers_of(run),
        results=tuple(
            changed(row, live=number == 4) for number, row in enumerate(whole.results[:4], 1)
        ),
    )
