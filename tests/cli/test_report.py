"""`gpudash report`: a file is written whole, or not at all."""

import sys

import pexpect
import pytest

from gpudash.cli.main import main
from tests.compare.test_runs import OFF, ON, recorded


@pytest.fixture
def run(tmp_path):
    return recorded(tmp_path / "run.csv", (OFF, 20, 100), (ON, 20, 120))


def ask(recording, output, *options):
    return main(["report", str(recording), "-o", str(output), *options])


def test_a_page_is_written_without_output(run, tmp_path, capsys):
    output = tmp_path / "run.html"
    assert ask(run, output) == 0
    assert capsys.readouterr() == ("", "")
    html = output.read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "pipelined=on" in html
    assert f"gpudash report {run} -o {output}" in html


def test_as_text_it_has_what_ran_its_curve_and_its_settings(run, capsys):
    assert main(["report", str(run), "--text"]) == 0
    what, *lines = capsys.readouterr().out.splitlines()
    assert what.startswith("gpudash: encdec, ")
    assert any("┤" in line for line in lines)
    assert [line.split()[0] for line in lines[-2:]] == ["1", "2"]
    assert "pipelined=on" in lines[-1]


def test_a_page_needs_a_name_and_text_none(run, tmp_path, capsys):
    assert main(["report", str(run)]) == 2
    assert "one of the arguments -o/--output --text is required" in capsys.readouterr().err
    assert ask(run, tmp_path / "run.html", "--text") == 2


def test_a_long_reading_shows_on_a_terminal_how_far_it_is(run, tmp_path):
    command = [sys.executable, "-m", "gpudash", "report", str(run), "-o", "run.html"]
    terminal = pexpect.spawn(command[0], command[1:], cwd=tmp_path, encoding="utf-8", timeout=60)
    terminal.expect_exact(f"reading {run}: 100 %")
    assert terminal.expect(pexpect.EOF) == 0
    assert terminal.before.endswith("\r\x1b[2K")  # and leaves nothing of it


@pytest.mark.parametrize(
    ("recording", "page", "why"),
    [
        ("run.csv", "run.pdf", "its name has to end in .html"),
        ("run.csv", ".", "its name has to end in .html"),
        ("run.csv", "run.csv", "its name has to end in .html"),
        ("other.csv", "run.html", "is not a recording"),
        ("none.csv", "run.html", "no such file"),
        ("run.csv", "none/run.html", "does not exist"),
    ],
)
def test_errors_are_one_line_and_leave_no_page(run, private, refused, recording, page, why):
    (private / "other.csv").write_text("hello\n")
    before = sorted(private.iterdir())
    assert why in refused("report", recording, "-o", page)
    assert sorted(private.iterdir()) == before
