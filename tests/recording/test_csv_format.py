import csv
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from gpudash.errors import RecordingError
from gpudash.recording.csv_format import cell, columns, wall_time
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval, Intervals
from gpudash.recording.log import Origin
from gpudash.recording.rank_steps import RankSteps
from gpudash.sinks.recording import RecordingWriter
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, measured

BEGAN_UTC = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
GOLDEN = Path(__file__).with_name("golden_run.csv")
PROMISED = (
    "time_s, wall_time_utc, workload, segment, batch_size, levers, step, steps, steps_per_s, "
    "samples_per_s, step_ms_p50, step_ms_p95, data_ms, host_ms, device_ms, loss, gpu_index, "
    "gpu_uuid, gpu_util_pct, mem_util_pct, mem_used_mib, sm_active_pct, sm_occupancy_pct, "
    "tensor_active_pct, dram_active_pct, pcie_rx_mib_s, pcie_tx_mib_s, power_w, energy_j, "
    "temperature_c, sm_clock_mhz, throttle, cpu_pct, worker_rss_mib, "
    "transform_ms, skipped_samples, train_s, core_wait_pct, tokens_per_s, "
    "mem_reserved_mib, mem_allocated_mib, mem_peak_mib, "
    "communication_ms, collective_mib, collective_ms, "
    "nvlink_rx_mib_s, nvlink_tx_mib_s, rank, world_size, "
    "collective_bus_mib, collective_exposed_ms, loader_cpu_pct, untimed_steps, "
    "padding_tokens, own_code_ms, unpack_pct, loader_start_pct, no_core_pct, blocked_pct, gc_pct, "
    "compile_pct, code_pct, other_cpu_pct, alloc_retries, device_allocs, device_frees, compiles"
)


TOLD = {
    "mem_reserved_mib": 900.0,
    "mem_allocated_mib": 250.0,
    "mem_peak_mib": 800.0,
    "collective_mib": 44.5,
    "collective_ms": 12.25,
    "collective_bus_mib": 66.75,
    "collective_exposed_ms": 4.5,
}
"""What a training process says of itself."""


def interval(**changes):
    """A row of one rank; `changes` are fields of the row, or of the rank."""
    of_rank = {
        "step": 5,
        "steps": 5,
        "samples": 40,
        "values": {"step_ms_p50": 100.0, "step_ms_p95": 101.0},
    }
    fields = RankSteps.__struct_fields__
    of_rank |= {name: changes.pop(name) for name in list(changes) if name in fields}
    began_s, ended_s = changes.get("began_s", BEGAN_S), changes.get("ended_s", BEGAN_S + 0.5)
    if steps := of_rank["steps"]:
        of_rank = {"timed": steps, "finished_s": ended_s} | of_rank
        step_ms = (ended_s - began_s) * 1e3 / steps
        of_rank["values"] = {"step_ms": step_ms} | of_rank["values"]
    known = {
        "began_s": BEGAN_S,
        "ended_s": BEGAN_S + 0.5,
        "workload": "encdec",
        "segment": 0,
        "settings": {"pipelined": "off", "batch_size": "8"},
        "ranks": (RankSteps(**of_rank),),
        "train_s": 0.5,
    }
    return Interval(**known | changes)


def recording(path, *, force=False):
    origin = Origin(began_s=BEGAN_S, began_utc=BEGAN_UTC, interval_s=0.5, command=())
    return RecordingWriter(path, origin, force=force)


@pytest.fixture
def file(tmp_path):
    return recording(tmp_path / "run.csv")


def cells_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def script():
    """Start, a change, a pause, a restart; a second GPU appears half-way. And when it ends.

    From the fifth tick on to the restart, loader workers report what they do, and the allocator
    what it holds.
    """
    run = Trainer(BEGAN_S + 0.6)
    items = [run.start()]
    for tick in range(20):
        at_s = run.now_s
        items += [
            gpu(
                at_s,
                gpu_util_pct=80.0 + tick,
                mem_used_mib=1234.5,
                power_w=301.25,
                temperature_c=45.0,
                sm_clock_mhz=1980.0,
                throttle="power" if tick == 9 else "none",
                energy_j=5000.0 + 300.0 * (at_s - BEGAN_S),
            ),
            host(at_s, 150.0 + tick, **({"core_wait_pct": 2.0 * tick} if tick > 1 else {})),
        ]
        if tick > 10:
            items.append(gpu(at_s, index=1, uuid="GPU-2222", gpu_util_pct=0.0))
        if tick == 8:
            items.append(run.change(pipelined="on"))
        if tick == 12:
            items += [run.pause(), run.wait(0.7), run.resume()]
        if tick == 16:
            run.now_s += 0.4
            items.append(run.start())
        items += (
            msgspec.structs.replace(
                report,
                transform_ms={"decode": 2.125 + tick / 8, "crop": 0.08} if tick > 4 else {},
                skipped_samples=tick // 5,
                values=TOLD if tick > 4 else {},
                steps=tuple(
                    measured(step, forward_ms=None, communication_ms=1.5 if tick > 4 else None)
                    for step in report.steps
                ),
            )
            if tick < 16
            else report
            for report in run.steps(4, 50.0)
        )
    return items, run.now_s + 0.05


def scripted():
    """The rows of the script."""
    items, ended_s = script()
    intervals = Intervals(BEGAN_S)
    return [*(row for item in items for row in intervals.fold(item)), *intervals.close(ended_s)]


def test_the_columns_are_those_promised():
    assert ", ".join(columns()) == PROMISED


def test_a_scripted_run_gives_the_golden_bytes(tmp_path):
    path = tmp_path / "run.csv"
    file = recording(path)
    for row in scripted():
        file.take(row)
    file.close()
    assert path.read_bytes() == GOLDEN.read_bytes()
    assert file.rows == len(cells_of(path))


def test_the_rate_is_the_steps_over_the_seconds_trained_however_long_a_step_is(tmp_path):
    """As the README says: with steps longer than a row, and with a row for each GPU."""
    run = Trainer(BEGAN_S + 0.7)
    items = [run.start(), gpu(BEGAN_S), gpu(BEGAN_S, index=1, uuid="GPU-2222")]
    items += [*run.steps(8, 1100.0), run.pause(), run.wait(3.0), run.resume()]
    run.now_s += 0.8
    items += [run.change(batch_size="16"), *run.steps(8, 550.0)]
    intervals, file = Intervals(BEGAN_S), recording(tmp_path / "run.csv")
    for row in (*(row for item in items for row in intervals.fold(item)), *intervals.close(0.0)):
        file.take(row)
    file.close()
    for segment, step_s in (("0", 1.1), ("1", 0.55)):
        rows = [row for row in cells_of(file.path) if row["segment"] == segment]
        steps = sum(int(row["steps"]) for row in rows)
        assert steps == 2 * 8
        assert steps / sum(float(row["train_s"]) for row in rows) == pytest.approx(1 / step_s)


def test_every_gpu_gets_a_row_and_no_gpu_leaves_its_cells_empty(tmp_path, file):
    both = (
        GpuInterval(index=0, uuid="GPU-1", values={"gpu_util_pct": 50.0}),
        GpuInterval(index=1, uuid="GPU-2"),
    )
    file.take(interval(gpus=both))
    file.take(interval())
    file.close()
    rows = cells_of(tmp_path / "run.csv")
    assert [row["gpu_uuid"] for row in rows] == ["GPU-1", "GPU-2", ""]
    assert [row["gpu_util_pct"] for row in rows] == ["50.0", "", ""]
    assert file.rows == 3


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, ""),
        (float("nan"), ""),
        (float("inf"), ""),
        (1e-5, "0.0000"),
        (-1e-9, "0.0000"),
        (1e16, "10000000000000000.0000"),
        (83.25, "83.2500"),
    ],
)
def test_numbers_are_plain_decimals(value, written):
    assert cell(value, 4) == written


def test_transforms_are_one_cell_and_an_unknown_count_is_an_empty_one(file):
    file.take(interval(transform_ms={"decode": 2.134, "crop": 0.08}, values={"skipped_samples": 3}))
    file.take(interval(values={"skipped_samples": 0}))
    file.take(interval())
    file.close()
    found = [(row["transform_ms"], row["skipped_samples"]) for row in cells_of(file.path)]
    assert found == [("decode=2.13;crop=0.08", "3"), ("", "0"), ("", "")]


def test_wall_time_is_utc_to_the_nearest_millisecond():
    moment = datetime(2026, 1, 2, 3, 4, 5, 999_700, tzinfo=UTC)
    assert wall_time(moment) == "2026-01-02T03:04:06.000Z"


def test_a_row_is_in_the_file_before_take_returns(tmp_path):
    path = tmp_path / "run.csv"
    file = recording(path)
    file.take(interval())
    assert len(cells_of(path)) == 1
    assert path.read_bytes().endswith(b"\n")
    file.close()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nowhere/run.csv", r"the folder .*nowhere does not exist"),
        ("/proc/x.csv", r"x\.csv: no file can be made in /proc$"),  # which is not missing
    ],
)
def test_a_folder_that_takes_no_file_is_named(tmp_path, path, why):
    with pytest.raises(RecordingError, match=why):
        recording(tmp_path / path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RecordingError, match="permission denied"):
        recording(tmp_path / "run.csv")


@pytest.mark.parametrize("name", ["a\nb/run.csv", "a\0b.csv", "n" * 300 + ".csv"])
def test_whatever_the_name_the_error_is_one_line(tmp_path, name):
    with pytest.raises(RecordingError) as error:
        recording(tmp_path / name)
    assert str(error.value).isprintable()


class FullDisk:
    """Takes `room` bytes, and is then full."""

    def __init__(self, room):
        self.room = room
        self.write = os.write

    def __call__(self, fd, data):
        taken = min(len(data), self.room)
        if not taken:
            raise OSError(28, "No space left on device")
        self.room -= taken
        return self.write(fd, data[:taken])


def test_a_full_disk_is_reported_once_and_the_file_ends_with_a_whole_row(tmp_path, monkeypatch):
    path = tmp_path / "run.csv"
    file = recording(path)
    file.take(interval())
    before = path.read_bytes()
    monkeypatch.setattr("gpudash.recording.files.os.write", FullDisk(room=20))
    with pytest.raises(RecordingError, match="ends after 1 rows: the disk is full"):
        file.take(interval())
    assert path.read_bytes() == before
    file.take(interval())
    file.close()
    assert path.read_bytes() == before
    assert (file.rows, file.failed) == (1, True)


def test_a_real_device_without_room_is_reported():
    with pytest.raises(RecordingError, match="the disk is full"):
        recording(Path("/dev/full"), force=True)


def test_closing_again_does_nothing(file):
    file.close()
    file.close()
    file.take(interval())
    assert file.rows == 0
