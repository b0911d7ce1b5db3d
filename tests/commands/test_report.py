"""`gpudash report`: a file is written whole, or not at all."""

from argparse import Namespace

import pytest

from gpudash.commands.report import main
from gpudash.errors import RecordingError, UsageError
from tests.compare.test_runs import OFF, ON, recorded


@pytest.fixture
def run(tmp_path):
    return recorded(tmp_path / "run.csv", (OFF, 20, 100), (ON, 20, 120))


def ask(recording, output, *, force=False):
    return main(Namespace(recording=str(recording), output=str(output), force=force))


def test_a_page_is_written_and_nothing_is_said(run, tmp_path, capsys):
    output = tmp_path / "run.html"
    assert ask(run, output) == 0
    assert capsys.readouterr() == ("", "")
    html = output.read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "pipelined=on" in html
    assert f"gpudash report {run} -o {output}" in html


def test_what_exists_is_kept_unless_it_is_forced(run, tmp_path):
    output = tmp_path / "run.html"
    output.write_text("precious")
    with pytest.raises(RecordingError, match=r"run\.html exists; --force overwrites it"):
        ask(run, output)
    assert output.read_text() == "precious"
    assert ask(run, output, force=True) == 0
    assert output.read_text().startswith("<!DOCTYPE html>")


def test_lines_that_make_no_sense_are_counted(run, tmp_path, capsys):
    log = run.with_suffix(".jsonl")
    log.write_bytes(log.read_bytes() + b"[]\n")
    assert ask(log, tmp_path / "run.html") == 0
    assert capsys.readouterr().err == f"left out 1 line of {log} that made no sense\n"


@pytest.mark.parametrize("name", ["run.pdf", "", "run.csv"])
def test_only_a_page_is_written(run, tmp_path, name):
    with pytest.raises(UsageError, match=r"its name has to end in \.html"):
        ask(run, tmp_path / name)


def test_what_is_no_recording_leaves_no_file(tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("hello\n")
    with pytest.raises(UsageError, match="is not the log of a recording"):
        ask(other, tmp_path / "run.html")
    with pytest.raises(UsageError, match="no such file"):
        ask(tmp_path / "none.csv", tmp_path / "run.html")
    assert not (tmp_path / "run.html").exists()


def test_a_folder_that_does_not_exist_is_said(run, tmp_path):
    with pytest.raises(RecordingError, match="the folder .* does not exist"):
        ask(run, tmp_path / "none" / "run.html")
