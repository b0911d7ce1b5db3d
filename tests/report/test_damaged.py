"""A damaged recording is shown, written and compared, or refused in a line; never a traceback."""

import csv
import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpudash.cli.main import main
from gpudash.errors import Exit, UsageError
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Progress
from gpudash.recording.log import LogReader, line_of
from gpudash.recording.step_columns import StepColumns
from gpudash.run.replayed import replayed
from gpudash.tui.panels import View
from tests.any_record import values
from tests.compare import test_runs
from tests.conftest import slow_examples
from tests.recording import every_message, test_ranks
from tests.recording.damage import DAMAGE, damaged
from tests.tui.frames import frame


def every(folder: Path) -> Path:
    return every_message.recorded(folder)


def steps(folder: Path) -> Path:
    return every_message.recorded(folder, every_step=True)


def ranks(folder: Path) -> Path:
    return test_ranks.recorded_from(test_ranks.BEGAN_S, folder / "run.csv")


def long(folder: Path) -> Path:
    return test_runs.recorded(folder / "run.csv", (test_runs.OFF, 30, 100), (test_runs.ON, 30, 120))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The files of some recordings, by name and file."""
    found = {}
    for make in (every, steps, ranks, long):
        folder = tmp_path_factory.mktemp(make.__name__)
        make(folder)
        found[make.__name__] = {path.name: path.read_bytes() for path in folder.iterdir()}
    return found


def verb(*words: str) -> Callable[[Path], None]:
    """A verb that has to read the recording, or to refuse it in a line."""

    def read(recording: Path) -> None:
        places = {"RUN": str(recording), "FOLDER": str(recording.parent)}
        printed, complaint = io.StringIO(), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(complaint):
            code = main([word.format(**places) for word in words])
        assert code in (Exit.DONE, Exit.REFUSED)
        said = complaint.getvalue().splitlines()
        assert code == Exit.DONE or said[-1].startswith("gpudash: ")
        assert len(said) <= 2
        assert all("made no sense" in line for line in said[:-1])

    return read


def screen(recording: Path) -> None:
    """Play it to its end, and draw the main screen."""
    with suppress(UsageError):
        snapshot = replayed(recording).snapshot
        for tab in ("ab", "log"):
            frame(snapshot, replace(View(), tab=tab), (160, 50))


READERS = {
    "report": verb("report", "{RUN}", "-o", "{FOLDER}/out.html", "--price", "3"),
    "csv": verb("export", "{RUN}", "-o", "{FOLDER}/out.csv"),
    "jsonl": verb("export", "{RUN}", "-o", "{FOLDER}/out.jsonl"),
    "tensorboard": verb("export", "{RUN}", "--to", "tensorboard:{FOLDER}"),
    "trace": verb("export", "{RUN}", "--to", "trace:{FOLDER}/out.trace.json"),
    "compare": verb("compare", "{RUN}", "{RUN}"),
    "screen": screen,
}


def read_by(reader: str, folder: Path, name: str) -> None:
    """Let it read the recording by this file, or by the CSV beside this provenance."""
    if name == "run.json":
        (folder / "run.jsonl").unlink(missing_ok=True)
        name = "run.csv"
    READERS[reader](folder / name)


def test_a_message_of_each_kind_is_recorded(tmp_path: Path) -> None:
    reader = LogReader(every(tmp_path))
    told = [one.body for one in reader if isinstance(one, Envelope)]
    assert {type(one) for one in told} == {*get_args(Event), *get_args(Reading)}
    assert every_message.PROFILED in told
    assert reader.refused == 0


def read_by_all(recording: Path) -> None:
    for read in READERS.values():
        read(recording)


def with_value(log: bytes, way: tuple[str, ...], value: object) -> bytes:
    """Return the log with this value in each report."""
    lines = [json.loads(line) for line in log.splitlines()]
    for line in lines[1:]:
        if isinstance(line[4], list):
            name, *inner = way
            place = Progress.__struct_fields__.index(name)
            if inner:
                column, of = inner
                line[4][place][StepColumns.__struct_fields__.index(column)][of] = value
            else:
                line[4][place] = value
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def with_cell(text: bytes, column: str, cell: str) -> bytes:
    """Return the CSV with this cell in each row."""
    first, *rows = csv.reader(io.StringIO(text.decode()))
    at, written = first.index(column), io.StringIO()
    csv.writer(written).writerows([first, *([*row[:at], cell, *row[at + 1 :]] for row in rows)])
    return written.getvalue().encode()


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("skipped_samples",), "inf"),
        (("until_s",), 1e9),
        (("loss",), 1e300),
        (("steps", "values", "communication_ms"), "x"),
        (("steps", "values", "communication_ms"), -(10**18)),
        (("steps", "values", "throttle"), 3),
    ],
)
def test_a_value_of_another_kind_harms_its_reports_alone(
    tmp_path: Path, way: tuple[str, ...], value: object
) -> None:
    log = ranks(tmp_path).with_suffix(".jsonl")
    log.write_bytes(with_value(log.read_bytes(), way, value))
    read_by_all(log)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("step", "9" * 400),
        ("gpu_index", "9" * 400),
        ("rank", "9" * 400),
        ("skipped_samples", "inf"),
        ("levers", "num_workers=many"),
        ("levers", "num_workers=" + "9" * 400),
    ],
)
def test_a_cell_that_nothing_measures_harms_its_rows_alone(
    tmp_path: Path, column: str, cell: str
) -> None:
    path = ranks(tmp_path)
    path.with_suffix(".jsonl").unlink()
    path.write_bytes(with_cell(path.read_bytes(), column, cell))
    read_by_all(path)


def test_a_word_of_another_gpudash_for_how_a_lever_helps_is_passed_over(tmp_path: Path) -> None:
    log = every(tmp_path)
    lines = log.read_bytes().replace(b'"more workers"', b'"later"').splitlines(keepends=True)
    is_told = b'"at_s"'  # without its states and answers, an answer is looked for in its rows
    log.write_bytes(b"".join(line for line in lines if is_told not in line))
    read_by_all(log)


@slow_examples(25)
@given(data=st.data(), damage=DAMAGE, reader=st.sampled_from([*READERS]))
def test_any_damage_is_read_or_refused_in_a_line(
    recordings: dict[str, dict[str, bytes]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    damage: list[tuple[str, int, int]],
    reader: str,
) -> None:
    whole = recordings[data.draw(st.sampled_from([*recordings]))]
    name = data.draw(st.sampled_from([*whole]))
    folder = tmp_path_factory.mktemp("damaged")
    for other, content in whole.items():
        (folder / other).write_bytes(damaged(content, damage) if other == name else content)
    read_by(reader, folder, name)


@slow_examples(25)
@given(
    bodies=st.lists(values(Event | Reading), max_size=4),
    at=st.integers(1, 50),
    reader=st.sampled_from([*READERS]),
)
def test_any_message_of_a_valid_form_is_read_or_refused_in_a_line(
    recordings: dict[str, dict[str, bytes]],
    tmp_path_factory: pytest.TempPathFactory,
    bodies: list[Event | Reading],
    at: int,
    reader: str,
) -> None:
    lines = recordings["every"]["run.jsonl"].splitlines(keepends=True)
    at = min(at, len(lines))
    said = [
        line_of(Envelope(source="training", seq=1000 + seq, sent_s=every_message.AT_S, body=body))
        for seq, body in enumerate(bodies)
    ]
    folder = tmp_path_factory.mktemp("said")
    (folder / "run.jsonl").write_bytes(b"".join([*lines[:at], *said, *lines[at:]]))
    read_by(reader, folder, "run.jsonl")
