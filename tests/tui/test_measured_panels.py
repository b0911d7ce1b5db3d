"""The panels of step time, activity and device, each alone, at many sizes."""

from itertools import cycle

import msgspec
import pytest
from textual.geometry import Size

from gpudash.present.axes import TimeView
from gpudash.present.cells import LEVELS, width_of
from gpudash.present.readings import ShownReading, readings, sparklines
from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import Phase
from gpudash.snapshot import Marker, Series, Snapshot
from gpudash.tui.widgets.readings import Activity, device_lines
from gpudash.tui.widgets.step_time import StepTime
from gpudash.worker.phases import phases
from tests.tui.fake_engine import gpu_sample, training, wave, with_series
from tests.tui.frames import painted, painted_at

LIVE = TimeView()
AT_10_S = TimeView(end_s=20.0, cursor_s=10.0)
SIZES = [(1, 1), (3, 3), (12, 4), (38, 26), (85, 9), (200, 60)]


def run(**changes):
    """Half a minute, then pipelined."""
    at = with_series(
        training(60),
        overlap_ms=(None,) * 30 + (0.9,) * 30,
        tensor_active_pct=wave(60, 38),
        sm_clock_mhz=(1980.0,) * 60,
    )
    return msgspec.structs.replace(at, **{"phases": phases("encode"), **changes})


def scaled(factor):
    """Everything so many times as large."""
    at = run()
    series = {
        name: tuple(None if value is None else factor * value for value in values)
        for name, values in at.series.values.items()
    }
    return with_series(
        msgspec.structs.replace(
            at,
            step_ms_p50=factor,
            step_ms_p95=factor,
            gpu=msgspec.structs.replace(
                at.gpu,
                values={
                    name: value if isinstance(value, str) else factor * value
                    for name, value in at.gpu.values.items()
                },
            ),
        ),
        **series,
    )


HOSTILE = "\x1b[31m漢字 שלום" * 9
SNAPSHOTS = {
    "nothing": Snapshot(),
    "one tick": msgspec.structs.replace(run(), series=training(1).series),
    "gpu": run(),
    "cpu": training(on_gpu=False),
    "tiny values": scaled(1e-6),
    "huge values": scaled(1e12),
    "not finite": with_series(run(), step_ms=(float("inf"), float("nan")) * 30),
    "hostile": run(
        phases=(Phase(name="forward", label=HOSTILE, lane="train"),),
        transform_ms={HOSTILE: 1.0},
        gpu=None,
        gpu_missing="\x1b[31m" * 40,
        markers=tuple(
            Marker(kind="change", at_s=float(at_s), label=HOSTILE) for at_s in range(-5, 99)
        ),
    ),
}


def seen(panel, size, *shown):
    panel.show(*shown)
    return "\n".join(painted(panel, size))


# ── any size, anything measured ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("snapshot", SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_no_size_and_no_value_is_too_much(snapshot):
    whole = Activity(id="activity")
    whole.whole = True
    for panel in (StepTime(id="step"), Activity(id="activity"), whole):
        for (width, height), look in zip(SIZES, cycle((LIVE, AT_10_S))):
            panel.show(snapshot, look)
            body = [*panel.body(width, height)]
            assert "\x1b" not in "".join(painted(panel, (width, height)))
            assert width < 4 or max(map(width_of, body), default=0) <= width  # nothing is cut off
            assert len(body) <= height


# ── step time ───────────────────────────────────────────────────────────────────────────


def test_at_the_cursor_stand_the_values_there():
    snapshot = with_series(run(), step_ms=(4.0,) * 19 + (7.0,) + (4.0,) * 40)
    text = seen(StepTime(id="step"), (85, 8), snapshot, AT_10_S)
    assert "at 0:10 ━ mean 7.00" in text
    assert "p50" not in text
    assert "│" in text.splitlines()[1][8:-1]


def test_the_legend_holds_means_over_the_last_two_seconds_of_a_step_at_the_rate():
    values = {"forward_ms": (9.0,) * 56 + (0.5, 1.0, 1.5, 2.0), "step_ms": (4.0,) * 60}
    for rate, shown in ((250.0, "fwd 1.25"), (125.0, "fwd 2.50")):
        snapshot = with_series(run(steps_per_s=rate), steps_per_s=(250.0,) * 60, **values)
        text = seen(StepTime(id="step"), (110, 10), snapshot, LIVE)
        assert shown in text.splitlines()[-1]


def test_peaks_beyond_the_scale_are_marked():
    step_ms = (3.0,) * 58 + (90.0,) * 2
    for rows, mark in ((8, "4↑"), (10, "4↑")):
        text = seen(StepTime(id="step"), (85, rows), with_series(run(), step_ms=step_ms), LIVE)
        assert mark in text


def test_a_high_panel_has_a_line_for_the_step_and_for_each_phase():
    panel = StepTime(id="step")
    panel.show(run(), LIVE)
    rows = painted_at(panel, Size(85, 20), focused=False)[1:-1]
    inks = {ink for row in rows for text, ink in row if text.strip()}
    assert {"strong", "line-3", "line-4"} <= inks


def test_what_it_does_not_show_is_not_painted_again(monkeypatch):
    panel, repainted = StepTime(id="step"), []
    panel.show(run(), LIVE)
    monkeypatch.setattr(panel, "call_later", repainted.append)
    panel.show(run(loss=0.5), LIVE)
    assert repainted == []
    panel.show(run(step_ms_p50=9.0), LIVE)
    assert repainted == [panel.repaint]


# ── activity ────────────────────────────────────────────────────────────────────────────


def test_a_sparkline_has_a_gap_where_nothing_was_measured_and_is_never_a_whole_cell():
    series = Series(
        at_s=(0.5, 1.0, 1.5, 2.0, 2.5),
        values={"gpu_util_pct": (0.0, None, 50.0, float("nan"), 100.0)},
    )
    (busy,) = (
        one for one in readings(Snapshot(series=series), LIVE) if one.metric == "gpu_util_pct"
    )
    for columns, expected in ((30, "▁ ▄ ▇"), (60, "▁▁  ▄▄  ▇▇")):
        (line,) = sparklines(series, [busy], columns, LIVE)
        assert line.strip() == expected
    assert "█" not in LEVELS


def test_what_is_not_measured_is_no_row_but_for_the_essential():
    found = {one.label: one.value for one in readings(Snapshot(), LIVE)}
    assert found.items() >= {"busy": "–", "memory": "–", "CPU": "–"}.items()
    assert "SM active" not in found
    no_gpu = [one.label for one in readings(training(on_gpu=False), LIVE)]
    assert "busy" not in no_gpu
    assert "CPU" in no_gpu


def test_the_rows_stay_while_the_cursor_moves():
    for view in (LIVE, AT_10_S, TimeView(end_s=20.0, cursor_s=500.0)):
        assert [one.label for one in readings(run(), view)][-1] == "host busy"
        assert len(readings(run(), view)) == len(readings(run(), LIVE))
    busy = readings(run(), TimeView(cursor_s=10.0))[0]
    assert busy.value == f"{run().series.of('gpu_util_pct')[19]:.0f} %"


def test_times_of_a_step_are_shares_of_it_and_cpu_time_is_in_cores():
    snapshot = with_series(run(), step_ms=(4.0,) * 60, host_ms=(3.0,) * 60)
    found = {one.label: one for one in readings(snapshot, LIVE)}
    assert found["host busy"].value == "75 %"
    assert found["CPU"].value == "3.8 cores"


def test_before_the_worker_has_started_nobody_says_that_no_gpu_is_read():
    starting = msgspec.structs.replace(
        training(on_gpu=False), state="starting", gpu_missing="waiting for the worker"
    )
    assert "no GPU is read" not in seen(Activity(id="activity"), (60, 9), starting, LIVE)


# ── device ──────────────────────────────────────────────────────────────────────────────


def values(snapshot):
    return {
        one.label: one.value for one in device_lines(snapshot, 80) if isinstance(one, ShownReading)
    }


def told(**values):
    return HostReading(at_s=0.0, values=values)


PCIE = gpu_sample(pcie_rx_mib_s=1200.0, pcie_tx_mib_s=30.0)
COSTS = {
    "host": told(own_cpu_pct=5.2, own_rss_mib=71.0),
    "instruments_ms": 0.058,
    "unattributed_pct": 0.12,
}


@pytest.mark.parametrize(
    ("what", "snapshot", "shown"),
    [
        ("what gpudash itself costs", run(**COSTS),
         {"gpudash": "0.05 cores, 71 MiB", "measuring": "0.058 ms a step",
          "unattributed so far": "0.1 %"}),
        ("how many of the cores are busy", run(), {"CPU": "3.8 of 16 cores"}),
        ("where it is not known how many there are", run(host=told(cpu_pct=381.0)),
         {"CPU": "3.8 cores"}),
        ("whose time that is",
         run(host=told(cpu_pct=381.0, loader_cpu_pct=250.0, other_cpu_pct=31.0)),
         {"CPU of loader": "2.5 cores", "CPU of its others": "0.3 cores"}),
        ("what belongs together in a row", run(), {"memory": "6.1 of 140.4 GiB"}),
        ("in both directions", run(gpu=PCIE), {"PCIe": "1,200 in, 30 MiB/s"}),
        ("what the allocator holds",
         run(host=told(mem_reserved_mib=8192.0, mem_allocated_mib=2048.0)),
         {"reserved": "8.0 GiB", "allocated": "2.0 GiB", "allocated, peak": "–"}),
    ],
)  # fmt: skip
def test_the_device_panel_says(what, snapshot, shown):
    assert values(snapshot).items() >= shown.items(), what
    assert "reserved" not in values(training(on_gpu=False))


def test_the_device_panel_says_what_is_not_read_and_why():
    snapshot = msgspec.structs.replace(
        training(),
        gpu_unread={"power": "not supported by this GPU"},
        gpus_lost={"GPU-2222": "the GPU was lost"},
    )
    said = " ".join(str(getattr(line, "text", "")) for line in device_lines(snapshot, 80))
    assert "power: not supported by this GPU" in said
    assert "GPU-2222: the GPU was lost" in said


@pytest.mark.parametrize("size", [(60, 60), (78, 24), (200, 47)])
def test_in_all_of_the_room_every_line_is_shown_in_two_columns_if_one_is_too_long(size):
    panel, snapshot = Activity(id="activity"), run(skipped_samples=1234)
    panel.whole = True
    text = seen(panel, size, snapshot, LIVE)
    for words in ("GPU 3, NVIDIA H200", "1,234", *values(snapshot)):
        assert words in text


# ── values against their limits, and curves ─────────────────────────────────────────────


def bar_of_row(text, label):
    (row,) = [line for line in text.splitlines() if line.strip().startswith(label)]
    return row.count("█")


def test_a_value_has_a_bar_against_its_limit_and_only_if_it_has_one():
    gpu = {"mem_used_mib": 500.0, "mem_total_mib": 1000.0, "power_w": 350.0, "power_limit_w": 700.0}
    gpu["gpu_util_pct"] = 100.0
    snapshot = run(gpu=msgspec.structs.replace(run().gpu, values=run().gpu.values | gpu))
    text = seen(Activity(id="activity"), (60, 12), snapshot, LIVE)
    assert "350 of 700 W" in text
    assert (
        bar_of_row(text, "memory") == bar_of_row(text, "power") == bar_of_row(text, "busy") // 2 > 0
    )
    assert bar_of_row(text, "SM clock") == 0


def test_the_loss_has_a_curve_where_there_is_room():
    snapshot = with_series(training(60, on_gpu=False), loss=wave(60, 2.0))
    assert " loss" in seen(Activity(id="activity"), (60, 24), snapshot, LIVE)
    assert " loss" not in seen(Activity(id="activity"), (60, 12), snapshot, LIVE)
