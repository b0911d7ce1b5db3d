"""A pipe in the place of a file is never waited for in silence."""

import json
import os
import shlex
import sys

import pytest

from gpudash.cli.main import main
from tests.compare.test_runs import OFF, recorded
from tests.trace.made import step
from tests.waiting import done


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "words",
    [
        ["export", "pipe", "-o", "x.csv"],
        ["replay", "pipe"],
        ["report", "pipe", "-o", "x.html"],
        ["compare", "pipe", "run.csv"],
        ["compare", "run.csv", "pipe"],
        ["profile", "--read", "pipe"],
        ["profile", "--against", "pipe"],
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "link"])
def test_a_named_pipe_is_refused_in_one_line(private, capsys, words, name):
    recorded(private / "run.csv", (OFF, 20, 100))
    os.mkfifo("a.csv")
    (private / "link").symlink_to("a.csv")
    assert main([name if word == "pipe" else word for word in words]) == 2
    assert capsys.readouterr().err == (
        f"gpudash: cannot read {name}: it is a named pipe; valid: a file\n"
    )


@pytest.mark.timeout(60)
def test_a_recording_is_read_without_a_pipe_in_the_place_of_its_json(private, capsys):
    recorded(private / "run.csv", (OFF, 20, 100))
    (private / "run.jsonl").unlink()
    (private / "run.json").unlink()
    os.mkfifo("run.json")
    assert main(["export", "run.csv", "-o", "again.jsonl"]) == 0
    assert capsys.readouterr().err == ""


def test_a_trace_may_come_from_another_command(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [step(1, 0.0, 90.0)]}))
    line = f"{shlex.quote(sys.executable)} -m gpudash profile --read <(sleep 0.2; cat t.json)"
    assert done("bash", "-c", line, cwd=tmp_path).stdout.startswith("1 step traced")
