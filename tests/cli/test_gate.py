"""`gpudash gate`: the exit code says whether a change may go in."""

import fcntl
import os
import sys
from xml.etree.ElementTree import fromstring

import jsonschema
import msgspec
import pytest

from gpudash.cli.gate_report import (
    EXITS,
    GateFindings,
    GateReport,
    as_junit,
    as_markdown,
    document,
    lines,
)
from gpudash.cli.main import main
from gpudash.errors import Exit
from tests.cli.test_ab_changes import SIX, asked, start, versions


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The working folder: one whose script has a tag for each version."""
    versions(tmp_path, base="--step-ms 20", slower="--step-ms 80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_slower_version_fails_with_a_comment_and_a_tests_result(repository):
    folder = os.open(repository, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # as another gate does
    python = ("--python-a", sys.executable, "--python-b", sys.executable)
    to = ("--markdown", "it.md", "--junit", "it.xml")
    code, found, told = asked(*python, *to, "base", "slower", "--", "train.py", verb="gate")
    os.close(folder)
    assert (code, found["ending"], found["starts"]) == (Exit.SLOWER, "slower", 4), told
    jsonschema.validate(found, msgspec.json.schema(GateReport))
    assert found["change"] == pytest.approx(20 / 80 - 1)
    assert "another gate runs in " in told
    assert "slower is 75.0 % slower" in (repository / "it.md").read_text()
    suite = fromstring((repository / "it.xml").read_text())
    assert (suite.get("failures"), suite[0].get("name")) == ("1", "base → slower: train.py")


# ── what the starts say ─────────────────────────────────────────────────────────────────


def gated(*starts, limit=0.02):
    found = GateFindings("main", "HEAD", limit)
    for one in starts:
        found.add(one)
    return found


SAME = [start(10.0, 10.0 * (1 + one / 1000)) for one in (0, 1, -1, 2, -2, 0)]


MOVED = ({1: 2.0, 2: 1.512}, {1: 2.0, 2: 1.401})
COUNTS = {"syncs": {}}, {"syncs": {"item at train.py:31": [1.0] * 10}}
GROWN = "1 sync a step more: item at train.py:31"


@pytest.mark.parametrize(
    ("what", "starts", "ending", "code", "comment", "result"),
    [
        ("what passes leaves no comment", SAME, "pass", Exit.DONE, "", {"failures": "0"}),
        ("what is faster does", SIX, "faster", Exit.DONE, "5.0 % faster", {"failures": "0"}),
        ("another training is no pass", [start(10.0, 10.0, losses=MOVED)] * 4, "training changed",
         6, "losses moved from step 2 on", {"failures": "1"}),
        ("a count that has grown is slower, and told with what came",
         [SAME[0]._replace(counts=COUNTS), *SAME[1:]], "slower", Exit.SLOWER, f"- {GROWN}",
         {"failures": "1"}),
        ("both have to be comparable", [start(10.0, 10.0, b_samples=None)], "not comparable", 5,
         "known of one side alone", {"failures": "1"}),
        ("a budget that ends before the first start", [], "inconclusive", 3,
         "no start of both has ended", {"skipped": "1"}),
        ("too few starts are skipped in a tests' result", SAME[:2], "inconclusive", 3, "",
         {"skipped": "1"}),
    ],
)  # fmt: skip
def test_the_starts_say(what, starts, ending, code, comment, result):
    found = gated(*starts)
    assert (found.ending, EXITS[found.ending]) == (ending, code), what
    assert comment in as_markdown(found)
    assert bool(as_markdown(found)) == (ending != "pass")
    assert fromstring(as_junit(found)).attrib.items() >= result.items()
    assert document(found).starts == len(starts)


def test_the_sentence_begins_with_what_decided():
    found = gated(SAME[0]._replace(counts=COUNTS), *SAME[1:])
    assert found.sentence.startswith(f"slower: {GROWN}; no difference shown for HEAD")
    assert GROWN in lines(found)


# ── bad input ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["base"], "needs a command"),
        (["base", "train.py"], "needs a command"),
        (["base", "base", "--", "train.py"], "base and base are the same commit"),
        (["mian", "--", "train.py"], "version mian: no commit of "),
        (["base", "--max-slowdown", "0", "--", "train.py"], "--max-slowdown 0% is not valid"),
        (["--calibrate", "base", "slower", "--", "train.py"], "--calibrate compares BASE"),
        (["--calibrate", "--junit", "x", "base", "--", "train.py"], "--junit does not go with"),
        (["--json", "--markdown", "-", "base", "--", "train.py"], "does not go with --json"),
        (["--junit", "train.py", "base", "--", "train.py"], "train.py exists"),
    ],
)
def test_what_cannot_be_gated_is_one_line(words, says, repository, refused, monkeypatch):
    monkeypatch.setattr("psutil.getloadavg", lambda: (0.0, 0.0, 0.0))
    assert says in refused("gate", *words)


def test_a_project_without_a_repository_is_one_line(private, refused):
    assert "valid: a folder in a working tree of Git's" in refused("gate", "main", "--", "train.py")


def test_a_loaded_machine_is_told_of(repository, capsys, monkeypatch):
    monkeypatch.setattr("psutil.getloadavg", lambda: (999.0, 0.0, 0.0))
    main(["gate", "--budget", "1", "base", "slower", "--", "false"])
    assert "the machine is loaded: 999 processes for " in capsys.readouterr().err
