"""`gpudash export` through the command line: files, exit codes and one-line errors."""

import pytest

from gpudash.cli.main import main
from tests.recording.test_log import recorded

MADE = pytest.mark.parametrize(("verb", "name"), [("export", "a.csv"), ("report", "a.html")])
"""What a verb makes of a recording."""


@MADE
def test_existing_files_are_kept_without_force(private, refused, verb, name):
    command = [verb, str(recorded(private)), "-o", name]
    (private / name).write_text("precious")
    assert refused(*command).endswith(f"{name} exists; --force overwrites it\n")
    assert (private / name).read_text() == "precious"
    assert main([*command, "--force"]) == 0
    assert (private / name).read_text() != "precious"


@MADE
@pytest.mark.parametrize(("lines", "said"), [(1, "1 line"), (3, "3 lines")])
def test_invalid_lines_are_counted(private, capsys, verb, name, lines, said):
    log = recorded(private)
    log.write_bytes(log.read_bytes() + b"[]\n" * lines)
    assert main([verb, str(log), "-o", name]) == 0
    assert capsys.readouterr() == ("", f"left out {said} of {log} that made no sense\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: LOG; usage: gpudash export LOG ("),
        (["run.jsonl"], "one of the arguments -o/--output --to is required"),
        (["none.jsonl", "-o", "x.csv"], "cannot read none.jsonl: no such file or directory"),
        (["", "-o", "x.csv"], "LOG '' is not valid; valid: a file's name"),
        (["other.jsonl", "-o", "x.csv"], "other.jsonl is not a recording"),
        (["later.jsonl", "-o", "x.csv"], "later.jsonl is a log of version 9"),
        (["other.csv", "-o", "x.jsonl"], "other.csv is not a recording"),
        (["run.jsonl", "-o", "x.xlsx"], "cannot export to x.xlsx: it ends in none of .csv"),
        (["run.jsonl", "--to", "prometheus:9400"], "is not valid; valid: otlp:HOST:PORT"),
        (["run.jsonl", "--to", "trace:a", "--to", "trace:b"], "trace is given twice; valid: each"),
        (["run.jsonl", "--to", "trace:none/a"], "none does not exist"),
        (
            ["run.jsonl", "--to", "openmetrics:a"],
            "--to openmetrics went; instead: read FILE.csv, or send --to otlp",
        ),
        (
            ["run.jsonl", "--to", "textfile:a"],
            "--to textfile went; instead: serve a run --to prometheus",
        ),
        (["run.jsonl", "-o", "x.parquet"], "Parquet went: export to .csv, which DuckDB, polars"),
        (["run.jsonl", "--to", "otlp:4318"], "--to otlp:4318 is not valid; valid: HOST:PORT"),
        (["run.jsonl", "-o", ""], "--output '' is not valid; valid: a file's name"),
        (["run.jsonl", "-o", "none/x.csv"], "none does not exist"),
        (["run.jsonl", "-o", "none/x.jsonl"], "none does not exist"),
    ],
)
def test_errors_are_one_line(private, refused, arguments, said):
    recorded(private)
    (private / "other.jsonl").write_text('{"event": "start"}\n')
    (private / "later.jsonl").write_text('{"gpudash_log": 9}\n')
    (private / "other.csv").write_text("time_s,loss\n")
    before = sorted(private.iterdir())
    assert said in refused("export", *arguments)
    assert sorted(private.iterdir()) == before
