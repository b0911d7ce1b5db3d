"""`gpudash ab` of two commands or two versions: both are started, and measured in turns."""

import json
import os
import shlex
import subprocess
import sys

import jsonschema
import msgspec
import pytest

from gpudash.cli.changes_report import ChangeFindings, ChangeReport, document, lines
from gpudash.cli.changes_screen import told_apart
from gpudash.cli.rounds import MeasuredRound
from gpudash.compare.blocks import MeasuredBlock
from gpudash.present.card import card_of, markdown
from gpudash.run.attempts import read
from gpudash.snapshot import Snapshot
from tests.worker_double import environment, gpudash

PYTHON = shlex.quote(sys.executable)
TRAIN = """
from tests.run.scripted_training import main
main()
"""


def asked(*words, verb="ab", **where):
    """Run gpudash as a command; return its exit code, what it found, and what it told."""
    command = gpudash(verb, "--json", *words)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment(), **where
    )
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def versions(folder, **options):
    """Make it a repository with a tag for each of these options of `train.py`; return its git."""

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
        ).stdout

    git("init", "--quiet", "-b", "main")
    for name, words in options.items():
        (folder / "train.py").write_text(f"import sys\nsys.argv[1:] = {words.split()}\n{TRAIN}")
        git("add", "-A")
        git("commit", "--quiet", "-m", name)
        git("tag", name)
    return git


def test_a_change_between_two_commits_is_found_and_nothing_of_the_users_moves(tmp_path):
    git = versions(tmp_path, base="--step-ms 20 --loss 4", slower="--step-ms 80 --loss 5")
    (tmp_path / "train.py").write_text("raise SystemExit('the tree as it is')")

    def theirs():
        files = [path for path in tmp_path.rglob("*") if ".gpudash" not in path.parts]
        return git("status", "--porcelain"), git("worktree", "list"), sorted(files)

    before = theirs()
    code, found, told = asked(
        *("--versions", "base,slower", "--starts", "2", "--pairs", "2", "--python-a"),
        *(sys.executable, "--python-b", sys.executable, "train.py"),
        cwd=tmp_path,
    )
    assert (code, found["lever"], found["a"], found["b"]) == (0, "version", "base", "slower"), told
    jsonschema.validate(found, msgspec.json.schema(ChangeReport))
    assert found["change"] == pytest.approx(20 / 80 - 1)
    assert [one["pairs"] for one in found["starts"]] == [2, 2]
    assert (found["losses"]["kind"], found["losses"]["from_step"]) == ("moved", 2)
    assert found["why_apart"] == ""
    assert (found["counts"], found["why_no_counts"], found["phase_lost"]) == ([], "", None)
    assert "both are started 2 times, for 5:00 at most; what they write is lost, but for" in told
    assert before == theirs()
    (kept,) = read(tmp_path / ".gpudash" / "attempts.jsonl").known
    assert (kept.lever, kept.a, kept.counted, kept.count) == ("version", "base", "starts", 2)
    assert found["next"].startswith(("gpudash ab --starts 4 --json", "gpudash why train.py"))


def test_what_works_on_while_it_is_paused_is_started_after_the_other(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    command = f"{PYTHON} train.py"
    both = ("--a", command, "--b", f"{command} --busy", "--starts", "1", "--pairs", "2")
    core = {min(os.sched_getaffinity(0))}  # on many cores one that is busy disturbs nobody
    code, found, told = asked(*both, cwd=tmp_path, preexec_fn=lambda: os.sched_setaffinity(0, core))
    assert (code, len(found["starts"])) == (0, 1), told
    assert found["why_apart"] == f"{command} --busy works on while it is paused"
    assert found["change"] == pytest.approx(0.0)


FAILS = f"{PYTHON} -c 'print(1 / 0)'"
SHORT = f"{PYTHON} train.py --steps 10"


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (FAILS, "sleep 9", [f"a start without a result: {FAILS}: ", "ZeroDivisionError"]),
        (SHORT, SHORT, ["it ended before it was measured; valid: a command that trains for a min"]),
    ],
    ids=["it fails", "it ends too early"],
)
def test_a_side_without_a_result_says_why_and_which_it_is(tmp_path, a, b, says):
    (tmp_path / "train.py").write_text(TRAIN)
    code, found, told = asked("--a", a, "--b", b, cwd=tmp_path)
    assert (code, found) == (1, None)
    assert [one for one in says if one not in told] == [], told


def test_what_cannot_run_beside_the_other_is_started_after_it(tmp_path):
    once = "import os; os.mkdir('lock'); import atexit; atexit.register(os.rmdir, 'lock')"
    (tmp_path / "train.py").write_text(f"{once}\n{TRAIN}")
    command = f"{PYTHON} train.py"
    both = ("--a", command, "--b", f"{command} --tells", "--starts", "1", "--pairs", "2")
    code, found, told = asked(*both, cwd=tmp_path)
    assert (code, len(found["starts"])) == (0, 1), told
    assert found["why_apart"].startswith(f"{command} --tells failed beside the other: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--a", "x"], "--a needs --b"),
        (["--lever", "pipelined=off,on", "--b", "x"], "--b goes with --a"),
        (["--a", "sh", "--b", "'x"], '--b "\'x" is no command line'),
        (["--a", "sh", "--b", "sh", "train.py"], "--a and --b name both commands"),
        (["--a", "sh", "--b", "no-such-command"], "command not found: no-such-command"),
        (["--versions", "main,HEAD"], "--versions needs a command"),
        (["--versions", "main", "train.py"], "valid: A,B"),
        (["--a", "sh", "--b", "sh", "--energy"], "--energy goes with --lever"),
        (["--no-instruments", "--losses"], "--losses goes with --lever"),
        (["--a", "sh", "--b", "sh", "--budget", "x"], "--budget x s is not valid"),
        (["--a", "sh", "--b", "sh", "--python-a", "x"], "go with --versions"),
    ],
)
def test_what_cannot_be_compared_is_one_line(words, says, refused):
    assert says in refused("ab", *words)


# ── what the starts show ────────────────────────────────────────────────────────────────


def start(a_ms, b_ms, *, samples=32, b_samples=32, losses=({1: 2.0}, {1: 2.0})):
    a, b = (
        MeasuredBlock(
            number=0, steps=10, samples=None if of is None else 10 * of, busy_s=step_ms / 100
        )
        for step_ms, of in ((a_ms, samples), (b_ms, b_samples))
    )
    snapshots = Snapshot(workload="train.py"), Snapshot(workload="train.py")
    return MeasuredRound(20.0, ([a, a], [b, b]), losses, snapshots)


def found(*starts, fixed=False):
    findings = ChangeFindings("command", "train.py", "train.py --fused", within=None, fixed=fixed)
    for one in starts:
        findings.add(one)
    return findings


SIX = [start(10.0, 10.0 / (1.05 + one / 1000)) for one in (0, 1, -1, 2, -2, 0)]


def test_the_starts_are_what_is_counted():
    verdict, each, a, b = lines(found(*SIX))
    assert verdict.startswith("train.py --fused is 5.0 % faster [")
    assert "6 starts of each; losses identical over 1 step" in verdict
    assert each == "the starts: +5.0, +5.1, +4.9, +5.2, +4.8, +5.0 %"
    assert (a, b) == (
        "train.py: 100.0 steps/s, 3,200 samples/s",
        "train.py --fused: 105.0 steps/s, 3,360 samples/s",
    )
    told = document(found(*SIX))
    assert (told.compared_by, told.confidence) == ("sample", 0.99)
    assert [(one.low, one.confidence) for one in told.starts] == [(None, 0.99)] * 6
    card = markdown(card_of(found(*SIX).shown(), Snapshot(), "", 6))
    assert "over 6 starts, both started anew for each; losses identical over 1 step." in card


def test_what_differs_in_a_step_stands_below_the_verdict():
    counted = ({"operators": {}}, {"operators": {"item": (1,) * 10}})
    differ = found(*(one._replace(counts=counted) for one in SIX))
    assert "1 operator a step more: item" in [*lines(differ)]
    assert [one.name for one in document(differ).counts] == ["operators"]
    unknown = found(SIX[0]._replace(counts=("it ended before its profile", {})))
    assert "not counted: train.py: it ended before its profile" in [*lines(unknown)]
    assert document(unknown).counts is None


def test_the_verdict_says_how_many_blocks_others_have_disturbed():
    some = found(*SIX[1:], SIX[0]._replace(disturbed=4))
    assert "; 4 blocks beside other jobs on the GPU left out" in some.verdict
    assert document(some).disturbed_blocks == 4
    assert "left out" not in found(*SIX).verdict


def test_the_screen_has_room_for_that_by_which_commands_differ():
    long = "/opt/env/bin/python /home/me/train.py"
    assert told_apart(long, f"{long} --fused") == ("train.py", "train.py --fused")
    assert told_apart("train.py --lr 1", "train.py --lr 2") == ("--lr 1", "--lr 2")
    assert told_apart("feature/x", "other/x") == ("feature/x", "other/x")


def test_a_larger_batch_that_takes_longer_is_compared_by_samples():
    faster = found(*[start(10.0, 16.0, b_samples=64)] * 5)
    assert faster.estimate.change == pytest.approx(0.25)
    assert "compared by samples" in faster.verdict


def test_one_side_that_does_not_know_its_samples_cannot_be_compared():
    assert found(start(10.0, 10.0, b_samples=None)).why_not
    assert not found(start(10.0, 10.0, samples=None, b_samples=None)).why_not


def test_so_many_starts_as_were_asked_for_have_the_usual_interval():
    two = found(*SIX[:2], fixed=True).estimate
    assert two.low is not None
    assert found(*SIX[:2]).estimate.low is None  # it could end at any of them
