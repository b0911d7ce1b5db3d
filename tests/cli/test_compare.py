"""`gpudash compare`: its output, and the exit code for a CI job."""

import json
import os
import sys

import msgspec
import pytest

from gpudash.cli.main import main
from gpudash.compare.runs.comparison import RunComparison
from gpudash.errors import Exit
from tests.compare.test_runs import OFF, ON, recorded


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Recordings by name, with different numbers of steps in a row."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "base": recorded(folder / "base.csv", (OFF, 60, 1000)),
        "same": recorded(folder / "same.csv", (OFF, 61, 1000)),
        "slower": recorded(folder / "slower.csv", (OFF, 60, 900)),
        "short": recorded(folder / "short.csv", (OFF, 20, 900)),
        "coarse": recorded(folder / "coarse.csv", (OFF, 60, 2)),
        "other": recorded(folder / "other.csv", (ON, 60, 1000)),
        "cold": recorded(folder / "cold.csv", (OFF, 1, 10)),
    }


def ask(runs, base, new, *options):
    return main(["compare", str(runs[base]), str(runs[new]), *options])


def test_a_table_is_printed_without_complaints(runs, capsys):
    assert ask(runs, "base", "slower") == 0
    printed, complaint = capsys.readouterr()
    assert "0.900" in printed
    assert "not interleaved" in printed
    assert complaint == ""


def test_on_a_terminal_both_rates_of_a_setting_are_bars_on_one_scale(runs, capsys, monkeypatch):
    def bars():
        ask(runs, "base", "slower")
        lines = capsys.readouterr().out.splitlines()
        return [(line.split()[-1], line.count("▇")) for line in lines if "▇" in line]

    assert bars() == []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    (base, longest), (slower, shorter) = bars()
    assert float(slower) / float(base) == pytest.approx(0.9, abs=0.01)
    assert shorter / longest == pytest.approx(0.9, abs=0.03)


def test_json_is_one_document_with_its_version(runs, capsys):
    assert ask(runs, "base", "slower", "--json", "--fail-below", "0.5") == 0
    printed = capsys.readouterr().out
    found = json.loads(printed)
    assert msgspec.json.encode(msgspec.json.decode(printed, type=RunComparison)) in printed.encode()
    (matched,) = found["matched"]
    assert found["schema_version"] == 1
    assert found["caveat"].startswith("these were not interleaved")
    assert matched["low"] < matched["ratio"] < matched["high"] < 0.91
    assert (matched["judgement"], matched["settings"]) == ("not below", OFF)


def test_a_files_name_may_be_invalid_text(runs, capsys):
    base = runs["base"]
    odd = base.with_name(os.fsdecode(b"b\xe4r.csv"))
    odd.write_bytes(base.read_bytes())
    assert main(["compare", str(odd), str(base), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["base"].endswith("/b\ufffdr.csv")


def test_markdown_is_a_table(runs, capsys):
    assert ask(runs, "base", "same", "--markdown") == 0
    assert "\n|---|---|---|---|---|\n| encdec | " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("base", "new", "limit", "code", "remark"),
    [
        ("base", "slower", "0.97", Exit.SLOWER, "gpudash: slower than 0.97: encdec\n"),
        ("base", "same", "0.97", Exit.DONE, ""),
        ("coarse", "coarse", "1", 0, "neither shown to be below 1 nor above it: encdec\n"),
        (
            "base",
            "short",
            "0.97",
            Exit.REFUSED,
            "gpudash: --fail-below 0.97 cannot be decided without an interval: encdec\n",
        ),
    ],
    ids=["slower", "not slower", "unclear", "unknown"],
)
def test_the_exit_code_judges_by_the_limit(runs, capsys, base, new, limit, code, remark):
    assert ask(runs, base, new, "--fail-below", limit) == code
    printed, complaint = capsys.readouterr()
    assert "not interleaved" in printed
    assert complaint == remark


@pytest.mark.parametrize(
    ("base", "new", "options", "said"),
    [
        ("base", "other", [], "no setting is in both runs; only in base: encdec pipelined=off"),
        ("base", "other", [], "; gpudash ab compares two values of a lever"),
        ("base", "cold", [], "cold.csv has no step after the warm-up"),
        (
            "base",
            "base",
            ["--fail-below", "x"],
            "--fail-below x is not valid; valid: a number from",
        ),
        ("base", "base", ["--fail-below", "0"], "--fail-below 0 is not valid"),
        ("base", "base", ["--json", "--markdown"], "--markdown does not go with --json"),
    ],
)
def test_incomparable_runs_are_refused_in_a_line(runs, refused, base, new, options, said):
    assert said in refused("compare", str(runs[base]), str(runs[new]), *options)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file"),
        *((text, "is not a recording") for text in ("", "hello\n", "time_s,x\n")),
    ],
)
def test_a_file_that_is_no_run_is_refused(runs, refused, tmp_path, content, said):
    path = tmp_path / "x.csv"
    if content is not None:
        path.write_text(content)
    assert said in refused("compare", str(runs["base"]), str(path))
