import errno
import os
from contextlib import closing

import msgspec
import pytest

from gpudash.compare.sweep.file import Provenance, SweepFile, read_rows
from gpudash.compare.sweep.grid import BlockRow, Grid
from gpudash.errors import RecordingError, UsageError
from gpudash.protocol.training import Device, State, TrainingProcess

GRID = Grid(
    rows=({"batch_size": "8"}, {"batch_size": "16"}),
    columns=({"pipelined": "off"}, {"pipelined": "on"}),
    rounds=2,
    min_steps=3,
    min_s=0.5,
)
H200 = Device(kind="cuda", name="NVIDIA H200", uuid="GPU-1111")
VERSIONS = {"python": "3.11.2", "torch": "2.11.0"}
IN_FORCE = {"num_workers": "8", "data": "resident"}
"""The active settings that not every cell sets."""
ROWS = [
    BlockRow(
        round=0,
        cell=1,
        steps=10,
        samples=80,
        busy_s=0.5,
        host_ms=1.25,
        gpu_util_pct=85.0,
        cpu_pct=120.0,
        core_wait_pct=48.2,
    ),
    BlockRow(
        round=0,
        cell=3,
        failure="out of memory with batch_size=16: went back",
        failure_kind="out_of_memory",
    ),
    BlockRow(round=0, cell=0, steps=12, samples=96, busy_s=0.625),
    BlockRow(round=0, cell=2, steps=10, samples=160, busy_s=0.75),
]
UNFINISHED = [
    BlockRow(round=1, cell=2, steps=10, samples=160, busy_s=0.5),
    BlockRow(round=1, cell=1, failure="out of memory", failure_kind="out_of_memory"),
]
"""Cell 0 of round 1 is missing; cell 3 failed before."""


def provenance(**changes):
    given = Provenance(
        workload="encdec",
        settings={"data": "resident"},
        grid=GRID,
        device=None,
        versions={"gpudash": "0.1.0"},
        command=("gpudash", "sweep", "encdec", "--vary", "pipelined=off,on"),
    )
    return msgspec.structs.replace(given, **changes)


def started(device=H200, versions=VERSIONS, **settings):
    return State(
        at_s=0.0,
        phase="training",
        process=TrainingProcess(pid=42, ready_s=0.0, device=device, versions=versions),
        workload="encdec",
        settings={"batch_size": "8", "pipelined": "off", **IN_FORCE, **settings},
        warmup_steps=2,
    )


def open_file(folder, *, force=False, resume=False, **changes):
    return SweepFile(folder / "s.csv", provenance(**changes), force=force, resume=resume)


def finished(folder, rows=ROWS, **changes):
    """A file as a sweep leaves it."""
    file = open_file(folder, **changes)
    file.started_on(started())
    for row in rows:
        file.append(row)
    file.close()
    return folder / "s.csv"


def resumed(folder, *rows, now=None, **changes):
    """The file, once it was resumed and these rows have been added."""
    file = open_file(folder, resume=True, **changes)
    with closing(file):
        file.started_on(now or started())
        for row in rows:
            file.append(row)
    return file


@pytest.fixture
def path(tmp_path):
    """Of a file that a sweep has finished."""
    return finished(tmp_path)


@pytest.fixture
def file(tmp_path):
    return open_file(tmp_path)


def described(folder):
    return msgspec.json.decode((folder / "s.json").read_bytes(), type=Provenance)


# ── what is written ─────────────────────────────────────────────────────────────────────


def test_every_block_is_a_row_with_its_levers_and_an_empty_cell_was_not_measured(tmp_path):
    assert finished(tmp_path).read_text() == (
        "round,cell,steps,samples,busy_s,steps_per_s,samples_per_s,step_ms,host_ms,"
        "gpu_util_pct,cpu_pct,failure,batch_size,pipelined,failure_kind,core_wait_pct\n"
        "0,1,10,80,0.500000,20.0000,160.000,50.0000,1.2500,85.0,120.0,,8,on,,48.2\n"
        "0,3,,,,,,,,,,out of memory with batch_size=16: went back,16,on,out_of_memory,\n"
        "0,0,12,96,0.625000,19.2000,153.600,52.0833,,,,,8,off,,\n"
        "0,2,10,160,0.750000,13.3333,213.333,75.0000,,,,,16,off,,\n"
    )


def test_a_row_is_on_disk_as_soon_as_it_is_known(tmp_path, file):
    file.append(ROWS[0])
    assert read_rows(tmp_path / "s.csv") == ROWS[:1]
    file.append(ROWS[1])
    assert read_rows(tmp_path / "s.csv") == ROWS[:2]
    file.close()


def test_a_failure_of_several_lines_stays_in_one(tmp_path):
    failed = BlockRow(round=0, cell=0, failure='CUDA,\n"out"\u2028of\r memory')
    path = finished(tmp_path, [failed, ROWS[0]])
    assert path.read_text(encoding="utf-8").count("\n") == 3
    assert read_rows(path)[0].failure == 'CUDA, "out" of memory'


def test_the_provenance_is_written_beside_it(tmp_path, file):
    assert described(tmp_path) == provenance()
    file.started_on(started())
    assert described(tmp_path) == provenance(
        device=H200, active_settings=IN_FORCE, versions={"gpudash": "0.1.0", **VERSIONS}
    )
    file.close()


def test_a_file_without_a_block_is_removed(tmp_path, file):
    """Or the next try would need --force."""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.csv", "s.json"]
    file.close()
    assert list(tmp_path.iterdir()) == []


# ── files that are there ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["s.csv", "s.json"])
def test_an_existing_file_is_refused_and_kept(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(RecordingError, match=f"{name} exists; --force overwrites it"):
        open_file(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "precious")]


def test_force_overwrites_both(tmp_path, path):
    path = finished(tmp_path, ROWS[:1], workload="augment", force=True)
    assert read_rows(path) == ROWS[:1]
    assert described(tmp_path).workload == "augment"


@pytest.mark.parametrize(
    "rows", [[], [BlockRow(round=0, cell=0, failure="it cannot be", failure_kind="bad_setting")]]
)
def test_a_sweep_that_measures_nothing_overwrites_nothing(tmp_path, rows, path):
    """For example without the device: the earlier blocks are all there is."""
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    file = open_file(tmp_path, workload="augment", force=True)
    for row in rows:
        file.append(row)
    file.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_provenance_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "s.json").mkdir()
    (tmp_path / "s.csv").write_text("precious")
    with pytest.raises(RecordingError, match=r"s\.json: it is a folder"):
        open_file(tmp_path, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.csv", "s.json"]
    assert (tmp_path / "s.csv").read_text() == "precious"


def full(fd, data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_up_in_the_middle_of_a_row_loses_no_other(tmp_path, monkeypatch, file):
    file.append(ROWS[0])
    write = os.write

    def nearly_full(fd, data):
        monkeypatch.setattr(os, "write", full)
        return write(fd, data[:5])

    monkeypatch.setattr(os, "write", nearly_full)
    with pytest.raises(RecordingError, match="the disk is full"):
        file.append(ROWS[2])
    monkeypatch.undo()
    file.close()
    with closing(open_file(tmp_path, resume=True)) as again:
        again.append(ROWS[2])
    assert read_rows(tmp_path / "s.csv") == [ROWS[0], ROWS[2]]


def test_a_full_disk_at_the_start_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RecordingError, match="the disk is full"):
        open_file(tmp_path)
    assert list(tmp_path.iterdir()) == []


# ── resumed ─────────────────────────────────────────────────────────────────────────────


def test_a_resumed_sweep_knows_its_rows_and_goes_on_below_them(tmp_path, path):
    assert resumed(tmp_path, UNFINISHED[0]).known == ROWS
    assert read_rows(path) == [*ROWS, UNFINISHED[0]]
    assert path.read_text().count("round,cell") == 1


def test_blocks_of_an_unfinished_round_give_way_and_failures_stay(tmp_path):
    """Another process measures the round again, as a round is compared within one process."""
    path = finished(tmp_path, [*ROWS, *UNFINISHED])
    file = open_file(tmp_path, resume=True)
    assert file.known == [*ROWS, UNFINISHED[1]]
    assert read_rows(path) == [*ROWS, *UNFINISHED]  # until it can be measured anew
    file.started_on(started())
    assert read_rows(path) == [*ROWS, UNFINISHED[1]]
    anew = msgspec.structs.replace(UNFINISHED[0], busy_s=0.625)
    file.append(anew)
    file.close()
    assert read_rows(path) == [*ROWS, UNFINISHED[1], anew]


@pytest.mark.parametrize(
    "torn",
    [b"1", b"1,2,3,48,0.5", "1,2,,,,,,,,,,ö".encode()[:-1]],
    ids=["in a number", "in a row", "in a letter"],
)
def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path, torn, path):
    with path.open("ab") as file:
        file.write(torn)
    assert read_rows(path) == ROWS
    resumed(tmp_path, ROWS[0])
    assert read_rows(path) == [*ROWS, ROWS[0]]


@pytest.mark.parametrize("lacks", [1, 2], ids=["core_wait_pct", "and failure_kind"])
def test_an_older_file_is_finished_with_the_columns_that_it_has(tmp_path, lacks, path):
    older = [line.rsplit(",", lacks)[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join([*older, ""]))
    unknown = {"core_wait_pct": None} | ({"failure_kind": None} if lacks == 2 else {})
    before = [msgspec.structs.replace(row, **unknown) for row in ROWS]
    assert read_rows(path) == before
    resumed(tmp_path, *ROWS[:2])
    assert read_rows(path) == [*before, *before[:2]]
    assert len({line.count(",") for line in path.read_text().splitlines()}) == 1


def test_the_default_of_a_lever_that_every_cell_sets_does_not_matter(tmp_path, path):
    resumed(tmp_path, now=started(batch_size="32"))


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": "augment"},
        {"settings": {"data": "loader"}},
        {"grid": msgspec.structs.replace(GRID, rows=GRID.rows[:1])},
        {"grid": msgspec.structs.replace(GRID, min_steps=4)},
        {"grid": msgspec.structs.replace(GRID, seed=1)},
        {"schema_version": 0},
    ],
    ids=["workload", "settings", "rows", "block length", "seed", "schema"],
)
def test_another_sweeps_file_is_refused_with_the_command_that_it_needs(tmp_path, changes, path):
    before = path.read_bytes()
    with pytest.raises(UsageError, match="holds another sweep; .* gpudash sweep encdec --vary"):
        open_file(tmp_path, resume=True, **changes)
    assert path.read_bytes() == before


def test_the_command_of_another_sweep_is_shown_in_one_line(tmp_path):
    finished(tmp_path, command=("gpudash", "sweep", "--csv", "a\nb.csv"))
    with pytest.raises(UsageError) as refused:
        open_file(tmp_path, resume=True, workload="augment")
    assert str(refused.value).isprintable()


A10G = msgspec.structs.replace(H200, name="NVIDIA A10G", uuid="GPU-2")
CPU = Device(kind="cpu", name="CPU, 2 threads")


CIRCUMSTANCES = {
    "another GPU": (
        {},
        {"now": started(A10G)},
        "NVIDIA H200 GPU-1111; this is NVIDIA A10G GPU-2:",
    ),
    "the CPU": ({}, {"now": started(CPU)}, "this is CPU, 2 threads:"),
    "another torch": (
        {},
        {"now": started(versions={"torch": "2.15.0"})},
        r"torch 2\.11\.0; this is torch 2\.15\.0:",
    ),
    "fewer cores": (
        {},
        {"now": started(num_workers="2")},
        "num_workers=8; this is num_workers=2:",
    ),
    "several": (
        {},
        {"now": started(CPU, num_workers="2")},
        "GPU-1111, num_workers=8; this is CPU, 2 threads, num_workers=2:",
    ),
    "another machine, as a CPU is named by its number of threads alone": (
        {"machine": "north"},
        {"machine": "south"},
        "machine north; this is machine south:",
    ),
    "other versions": (
        {"versions": {"driver": "570.86", "gpudash": "0.1.0"}},
        {"versions": {"driver": "580.65", "gpudash": "0.2.0"}},
        r"driver 570\.86, gpudash 0\.1\.0; this is driver 580\.65, gpudash 0\.2\.0:",
    ),
}


@pytest.mark.parametrize(("was", "now", "reason"), CIRCUMSTANCES.values(), ids=CIRCUMSTANCES)
def test_blocks_of_other_circumstances_cannot_be_in_one_table(tmp_path, was, now, reason):
    path = finished(tmp_path, [*ROWS, *UNFINISHED], **was)
    before = described(tmp_path)
    with pytest.raises(UsageError, match=reason):
        resumed(tmp_path, **now)
    assert described(tmp_path) == before
    assert read_rows(path) == [*ROWS, *UNFINISHED]


def test_a_sweep_that_never_started_may_be_resumed_anywhere(tmp_path, file):
    file.append(ROWS[0])
    file.close()
    resumed(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not a table\n",
        "a,b\n1,2\n",
        "round,cell\n0,0\n",
        b"0,one,,,,,,,,,,,8,on,\n",
        b"0,-1,10,80,0.5,,,,,,,,8,on,,\n",
        b"0,1,10,80,inf,,,,,,,,8,on,,\n",
        b"0,1,10,80,nan,,,,,,,,8,on,,\n",
        b"\xff\xfe\x00\n",
    ],
    ids=[
        *("empty", "text", "another table", "too narrow", "a broken number", "a negative one"),
        *("no end", "no number", "binary"),
    ],
)
def test_another_file_is_refused_in_a_line(tmp_path, text, path):
    header = path.read_text().splitlines(keepends=True)[0]
    path.write_bytes(header.encode() + text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=r"s\.csv is not a sweep's file"):
        open_file(tmp_path, resume=True)


def test_blocks_of_a_setting_that_is_not_swept_are_cut_off(tmp_path, path):
    with path.open("a") as file:
        file.write("0,9,10,80,0.5,,,,,,,,8,on,,\n")
    resumed(tmp_path)
    assert [row.cell for row in read_rows(path)] == [row.cell for row in ROWS]


def test_a_sweep_that_is_still_running_cannot_be_resumed(tmp_path):
    running = open_file(tmp_path)
    with pytest.raises(RecordingError, match=r"s\.csv: another sweep is writing it"):
        open_file(tmp_path, resume=True)
    running.append(ROWS[0])
    running.close()
    with (
        closing(open_file(tmp_path, resume=True)),
        pytest.raises(RecordingError, match="another sweep is writing it"),
    ):
        open_file(tmp_path, resume=True)


@pytest.mark.parametrize("name", ["s.csv", "s.json"])
def test_a_missing_file_cannot_be_resumed(tmp_path, name, path):
    (tmp_path / name).unlink()
    with pytest.raises(UsageError, match=rf"{name}: no such file"):
        open_file(tmp_path, resume=True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"workload": "enc', r"s\.json is damaged"),
        (b'{"workload": "\xff"}', r"s\.json is damaged"),
        (b'{"a":' + b"[" * 100_000, r"s\.json is damaged"),
        (  # a recording's
            b'{"schema_version": 1, "complete": true, "segments": []}',
            r"s\.csv: .*s\.json is not a sweep's file$",
        ),
    ],
)
def test_without_its_provenance_it_cannot_be_resumed(tmp_path, content, reason, path):
    (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        open_file(tmp_path, resume=True)
