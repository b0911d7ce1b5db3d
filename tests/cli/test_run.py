"""`gpudash run` from outside: the script is as if it ran alone."""

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pexpect
import pytest

from gpudash.cli import attach, headless_script
from gpudash.cli.attach import choose
from gpudash.cli.dashboard import Left
from gpudash.cli.headless_script import HeadlessScript
from gpudash.cli.main import main
from gpudash.errors import UsageError
from gpudash.run import keeper, runs
from gpudash.run.user_command import understand
from gpudash.snapshot import Snapshot
from tests.waiting import done, until

ROOT = Path(__file__).parents[2]
TRAINING = str(ROOT / "tests" / "run" / "scripted_training.py")
GPUDASH = [sys.executable, "-m", "gpudash"]
RUN = [*GPUDASH, "run"]
WAIT_S = 120


@pytest.fixture(autouse=True)
def _signals_that_reach_who_is_started():
    """Reset signals that are ignored if tests run in the background or under nohup."""
    ignored = [
        number
        for number in (signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _private(monkeypatch, short_path):
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def script(tmp_path, code):
    path = tmp_path / "train.py"
    path.write_text(code)
    return str(path)


# ── as if it ran alone ──────────────────────────────────────────────────────────────────

PLAIN = """
import os, sys
print(sys.argv, __file__, __name__, os.getcwd(), sys.path[0], sys.stdin.read())
print("to stderr", file=sys.stderr)
"""


@pytest.mark.parametrize("how", [["--watch"], ["--record", "r.csv"]])
def test_its_words_and_streams_are_its_own(tmp_path, how):
    words = [script(tmp_path, PLAIN), "--record", "x", "-m", "--", "--help", "-q"]
    plain = done(sys.executable, *words, input="typed", cwd=tmp_path)
    ours = done(*RUN, *how, *words, input="typed", cwd=tmp_path)
    assert ours.stdout == plain.stdout
    summary = ours.stderr.removeprefix(plain.stderr)
    assert plain.stderr + summary == ours.stderr
    assert summary.startswith("gpudash: no training step was seen")
    assert summary.count("\n") == 1
    assert (ours.returncode, plain.returncode) == (0, 0)


def test_arguments_may_be_invalid_text(tmp_path):
    printed = script(tmp_path, "import sys; print(ascii(sys.argv[1:]))")
    ours = done(*RUN, "--record", "r.csv", printed, b"b\xe4r", cwd=tmp_path)
    assert ours.stdout == "['b\\udce4r']\n"
    assert "failed" not in ours.stderr


def test_with_quiet_nothing_is_printed(tmp_path):
    ours = done(*RUN, "--watch", "-q", script(tmp_path, "print('x')"))
    assert (ours.stdout, ours.stderr) == ("x\n", "")


def test_where_nothing_trained_no_empty_recording_is_left(tmp_path):
    done(*RUN, "--record", "x.csv", script(tmp_path, "print('x')"), cwd=tmp_path)
    assert not list(tmp_path.glob("x.*"))


def test_a_module_and_any_command_run_too(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("import sys; print(sys.argv[1:])")
    module = done(*RUN, "--watch", "-m", "pkg.train", "-m", "x", cwd=tmp_path)
    assert module.stdout == "['-m', 'x']\n"
    assert done(*RUN, "--watch", "--", "echo", "--watch").stdout == "--watch\n"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("raise ValueError", 1),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.kill(os.getpid(), 15)", 143),
    ],
)
def test_its_exit_code_is_ours_as_a_shell_shows_it(tmp_path, end, code):
    assert done(*RUN, "--watch", script(tmp_path, end)).returncode == code


def test_the_environment_names_the_run_and_where_gpudash_is_found(tmp_path):
    code = "import os, pathlib; run = pathlib.Path(os.environ['_GPUDASH_RUN'])\n"
    code += "print(oct(run.stat().st_mode & 0o777), os.environ['PYTHONPATH'])"
    found = done(*RUN, "--watch", script(tmp_path, code)).stdout.split()
    assert found == ["0o700", f"{ROOT / 'gpudash' / 'inject'}:{ROOT}"]


def test_a_script_may_run_gpudash_itself(tmp_path):
    inner = [*RUN, "--record", str(tmp_path / "r.csv"), TRAINING, "--steps", "30"]
    ours = done(*RUN, "--watch", "--", *inner)
    assert ours.returncode == 0, ours.stderr
    assert "scripted_training.py" in (tmp_path / "r.csv").read_text()
    info = done(*RUN, "--watch", "--", *GPUDASH, "info", "--json")
    assert json.loads(info.stdout)["problem"] is None


def test_nothing_is_left_behind(tmp_path, short_path):
    done(*RUN, "--watch", script(tmp_path, ""))
    done(*RUN, "--record", str(tmp_path / "no" / "folder.csv"), script(tmp_path, ""))
    assert not list(short_path.glob("gpudash-run-*"))


# ── signals ─────────────────────────────────────────────────────────────────────────────

PATIENT = """
import signal, time
saving = []
def save(*_):
    saving.append(1)
    print("saving", len(saving), flush=True)
signal.signal(signal.SIGINT, save)
print("ready", flush=True)
while len(saving) < 2:
    time.sleep(0.01)
time.sleep(0.2)
print("saved", flush=True)
raise SystemExit(5)
"""


def test_ctrl_c_is_the_scripts_own_also_a_second_one(tmp_path):
    terminal = pexpect.spawn(
        RUN[0], [*RUN[1:], "--watch", script(tmp_path, PATIENT)], encoding="utf-8", timeout=WAIT_S
    )
    terminal.expect("ready")
    terminal.sendintr()
    terminal.expect("saving 1")
    terminal.sendintr()
    terminal.expect("saving 2")
    terminal.expect("saved")
    terminal.expect(r"gpudash: train\.py exited with 5")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 5


def test_after_ctrl_c_gpudash_dies_of_it_so_that_a_shells_loop_ends(tmp_path):
    code = "import time; print('ready', flush=True); time.sleep(60)"
    words = [*RUN[1:], "--watch", script(tmp_path, code)]
    terminal = pexpect.spawn(RUN[0], words, encoding="utf-8", timeout=WAIT_S)
    terminal.expect("ready")
    terminal.sendintr()
    terminal.expect("KeyboardInterrupt")
    terminal.expect(r"gpudash: train\.py was interrupted")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.signalstatus == signal.SIGINT


def test_a_run_that_is_interrupted_before_it_trains_leaves_no_recording(tmp_path):
    end = script(tmp_path, "import os; os.kill(os.getpid(), 2)")
    done(*RUN, "--record", "x.csv", end, cwd=tmp_path)
    assert not list(tmp_path.glob("x.*"))


CATCHES = f"""
import runpy, sys
try:
    sys.argv = ["train.py"]
    runpy.run_path({TRAINING!r}, run_name="__main__")
except KeyboardInterrupt:
    sys.exit(1)  # as torchrun does
"""


@pytest.mark.parametrize("catches", [False, True])
def test_the_report_of_an_interrupted_run_tells_of_no_failure(tmp_path, catches):
    words = [script(tmp_path, CATCHES)] if catches else [TRAINING]
    ours = subprocess.Popen(
        [*RUN, "--record", "r.csv", *words], cwd=tmp_path, process_group=0, stdout=subprocess.PIPE
    )
    with ours:
        until((tmp_path / "r.csv").exists)
        until(lambda: (tmp_path / "r.csv").read_text().count("\n") > 1)
        os.killpg(ours.pid, signal.SIGINT)
    known = json.loads((tmp_path / "r.json").read_text())
    assert (known["failures"], known["complete"]) == ([], True)
    assert main(["report", str(tmp_path / "r.csv"), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "Failures" not in page
    how = "train.py exited with 1" if catches else "scripted_training.py was interrupted"
    assert how in page


def test_input_works_and_a_terminal_is_a_terminal(tmp_path):
    code = "import sys; print(sys.stdout.isatty(), input('name? '))"
    words = [*RUN[1:], "--watch", script(tmp_path, code)]
    terminal = pexpect.spawn(RUN[0], words, encoding="utf-8", timeout=WAIT_S)
    terminal.expect(r"name\?")
    terminal.sendline("Eve")
    terminal.expect("True Eve")
    terminal.expect(pexpect.EOF)


CHECKPOINT = (signal.SIGUSR1, signal.SIGUSR2)
"""By these a scheduler asks for a checkpoint before the time is over."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, *CHECKPOINT])
def test_signals_to_gpudash_are_passed_on(tmp_path, number):
    code = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda n, _: sys.exit(n))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    ours = subprocess.Popen([*RUN, "--watch", script(tmp_path, code)], stdout=subprocess.PIPE)
    with ours:
        assert ours.stdout.readline() == b"ready\n"
        ours.send_signal(number)
        assert ours.wait(WAIT_S) == number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_comes_while_the_command_starts_is_passed_on(tmp_path, monkeypatch, number):
    passed_on = []

    def start(*_words, **_options):
        signal.raise_signal(number)
        return SimpleNamespace(signal=passed_on.append, wait=lambda: 0, close=lambda: None)

    monkeypatch.setattr(headless_script, "Foreground", start)
    relay = SimpleNamespace(running=nullcontext, set_parting=lambda _how: None)
    command = HeadlessScript(understand([script(tmp_path, "")]))
    command.run_for(relay)
    assert passed_on == [number]


def test_a_killed_gpudash_leaves_the_script_to_its_end(tmp_path):
    code = "import os; print(os.getpid(), flush=True); input(); open('end', 'w').write('whole')"
    ours = subprocess.Popen(
        [*RUN, "--record", "r.csv", script(tmp_path, code)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        cwd=tmp_path,
    )
    with ours:
        pid = int(ours.stdout.readline())
        (run,) = until(runs.living)
        with pytest.raises(UsageError, match="watched by another gpudash"):
            run.open()
        ours.kill()
        ours.wait()
        assert keeper.began_ticks(pid) >= 0
        held = run.open()  # it can be attached to, without its terminal
        held.read()
        assert not held.over
        with pytest.raises(UsageError, match="watched by another gpudash"):
            run.open()  # one at a time
        ours.stdin.write(b"\n")
        ours.stdin.flush()
        until(lambda: held.read() == b"" and held.over)
    assert (tmp_path / "end").read_text() == "whole"
    assert runs.living() == []  # and what it left is removed


# ── what is measured ────────────────────────────────────────────────────────────────────


def test_a_training_is_recorded(tmp_path):
    path = tmp_path / "r.csv"
    to = ["--to", f"jsonl:{tmp_path / 'rows.jsonl'}"]
    ours = done(*RUN, "--record", str(path), *to, TRAINING, "--steps", "150", "--exit", "3")
    assert ours.returncode == 3
    last = ours.stderr.splitlines()[-1]
    assert last.startswith("gpudash: scripted_training.py exited with 3; 147 steps, ")
    recorded, limit = last.split("; ")[-2:]  # which limit, the machine decides
    assert recorded == f"recorded to {path}"
    assert limit.endswith(" % of the training time")
    header, *rows = path.read_text().splitlines()
    workload = header.split(",").index("workload")
    assert {row.split(",")[workload] for row in rows} == {"scripted_training.py"}
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(rows)


def test_trainings_one_after_another_are_counted_all_with_a_line_each(tmp_path):
    code = (
        f"import subprocess, sys; words = [sys.executable, {TRAINING!r}, '--steps']\n"
        "for steps in '60', '90', '120': subprocess.run([*words, steps])"
    )
    ours = done(*RUN, "--watch", script(tmp_path, code))
    *each, last = [line for line in ours.stderr.splitlines() if line.startswith("gpudash: ")]
    counts = [int(line.split()[3]) for line in each]
    assert [line.split(":")[1] for line in each] == [f" training {number}" for number in (1, 2, 3)]
    assert all(0 < count <= most for count, most in zip(counts, (60, 90, 120), strict=True))
    assert counts == sorted(counts)
    assert last.startswith(f"gpudash: 3 trainings, {sum(counts)} steps, ")


def test_a_full_disk_ends_the_recording_and_not_the_script(tmp_path):
    words = " ".join([*RUN, "--record", "r.csv", TRAINING, "--steps", "150", "--exit", "3"])
    ours = done("bash", "-c", f"ulimit -f 5; exec {words}", cwd=tmp_path)
    assert ours.returncode == 3
    assert (
        "recorded to r.csv; recording to r.jsonl ends: file too large"
        in ours.stderr.splitlines()[-1]
    )
    assert ours.stderr.splitlines()[-2] == "done"


def test_a_full_disk_is_named_even_if_nothing_else_is(tmp_path):
    words = " ".join([*RUN, "-q", "--record", "r.csv", TRAINING, "--steps", "150", "--exit", "3"])
    ours = done("bash", "-c", f"ulimit -f 5; exec {words}", cwd=tmp_path)
    assert ours.returncode == 3
    said = [line for line in ours.stderr.splitlines() if line.startswith("gpudash: ")]
    assert len(said) == 1
    assert said[0].startswith("gpudash: recording to r.jsonl ends: file too large")


def test_a_flood_of_output_passes_untouched(tmp_path):
    code = "for _ in range(100): print(('x' * 99 + '\\n') * 10_000, end='')"
    with subprocess.Popen(
        [*RUN, "--watch", "-q", script(tmp_path, code)], stdout=subprocess.PIPE
    ) as ours:
        size = sum(map(len, iter(lambda: ours.stdout.read(1 << 20), b"")))
    assert size == 100_000_000


# ── ab ──────────────────────────────────────────────────────────────────────────────────

AB = [*GPUDASH, "ab", "--pairs", "3"]


def test_a_lever_is_compared_and_the_command_ended(tmp_path):
    ours = done(*AB, "--lever", "num_workers=2,8", "--json", "--", TRAINING, "--step-s", "0.001")
    verdict = json.loads(ours.stdout)  # alone: what the script prints goes to stderr
    assert (verdict["lever"], verdict["a"], verdict["b"]) == ("num_workers", "2", "8")
    assert verdict["settings"]["num_workers"] == "2"
    assert verdict["pairs"] == 3
    assert "training" in ours.stderr
    assert ours.returncode == 0
    assert runs.living() == []


@pytest.mark.parametrize(
    ("lever", "why"),
    [
        ("compile=off,on", "lever 'compile' is not valid; valid: num_workers, precision"),
        ("precision=script,tf32", "lever precision cannot be moved to tf32 here: TF32 needs a GPU"),
        (
            "num_workers=script,2",
            "lever num_workers is 2 in the script already; an A/B needs another",
        ),
    ],
)
def test_an_impossible_comparison_is_reported_and_ends_the_command(lever, why):
    ours = done(*AB, "--lever", lever, "--", TRAINING)
    assert ours.returncode == 2
    assert f"gpudash: {why}" in ours.stderr.splitlines()[-1]
    assert runs.living() == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--lever", "num_workers=2"], "--lever num_workers=2 is not valid; valid: NAME=A,B"),
        (["--lever", "a=1,2", "--set", "seed=1"], "--set does not go with a command of yours"),
        (["--lever", "a=1,2", "encdec"], "encdec does not go with a command of yours"),
        (
            ["--lever", "num_worker=1,2"],
            "lever 'num_worker' is not valid; valid: num_workers, pref",
        ),
        (
            ["--lever", "num_workers=2,x"],
            "num_workers: 'x' is not valid; valid: script, a whole num",
        ),
        (["--lever", "num_workers=0,257"], "lever num_workers: '257' is not valid"),
        (
            ["--lever", "precision=script,bf61"],
            "lever precision: 'bf61' is not valid; valid: script",
        ),
        (
            ["--lever", "pin_memory=on,"],
            "lever pin_memory: '' is not valid; valid: script, off, on",
        ),
        (
            ["--lever", "batch_size=8,16"],
            "lever batch_size cannot be moved: a script sets its batch",
        ),
    ],
)
def test_known_errors_are_reported_before_the_command_starts(tmp_path, words, why, capfd):
    assert main(["ab", *words, "--", script(tmp_path, "print('started')")]) == 2
    output, errors = capfd.readouterr()
    assert output == ""
    assert why in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("words", [["--steps", "0"], ["--steps", "40", "--step-s", "0.001"]])
def test_a_script_that_fails_first_is_reported_in_a_line_and_its_exit_code_is_ours(words):
    ours = done(*AB, "--lever", "num_workers=2,8", "--", TRAINING, *words, "--exit", "3")
    assert ours.returncode == 3
    last = ours.stderr.splitlines()[-1]
    assert last.startswith("gpudash: no verdict: scripted_training.py exited with 3")
    assert ours.stderr.count("no verdict") == 1


def test_a_script_that_ends_first_leaves_no_verdict(tmp_path):
    ours = done(*AB, "--lever", "compile=off,on", "--", script(tmp_path, ""))
    assert ours.returncode == 1
    assert "no verdict: no training step was seen" in ours.stderr


STARTS = [*AB, "--lever", "num_workers=2,8", "--starts"]
SLOWLY = ["--step-s", "0.001"]


def test_with_starts_the_same_command_runs_again_and_again_and_that_is_said_first(tmp_path):
    code = f"""
import runpy, sys
open("runs", "a").write("run " + " ".join(sys.argv[1:]) + "\\n")
runpy.run_path({TRAINING!r}, run_name="__main__")
"""
    words = ["--", script(tmp_path, code), *SLOWLY]
    ours = done(*STARTS, "2", "--json", *words, cwd=tmp_path)
    assert ours.stderr.splitlines()[0] == (
        "gpudash: train.py will run 2 times, one after the other, by the same command: "
        "the files that it writes are written again each time"
    )
    assert (tmp_path / "runs").read_text() == "run --step-s 0.001\n" * 2
    verdict = json.loads(ours.stdout)
    assert len(verdict["starts"]) == 2
    assert verdict["low"] <= verdict["change"] <= verdict["high"]
    assert ours.returncode == 0
    assert runs.living() == []


def test_a_start_that_fails_ends_it_with_its_own_exit_code_and_what_is_known(tmp_path):
    code = f"""
import pathlib, runpy
seen = pathlib.Path("seen")
if seen.exists():
    raise SystemExit(7)
seen.touch()
runpy.run_path({TRAINING!r}, run_name="__main__")
"""
    ours = done(*STARTS, "3", "--", script(tmp_path, code), *SLOWLY, cwd=tmp_path)
    assert ours.returncode == 7
    failed, known = ours.stderr.splitlines()[-2:]
    assert failed.startswith("gpudash: no verdict in start 2 of 3: train.py exited with 7")
    assert known.startswith("gpudash: no verdict over starts: it needs 2; the only one says: ")


def test_ctrl_c_keeps_the_starts_until_then(tmp_path):
    words = [*STARTS[1:], "9", "--", TRAINING, *SLOWLY]
    terminal = pexpect.spawn(STARTS[0], words, encoding="utf-8", timeout=WAIT_S)
    terminal.expect("start 2 of 9: .* 3 pairs")
    terminal.expect(r"training \d+")
    terminal.sendintr()
    terminal.expect("gpudash: no verdict in start 3 of 9: interrupted")
    terminal.expect("2 starts, 6 pairs, .*; interrupted before its 9 starts")
    terminal.expect("the starts: ")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130
    assert runs.living() == []


# ── bad input ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--watch"], "there is nothing to run; valid: SCRIPT.py, -m MODULE or -- COMMAND"),
        (["--watch", "nosuch.py"], "no such file: nosuch.py"),
        (["--watch", "--", "nosuch"], "command not found: nosuch"),
        (["--record", "-", TRAINING], "--record - is not valid: standard output is the script's"),
        (["--watch", "--record", "r.csv", TRAINING], "--record does not go with --watch"),
        (["--live", TRAINING], "--live goes with --record FILE.csv"),
        (["--python", "nosuch", TRAINING], "--python not found: nosuch"),
        (["--epochs", "3", TRAINING], "unknown option '--epochs'"),
    ],
)
def test_errors_are_one_line(words, why, capfd):
    assert main(["run", *words]) == 2
    output, errors = capfd.readouterr()
    assert output == ""
    assert why in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("words", [["run", "--watch", "x.py"], ["run", "x.py"], ["attach"]])
def test_a_folder_that_cannot_hold_runs_is_named_before_anything_starts(
    monkeypatch, short_path, tmp_path, words
):
    (short_path / "file").touch()
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path / "file"))
    (tmp_path / "x.py").write_text("print('started')")
    ours = done(*GPUDASH, *words, cwd=tmp_path)
    assert (ours.returncode, ours.stdout) == (2, "")
    assert ours.stderr.startswith(f"gpudash: GPUDASH_RUN_DIR: {short_path}/file is no folder; ")
    assert ours.stderr.count("\n") == 1


# ── attach ──────────────────────────────────────────────────────────────────────────────


def a_run(name, pid):
    facts = runs.Facts(
        name=name,
        command=("python", name),
        cwd="/home/eve",
        pid=pid,
        is_kept=True,
        processes=((pid, 1), (pid + 1, 1)),
        space="",
        started_s=0.0,
    )
    return runs.UserRun(None, facts)


def test_the_only_run_need_not_be_named():
    run = a_run("train.py", 7)
    assert choose(None, [run]) is run
    assert choose("train.py", [run, a_run("gan.py", 8)]) is run
    assert choose("7", [run, a_run("train.py", 8)]) is run


def test_a_run_that_another_gpudash_records_is_not_chosen():
    run = a_run("train.py", 7)
    me = (os.getpid(), keeper.began_ticks(os.getpid()))
    facts = msgspec.structs.replace(run.facts, is_kept=False, processes=((7, 1), me))
    recorded = runs.UserRun(None, facts)
    assert choose(None, [recorded, run]) is run
    assert choose(None, [recorded]) is recorded


@pytest.mark.parametrize(
    ("word", "names", "why"),
    [
        (None, [], "no command of gpudash run lives; .*%load_ext gpudash"),
        (None, ["a.py", "b.py"], r"2 commands run, .*: 0 \(a.py in /home/eve\); 1 \(b.py"),
        ("c.py", ["a.py"], r"no command 'c.py' runs; valid: the name or process id of 0 \(a.py"),
        ("a.py", ["a.py", "a.py"], "2 commands run, one has to be named by its process id"),
    ],
)
def test_an_ambiguous_run_is_refused(word, names, why):
    with pytest.raises(UsageError, match=why):
        choose(word, [a_run(name, at) for at, name in enumerate(names)])


def test_a_run_of_another_node_is_named(monkeypatch):
    facts = msgspec.structs.replace(a_run("train.py", 7).facts, host="gpu3")
    monkeypatch.setattr(runs, "elsewhere", lambda: [facts])
    with pytest.raises(UsageError, match="valid: gpudash attach where one does: train.py on gpu3"):
        choose(None, [])


class Watched:
    """A script's training that is attached to."""

    name, joined, last_lines, prints_to = "train.py", False, (), ""

    def __init__(self, exit_code, *, is_lost=False):
        self.exit_code, self.is_lost = exit_code, is_lost
        self.is_over = is_lost or exit_code is not None

    def how_it_ended(self):
        return "the terminal is gone"

    def close(self):
        pass


def attached_to(watched, monkeypatch):
    """Return the exit code of `gpudash attach`."""
    run = SimpleNamespace(facts=a_run("train.py", 7).facts, place=None, open=lambda: None)
    monkeypatch.setattr(attach, "choose", lambda *_: run)
    monkeypatch.setattr("gpudash.cli.stdout.on_terminal", lambda: True)
    monkeypatch.setattr("gpudash.cli.run_command.listen", lambda *_, **_options: None)
    monkeypatch.setattr("gpudash.run.script.ScriptSource", lambda *_, **_options: watched)
    left = Left(0, Snapshot(workload="train.py"))
    monkeypatch.setattr("gpudash.cli.dashboard.show", lambda *_: left)
    return attach.main(SimpleNamespace(run=None, rate=1.0, command=(), price=None))


@pytest.mark.parametrize(("exit_code", "ours"), [(-2, 130), (3, 3), (0, 0), (None, 0)])
def test_attach_ends_as_run_does_with_the_scripts_own_code(monkeypatch, capsys, exit_code, ours):
    assert attached_to(Watched(exit_code), monkeypatch) == ours
    goes_on = "gpudash attach, as train.py runs on\n"
    assert capsys.readouterr().err.endswith(goes_on) == (exit_code is None)


def test_whoever_loses_the_script_does_not_end_as_if_it_had_succeeded(monkeypatch, capsys):
    assert attached_to(Watched(None, is_lost=True), monkeypatch) == 1
    assert capsys.readouterr().err == "gpudash: the terminal is gone\n"
