import os
import re
import time
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from gpudash.cli.main import main
from gpudash.cli.sweep import Sweeping
from gpudash.cli.sweep_grid import check_grid, trains_on_gpu, vary
from gpudash.cli.sweep_outputs import Outputs, title_of
from gpudash.compare.sweep.file import Provenance, SweepFile, read_rows
from gpudash.compare.sweep.grid import BlockRow, Grid, Sweep
from gpudash.compare.sweep.presets import ON_CPU, ON_GPU
from gpudash.errors import RecordingError, UsageError
from gpudash.protocol.training import Device, Failed, Note
from gpudash.snapshot import Snapshot
from tests.lives import in_process
from tests.scripted_run import DEVICE, started
from tests.scripted_session import ScriptedSession, called
from tests.scripted_worker import Conducted, Worker
from workloads import CATALOGUE
from workloads.levers import LeverError

ENCDEC = CATALOGUE["encdec"]
GRID = Grid(
    rows=({"batch_size": "8"}, {"batch_size": "16"}),
    columns=({"pipelined": "off"}, {"pipelined": "on"}),
    rounds=2,
    min_steps=3,
    min_s=0.0,
)


def step_ms(settings):
    return 40.0 if settings["pipelined"] == "on" else 50.0


def sweep_of(grid=GRID, settings=()):
    return Provenance(
        workload="encdec",
        settings=dict(settings),
        grid=grid,
        device=None,
        versions={},
        command=("gpudash",),
    )


def sweep_file(folder):
    return SweepFile(folder / "s.csv", sweep_of(), force=False, resume=False)


def described(csv):
    return msgspec.json.decode(csv.with_suffix(".json").read_bytes(), type=Provenance)


SWEEP = ("sweep", "encdec", "--vary", "batch_size=8,16", "--vary", "pipelined=off,on")


def run(session, *words, rounds=2):
    """Sweep the grid; return the exit code."""
    how = ("--steps", "3", "--rounds", str(rounds), *map(str, words))
    return called(*SWEEP, *how, trains=[session])


@pytest.fixture
def swept(tmp_path, capsys):
    """Return a function that sweeps into a file; it returns exit code, output and complaint."""

    def call(worker=None, *words, **how):
        session = ScriptedSession(worker, **how)
        return run(session, "--csv", tmp_path / "s.csv", *words), *capsys.readouterr()

    return call


# ── the grid ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("texts", "rows", "columns"),
    [
        (
            ["pipelined=off,on", "batch_size=4,8"],
            ({"batch_size": "4"}, {"batch_size": "8"}),
            ({"pipelined": "off"}, {"pipelined": "on"}),
        ),
        (["batch_size=4,8"], ({},), ({"batch_size": "4"}, {"batch_size": "8"})),
        (
            ["pipelined=on,off", "precision=fp32,bf16"],
            ({},),
            (
                {"pipelined": "on", "precision": "fp32"},
                {"pipelined": "on", "precision": "bf16"},
                {"pipelined": "off", "precision": "fp32"},
                {"pipelined": "off", "precision": "bf16"},
            ),
        ),
    ],
)
def test_batch_sizes_go_down_beside_others_which_go_across_the_first_value_first(
    texts, rows, columns
):
    assert vary(ENCDEC, texts) == (rows, columns)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["pipelined"], UsageError, "valid: LEVER=A,B"),
        (["pipelined=off", "pipelined=on"], UsageError, "given twice"),
        (
            ["pipelined=off,off"],
            UsageError,
            "--vary pipelined=off,off names off twice; valid: each",
        ),
        (
            ["model_scale=auto,small"],
            UsageError,
            "--vary model_scale=auto,small is not valid: auto stands for another value, name that",
        ),
        (["batch_size=8,4,08"], UsageError, "names 8 twice"),
        (["piped=off,on"], LeverError, "unknown lever 'piped'; valid: pipelined"),
        (["pipelined=off,yes"], LeverError, "'yes' is not valid; valid: off, on"),
        (["pipelined="], LeverError, "valid: off, on"),
        (["batch_size=4,,8"], LeverError, "valid: a whole number"),
    ],
)
def test_invalid_axes_are_refused_with_valid_ones(texts, error, message):
    with pytest.raises(error, match=message):
        vary(ENCDEC, texts)


@pytest.mark.parametrize("presets", [ON_GPU, ON_CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("name", ON_GPU)
def test_every_preset_names_levers_and_values_of_its_workload(name, presets):
    preset = presets[name]
    entry = CATALOGUE[preset.workload]
    grid = Grid(
        rows=preset.rows, columns=preset.columns, rounds=1, min_steps=preset.min_steps, min_s=1.0
    )
    check_grid(entry, preset.settings, grid)
    cells = [tuple(sorted(grid.changes(cell).items())) for cell in range(grid.cells)]
    assert len(set(cells)) == grid.cells > 1


def test_presets_are_the_same_on_every_device():
    assert set(ON_CPU) == set(ON_GPU)
    for name, preset in ON_GPU.items():
        assert (ON_CPU[name].workload, ON_CPU[name].settings) == (preset.workload, preset.settings)


@pytest.mark.parametrize(
    ("visible", "found"), [("0", True), ("", False), ("broken", False)], ids=["one", "none", "no"]
)
def test_a_presets_size_is_for_the_device_that_torch_will_choose(
    tmp_path, monkeypatch, visible, found
):
    """NVML's list does not decide: GPUs may be hidden, or torch built for the CPU."""
    torch = ["import os", "class cuda:", "    def device_count():"]
    torch += ["        return int(os.environ['CUDA_VISIBLE_DEVICES'] or -1) + 1"]
    (tmp_path / "torch.py").write_text("\n".join(torch))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("gpudash.cli.sweep.list_gpus", lambda: ("580.65", ("a GPU",)))
    assert trains_on_gpu("auto") is found


@pytest.mark.parametrize(("device", "found"), [("cpu", False), ("cuda", True), ("cuda:1", True)])
def test_a_presets_size_is_for_the_requested_device(monkeypatch, device, found):
    monkeypatch.setattr("subprocess.run", lambda *asked: pytest.fail("there is nothing to ask"))
    assert trains_on_gpu(device) is found


def test_trade_still_names_the_preset_of_the_optimizations(monkeypatch, tmp_path):
    swept = []
    check = "gpudash.cli.sweep_grid.check_grid"
    monkeypatch.setattr(check, lambda *asked: swept.append(asked))
    monkeypatch.setattr("gpudash.cli.sweep.run_sweep", lambda *_: 0)
    for name in ("trade", "optimizations"):
        assert main(["sweep", "--preset", name, "--device", "cpu"]) == 0
    assert swept[0] == swept[1]


def test_a_files_name_may_be_invalid_text(monkeypatch, tmp_path):
    monkeypatch.setattr("gpudash.cli.sweep.run_sweep", lambda *_: 0)
    path = tmp_path / os.fsdecode(b"b\xe4r.csv")
    varied = ["--device", "cpu", "--vary", "pin_memory=on,off"]
    assert main(["sweep", "encdec", *varied, "--csv", str(path)]) == 0
    assert described(path).command[-1].endswith("/b\ufffdr.csv")


def test_a_table_of_any_training_is_measured(training, private, printed):
    words = ("--vary", "num_workers=2,3", "--steps", "3", "--rounds", "2", "--csv", "s.csv", "-q")
    settings = ["num_workers=2", "num_workers=3"]
    for more in ([], ["--resume"]):
        table = printed("sweep", *words, *more, *training)
        assert re.findall("^num_workers=[0-9]", table, re.MULTILINE) == settings
        assert (private / "s.csv").read_text().count("\n") == 1 + 4


@pytest.mark.parametrize(
    ("code", "why", "exit_code"),
    [
        ("pass", "gpudash: no training step was seen: ", 1),
        ("raise SystemExit(3)", "gpudash: train.py exited with 3\n", 3),
    ],
)
def test_a_command_that_ends_before_its_table_says_why(code, why, exit_code, private, capfd):
    (private / "train.py").write_text(code)
    assert main(["sweep", "-q", "--vary", "num_workers=1,2", "train.py"]) == exit_code
    printed, errors = capfd.readouterr()
    assert (printed, errors[: len(why)]) == ("", why)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--vary", "pipelined=off,on"], "lever 'pipelined' is not valid; valid: num_workers, "),
        (["--vary", "num_workers=1,many"], "lever num_workers: 'many' is not valid; valid: script"),
        (["--vary", "num_workers=1,1"], "names 1 twice; valid: each value once"),
        (["--vary", "batch_size=1,2"], "a script sets its batch size itself"),
        (["--preset", "encdec"], "say what to sweep in a command of yours: --vary LEVER=A,B"),
        (["--nproc", "1,2", "--vary", "num_workers=1,2"], "--nproc does not go with a command"),
    ],
)
def test_what_no_command_has_is_refused_before_it_starts(words, why, private, refused):
    (private / "train.py").write_text("raise SystemExit('started')")
    assert why in refused("sweep", *words, "train.py")


@pytest.mark.parametrize(
    ("settings", "sizes", "error", "why"),
    [
        ({}, "0", LeverError, "'0' is not valid"),
        ({"speed": "1"}, "8", LeverError, "unknown lever 'speed'"),
        ({"pipelined": "on"}, "8", UsageError, "lever pipelined is both set and varied"),
    ],
)
def test_a_cell_that_cannot_be_is_refused_before_anything_runs(settings, sizes, error, why):
    check_grid(ENCDEC, {"data": "resident"}, GRID)
    grid = msgspec.structs.replace(GRID, rows=({"batch_size": sizes},))
    with pytest.raises(error, match=why):
        check_grid(ENCDEC, settings, grid)


# ── where it goes ───────────────────────────────────────────────────────────────────────


def outputs(folder, names):
    """Outputs by their kinds."""
    return Outputs(**{kind: folder / name for kind, name in names.items()})


@pytest.mark.parametrize("kind", ["markdown", "plot"])
def test_an_existing_table_is_replaced_only_when_asked_or_resumed(tmp_path, kind):
    (tmp_path / "t.svg").write_text("precious")
    asked = outputs(tmp_path, {kind: "t.svg", "csv": "s.csv"})
    with pytest.raises(RecordingError, match=r"t\.svg exists; --force overwrites it"):
        asked.check(force=False, resume=False)
    asked.check(force=True, resume=False)
    asked.check(force=False, resume=True)
    assert (tmp_path / "t.svg").read_text() == "precious"


@pytest.mark.parametrize(
    ("names", "how", "error", "why"),
    [
        ({}, {"resume": True}, UsageError, "--resume goes with --csv"),
        ({"markdown": "no/t.md"}, {}, RecordingError, "the folder .*no does not exist"),
        ({"plot": "no/t.svg"}, {}, RecordingError, "the folder .*no does not exist"),
        ({"markdown": "folder.svg"}, {"force": True}, RecordingError, "it is a folder"),
        ({"plot": "folder.svg"}, {"force": True}, RecordingError, "it is a folder"),
        ({"plot": "t.pdf"}, {}, UsageError, r"ending in \.svg or \.png"),
        ({"csv": "t.svg", "plot": "t.svg"}, {"force": True}, UsageError, "is named twice"),
        ({"markdown": "t.svg", "plot": "t.svg"}, {"force": True}, UsageError, "is named twice"),
        ({"csv": "a.csv", "markdown": "a.json"}, {"force": True}, UsageError, "is named twice"),
    ],
)
def test_impossible_outputs_are_refused_at_the_beginning(tmp_path, names, how, error, why):
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(error, match=why):
        outputs(tmp_path, names).check(**{"force": False, "resume": False} | how)


def test_a_folder_without_permission_is_refused_at_the_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(RecordingError, match="permission denied"):
        outputs(tmp_path, {"markdown": "t.md"}).check(force=False, resume=False)


# ── run ─────────────────────────────────────────────────────────────────────────────────


def test_the_table_is_printed_and_written(tmp_path, swept):
    markdown, plot = tmp_path / "my table.md", tmp_path / "t.svg"
    code, table, _ = swept(Worker(step_ms), "--markdown", markdown, "--plot", plot)
    assert code == 0
    title = "encdec on NVIDIA H200: num_workers=2; 8 loader workers"
    assert table.startswith(f"{title}\nsamples/s, change")
    assert "400.0, +25.0 % [+25.0, +25.0] (host" in table.splitlines()[-1]
    text = markdown.read_text(encoding="utf-8")
    assert text.startswith(f"## {title}\n")
    assert f"`gpudash {' '.join(SWEEP)} --steps 3 " in text
    assert f" --markdown '{markdown}' " in text
    assert text.endswith("| 16 | 320.0 (host 2 ms) | 400.0, +25.0 % [+25.0, +25.0] (host 2 ms) |\n")
    assert plot.exists()
    blocks = [(turn, cell) for turn in range(2) for cell in range(4)]
    assert sorted((row.round, row.cell) for row in read_rows(tmp_path / "s.csv")) == blocks


def test_a_table_that_cannot_be_printed_is_written_all_the_same(tmp_path, monkeypatch, capsys):
    markdown, plot = tmp_path / "t.md", tmp_path / "t.svg"
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", full)
        assert run(ScriptedSession(Worker(step_ms)), "--markdown", markdown, "--plot", plot) == 1
    assert "gpudash: cannot write the output: the disk is full\n" in capsys.readouterr().err
    assert "25.0" in markdown.read_text(encoding="utf-8")
    assert plot.exists()


def unreadable(samples):
    worker = Worker(step_ms)
    worker.skipped = samples
    return worker


def test_the_unreadable_samples_of_all_runs_are_counted_and_reported(tmp_path, swept):
    """Another sample was decoded for each, which takes time in a step."""
    swept(unreadable(3), turns=35)
    assert described(tmp_path / "s.csv").skipped_samples == 3
    code, table, _ = swept(unreadable(2), "--resume", "--markdown", tmp_path / "t.md")
    assert described(tmp_path / "s.csv").skipped_samples == 5
    assert (tmp_path / "t.md").read_text().endswith(" |\n\n5 unreadable samples skipped\n")
    assert (code, table.splitlines()[-1]) == (0, "5 unreadable samples skipped")


def titled(settings=(), notes=(), device=DEVICE, grid=GRID, **in_force):
    """The title of a sweep of encdec with defaults, except for these settings."""
    defaults = {lever.name: lever.default_text for lever in ENCDEC.levers}
    begun = started(0.0, {**defaults, "num_workers": "8", "model_scale": "full", **in_force})
    begun = msgspec.structs.replace(in_process(begun, device=device), notes=notes)
    return title_of(sweep_of(grid, settings).on(begun))


CHOSEN = (
    Note(lever="model_scale", text="model_scale=small: chosen for the CPU"),
    Note(lever="precision", text="precision=fp32: chosen for the CPU"),
)
VARIED = msgspec.structs.replace(
    GRID, rows=({},), columns=({"precision": "fp32", "num_workers": "0"},)
)
CPU = Device(kind="cpu", name="CPU, 2 threads")


@pytest.mark.parametrize(
    ("how", "title"),
    [
        ({}, "encdec on NVIDIA H200: num_workers=8 model_scale=full"),
        (  # set to its default
            {"settings": {"precision": "tf32"}},
            "encdec on NVIDIA H200: num_workers=8 precision=tf32 model_scale=full",
        ),
        (
            {"notes": CHOSEN, "device": CPU, "model_scale": "small", "precision": "fp32"},
            f"encdec on CPU, 2 threads: num_workers=8; {CHOSEN[0].text}; {CHOSEN[1].text}",
        ),
        (  # the values before the first block belong to no variant: the table names them
            {"notes": CHOSEN[1:], "precision": "fp32", "grid": VARIED},
            "encdec on NVIDIA H200: model_scale=full",
        ),
    ],
)
def test_the_title_names_what_was_set_and_what_this_machine_chose(how, title):
    assert titled(**how) == title


@pytest.mark.parametrize(
    ("hinders", "said", "failed"),
    [
        ({"too_big": lambda at: at["batch_size"] == "16"}, 2, 2),
        ({"too_big": lambda at: True}, 4, 4),
        ({"refuses": lambda at: "no" if at["pipelined"] == "on" else ""}, 0, 2),
    ],
    ids=["some out of memory", "all out of memory", "some refused"],
)
def test_cells_that_cannot_be_run_say_so_and_the_sweep_is_a_success(
    tmp_path, swept, hinders, said, failed
):
    code, table, _ = swept(Worker(step_ms, **hinders))
    assert (code, table.count("out of memory")) == (0, said)
    rows = read_rows(tmp_path / "s.csv")
    assert sum(bool(row.failure or row.refused) for row in rows) == failed


def test_a_sweep_without_a_possible_setting_is_refused_and_leaves_no_file(tmp_path, swept):
    worker = Worker(refuses=lambda settings: f"no batches of {settings['batch_size']}")
    code, table, said = swept(worker, "--markdown", tmp_path / "t.md")
    assert (code, table) == (2, "")
    last = said.splitlines()[-1]
    assert last.startswith("gpudash: no setting could be run: no batches of ")
    assert last.count("no batches of 8") == last.count("no batches of 16") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ctrl_c", "code", "why"), [(False, 1, "the training ended"), (True, 130, "interrupted")]
)
def test_a_sweep_ended_early_prints_what_it_has_and_is_finished_by_resume(
    tmp_path, swept, ctrl_c, code, why
):
    csv = tmp_path / "s.csv"
    ended, table, said = swept(Worker(step_ms), turns=35, ctrl_c=ctrl_c)
    there = len(read_rows(csv))
    assert 4 < there < 8
    assert (ended, "25.0" in table) == (code, True)
    assert f"{why} after {there} of 8 blocks; --resume finishes {csv}" in said
    finishes = Worker(step_ms)
    assert swept(finishes, "--resume")[0] == 0
    assert len(finishes.began) == 4  # the second round is measured anew, by the one process
    rows = read_rows(csv)
    assert len({(row.round, row.cell) for row in rows}) == len(rows) == 8


@pytest.fixture
def whole(tmp_path, swept):
    """A complete sweep: its file, and the printed table."""
    code, table, _ = swept(unreadable(1))
    assert code == 0
    return tmp_path / "s.csv", table


def test_a_resumed_sweep_with_all_its_blocks_prints_its_table_and_trains_nothing(
    whole, tmp_path, swept
):
    csv, table = whole
    before, beside = csv.read_bytes(), described(csv)
    markdown, plot = tmp_path / "t.md", tmp_path / "t.svg"
    again = swept(None, "--resume", "--markdown", markdown, "--plot", plot)
    assert again == (0, table, f"{csv} has all 8 blocks; none is measured\n")
    assert table.splitlines()[0] in markdown.read_text(encoding="utf-8")
    assert plot.exists()
    assert (csv.read_bytes(), described(csv)) == (before, beside)


def test_a_resumed_sweep_that_is_to_have_another_round_trains(whole):
    worker, (csv, _) = Worker(step_ms), whole
    assert run(ScriptedSession(worker), "--resume", "--csv", csv, rounds=3) == 0
    assert worker.began


def test_another_device_is_refused_and_its_name_stands_over_no_table(tmp_path, swept):
    file = sweep_file(tmp_path)
    other = Device(kind="cuda", name="NVIDIA A10G", uuid="GPU-2")
    file.started_on(in_process(Worker().start(), device=other))
    file.append(BlockRow(round=0, cell=0, steps=3, samples=24, busy_s=0.1))
    file.close()
    worker = Worker(step_ms)
    code, table, said = swept(worker, "--resume")
    assert (code, table, worker.began) == (2, "", [])
    assert "was measured with NVIDIA A10G GPU-2; this is NVIDIA H200 GPU-1111" in said
    assert len(read_rows(tmp_path / "s.csv")) == 1


def test_a_full_disk_ends_the_sweep_and_its_table_is_printed(swept, monkeypatch):
    written = [None] * 3
    append = Mock(side_effect=[*written, RecordingError("the disk is full")])
    monkeypatch.setattr(SweepFile, "append", append)
    code, table, said = swept(Worker(step_ms))
    assert code == 1
    assert "the disk is full after 4 of 8 blocks" in said
    assert "20.0" in table


@pytest.mark.parametrize(("kind", "code"), [("bad_setting", 2), ("out_of_memory", 2), ("error", 1)])
def test_a_worker_that_fails_at_the_start_leaves_a_line_and_no_file(tmp_path, kind, code, swept):
    ended, table, said = swept(failure=Failed(kind=kind, sentence="it cannot be"))
    assert (ended, table, said.splitlines()[-1]) == (code, "", "gpudash: it cannot be")
    assert list(tmp_path.iterdir()) == []


# ── how far it is ───────────────────────────────────────────────────────────────────────


EARLIER = [BlockRow(round=0, cell=cell, steps=3, samples=24, busy_s=0.1) for cell in range(4)]


@pytest.mark.parametrize(
    ("known", "before", "later", "at_last"),
    [
        (
            (),
            "░░░░░░░░░░░░░░░░░░░░ 0/8 blocks",
            "█████░░░░░░░░░░░░░░░ 2/8 blocks, 30 s left",
            "████████████████████ 8/8 blocks, 0 s left",
        ),
        (  # no block of an earlier run took any of this time
            EARLIER,
            "██████████░░░░░░░░░░ 4/8 blocks",
            "███████████████░░░░░ 6/8 blocks, 10 s left",
            "████████████████████ 8/8 blocks, 0 s left",
        ),
    ],
)
def test_the_progress_line_counts_blocks_and_seconds(monkeypatch, known, before, later, at_last):
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    sweep = Sweep(GRID, known)
    recorded = Sweeping(sweep, None)
    assert recorded.line(Snapshot(workload="encdec", status="loading")) == "encdec: loading"
    conducted = Conducted(sweep, Worker(step_ms))
    shown = Snapshot(workload="encdec")
    assert recorded.line(shown) == f"encdec {before}"
    now_s = 10.0
    while recorded.line(shown).split()[2] != later.split()[1]:
        conducted.turn()
    assert recorded.line(shown) == f"encdec {later}"
    assert recorded.line(Snapshot(workload="encdec", quiet_s=6.0)).endswith(", no step for 6 s")
    conducted.run()
    assert recorded.line(shown) == f"encdec {at_last}"


def test_the_device_is_noted_as_soon_as_it_is_known(tmp_path):
    file = sweep_file(tmp_path)
    Sweep(GRID, (), file).begin(Worker().start(), 0)
    beside = described(tmp_path / "s.csv")
    assert beside.device == DEVICE
    assert beside.active_settings == {"num_workers": "2"}  # the others are varied
    file.close()


# ── before it ───────────────────────────────────────────────────────────────────────────


def test_a_dry_run_prints_the_size_and_trains_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "gpudash.cli.headless.Session", lambda *a, **k: pytest.fail("it would train")
    )
    asked = ["--vary", "batch_size=8,16", "--vary", "pipelined=off,on", "--csv"]
    assert main(["sweep", *asked, str(tmp_path / "s.csv"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "4 settings, 5 rounds: 20 blocks" in said
    assert "20 s in all" in said
    assert "batch_size: each change waits for a new loader's first batch" in said
    assert not list(tmp_path.iterdir())


def test_a_finished_sweep_gives_its_table_as_data_again(whole, swept):
    csv, _ = whole
    printed = msgspec.json.decode(swept(None, "--resume", "--json")[1], type=Provenance)
    assert printed == described(csv)
    assert [len(printed.table), printed.device.name] == [4, DEVICE.name]
