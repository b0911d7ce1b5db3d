"""Each change that is judged is kept in its repository, and counts among all attempts."""

import json
import os
import subprocess
import sys

import pytest

from gpudash.cli.main import main
from gpudash.errors import Exit
from gpudash.run.attempts import FILE, FOLDER, read
from tests.cli import test_ab
from tests.cli.conftest import ROOT
from tests.scripted_session import ScriptedSession
from tests.scripted_worker import Worker
from tests.waiting import PATIENCE_S

APPENDING = """
import sys
from pathlib import Path
from gpudash.run.attempts import Attempt, keep
for number in range(200):
    keep(Path(sys.argv[1]), Attempt(
        when=str(number), gpudash="0", command="x" * 5_000, lever="l", a="a", b=sys.argv[2],
        verdict="refused", told=""))
"""


@pytest.fixture
def file(private):
    """Where attempts of the working folder are kept, which lies in a repository."""
    subprocess.run(["git", "init", "--quiet"], check=True)
    (private / "deep").mkdir()
    os.chdir(private / "deep")
    return private / FOLDER / FILE


def compared(step_ms, *words):
    return test_ab.run(ScriptedSession(Worker(step_ms)), "--json", *words)


def listed(printed):
    return json.loads(printed("attempts", "--json"))


def test_each_verdict_is_kept_and_git_does_not_see_it(file, capfd, printed):
    assert compared(test_ab.a_quarter_faster) == 0
    assert compared(lambda _settings: 50.0) == 0
    capfd.readouterr()
    faster, same = listed(printed)["attempts"]
    assert (faster["lever"], faster["a"], faster["b"]) == ("pipelined", "off", "on")
    assert faster["command"].startswith("gpudash ab encdec --lever pipelined=off,on")
    assert faster["low"] <= faster["change"] <= faster["high"]
    assert [faster["verdict"], same["verdict"]] == ["faster", "no difference"]
    assert (faster["counted"], faster["confidence"]) == ("pairs", 0.95)
    assert [faster["holds"], same["holds"]] == [False, None]  # of five pairs nothing is that sure
    assert subprocess.check_output(["git", "status", "--porcelain"]) == b""


def test_a_claim_that_does_not_hold_is_to_be_measured_over_starts_and_one_that_holds_is_kept(
    file, capfd
):
    compared(test_ab.a_quarter_faster)
    found = json.loads(capfd.readouterr().out)
    assert found["holds"] is False
    assert found["next"].startswith("gpudash ab --starts 4 encdec")
    four = [ScriptedSession(Worker(test_ab.a_quarter_faster)) for _ in range(4)]
    words = ("--lever", "pipelined=off,on", "--pairs", "6", "--starts", "4", "--json")
    assert test_ab.called("ab", "encdec", *words, trains=four) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["holds"], found["next"]) == (True, "gpudash show pipelined=on")


def test_what_failed_or_was_refused_is_reported_and_kept_with_the_reason(file, capfd, printed):
    assert main(["ab", "--a", "true", "--b", "true", "--quiet"]) != 0
    stubborn = Worker(
        refuses=lambda settings: "no streams" if settings["pipelined"] == "on" else ""
    )
    assert test_ab.run(ScriptedSession(stubborn)) == Exit.REFUSED
    assert "gpudash: no verdict: no streams\n" in capfd.readouterr().err
    failed, refused = listed(printed)["attempts"]
    assert (failed["lever"], failed["verdict"], failed["change"]) == ("command", "failed", None)
    assert (refused["verdict"], refused["told"]) == ("refused", "no streams")
    assert ": refused: no streams\n" in printed("attempts")


def test_a_verdict_is_not_lost_where_it_cannot_be_kept(file, capfd):
    file.parent.write_text("a file, where the folder should be")
    assert compared(test_ab.a_quarter_faster) == 0
    output, errors = capfd.readouterr()
    assert json.loads(output)["holds"] is None
    assert errors.count(f"gpudash: this attempt is not kept in {file}: ") == 1


def test_what_cannot_be_read_is_one_line(file, refused):
    file.mkdir(parents=True)
    assert f"cannot read {file}: " in refused("attempts")


def test_a_line_that_was_cut_costs_itself_alone_and_another_version_is_read(file, capfd, printed):
    compared(test_ab.a_quarter_faster)
    whole = file.read_bytes()
    newer = whole.replace(b'{"schema_version":1', b'{"schema_version":9,"more":[1]')
    file.write_bytes(newer + whole[:50])
    compared(test_ab.a_quarter_faster)
    capfd.readouterr()
    assert main(["attempts"]) == 0
    output, errors = capfd.readouterr()
    assert (output.count(": faster"), errors) == (
        2,
        f"left out 1 line of {file} that made no sense\n",
    )


def test_programs_that_append_at_once_lose_nothing(file):
    both = [
        subprocess.Popen([sys.executable, "-c", APPENDING, file, name], cwd=ROOT) for name in "xy"
    ]
    assert [one.wait(PATIENCE_S) for one in both] == [0, 0]
    found = read(file)
    assert (len(found.known), found.damaged) == (400, 0)


def test_outside_of_a_repository_nothing_is_kept(private, refused, capfd):
    assert compared(test_ab.a_quarter_faster) == 0
    assert json.loads(capfd.readouterr().out)["holds"] is None
    assert not [*private.iterdir()]
    assert "attempts are kept for a Git repository" in refused("attempts")
