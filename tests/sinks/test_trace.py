"""A recording as a Chrome trace keeps the rules of the trace-event format.

They are those of the format's document: what each phase of an event needs, times in microseconds,
numbers alone in a counter.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from gpudash.errors import ExistsError
from gpudash.sinks.trace import TraceFile
from tests.lives import Narrator, paused, resumed, said
from tests.scripted_run import BEGAN_S, started
from tests.sinks.exporting import ORIGIN, answer, exported, h200, recorded, row, told

NEEDS = {"M": {"args"}, "C": {"ts", "args"}, "i": {"ts", "s"}, "X": {"ts", "dur"}}
"""What an event of a phase needs beside name, process and thread."""


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a trace, each checked against the rules."""
    trace = json.loads(path.read_text())
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named = {one["pid"] for one in trace["traceEvents"] if one["name"] == "process_name"}
    for one in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} | NEEDS[one["ph"]] <= set(one)
        assert one["pid"] in named
        assert isinstance(one["ts"], int)
        assert one["ts"] >= 0
        if one["ph"] == "C":
            assert one["args"]
            assert all(isinstance(value, int | float) for value in one["args"].values())
        if one["ph"] == "i":
            assert one["s"] in ("g", "p", "t")
        if one["ph"] == "X":
            assert one["dur"] > 0
    return trace["traceEvents"]


def written(path: Path, *items: object) -> list[dict[str, Any]]:
    sink = TraceFile(str(path), ORIGIN)
    for item in items:
        sink.take(item)
    sink.close(None)
    return events(path)


def test_each_number_of_a_row_is_a_counter_track_with_its_unit(tmp_path: Path) -> None:
    found = written(tmp_path / "t.json", row(0), row(1))
    power = [one for one in found if one["name"] == "power_w"]
    assert [(one["ts"], one["args"]) for one in power] == [
        (500_000, {"W": 300.0}),
        (1_000_000, {"W": 300.0}),
    ]
    processes = {one["pid"]: one["args"]["name"] for one in found if one["name"] == "process_name"}
    assert processes[power[0]["pid"]] == "GPU 0"
    (forward, _) = (one for one in found if one["name"] == "forward_ms")
    assert (processes[forward["pid"]], forward["args"]) == ("training", {"ms": 40.0})


def test_lever_changes_limits_and_pauses_are_marked(tmp_path: Path) -> None:
    training = told()
    narrator = Narrator()
    narrator.tell(training[5].body)
    evaluates = narrator.tell(paused(BEGAN_S + 2, "evaluation", since_s=BEGAN_S + 2))
    goes_on = narrator.tell(resumed(BEGAN_S + 5))
    found = written(
        tmp_path / "t.json",
        *training,
        said(evaluates, at_s=BEGAN_S + 2),
        said(goes_on, at_s=BEGAN_S + 5),
    )
    marked = [(one["name"], one["ts"]) for one in found if one["ph"] == "i"]
    assert ("precision=bf16", 1_000_000) in marked
    assert ("input-bound", 0) in marked
    (evaluation,) = (one for one in found if one["ph"] == "X")
    assert (evaluation["name"], evaluation["ts"]) == ("evaluation", 2_000_000)
    assert evaluation["dur"] == 3_000_000


def test_a_limit_that_stays_is_marked_once(tmp_path: Path) -> None:
    found = written(
        tmp_path / "t.json", answer(), answer(at_s=BEGAN_S + 1), answer("copy", "copy-bound")
    )
    assert [one["name"] for one in found if one["ph"] == "i"] == ["input-bound", "copy-bound"]


def test_a_recording_and_a_training_on_an_h200_become_traces(tmp_path: Path) -> None:
    exported(recorded(tmp_path), f"trace:{tmp_path / 'a.json'}")
    assert [one["name"] for one in events(tmp_path / "a.json") if one["ph"] == "i"] == [
        "input-bound",
        "precision=bf16",
    ]
    exported(h200(tmp_path), f"trace:{tmp_path / 'b.json'}")
    names = {one["name"] for one in events(tmp_path / "b.json")}
    assert {"tensor_active_pct", "forward_ms", "steps_per_s", "profile"} <= names


def test_a_trace_that_is_not_ended_lacks_two_brackets_alone(tmp_path: Path) -> None:
    sink = TraceFile(str(tmp_path / "t.json"), ORIGIN)
    sink.take(said(started(BEGAN_S)))
    sink.take(row(0))
    assert json.loads((tmp_path / "t.json").read_text() + "]}")["traceEvents"]
    sink.close(None)


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("precious")
    with pytest.raises(ExistsError):
        TraceFile(str(tmp_path / "t.json"), ORIGIN)
