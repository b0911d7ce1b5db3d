"""A sink as a contributor adds it: a class, and a line in the table. A session feeds it."""

import csv
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from gpudash.errors import RecordingError, UsageError
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.session import Notice
from gpudash.protocol.training import Hello, Progress
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Closed, LogReader, Origin, RowReader
from gpudash.run.session import Session
from gpudash.sinks.active import MOST_WAITING, ActiveSinks
from gpudash.sinks.sink import SINKS, Sink, opener
from gpudash.views.time_breakdown import TimeBreakdown
from tests.lives import said
from tests.run.screens import Screen
from tests.run.told import Told
from tests.scripted_run import BEGAN_S, PLAN, Trainer, gpu
from tests.sinks.exporting import ORIGIN
from tests.waiting import PATIENCE_S, until

STEPS = 60
ROWS = 6
"""Of 3 s of steps, with a row every half a second."""


class Counting(Sink):
    """Counts steps and rows."""

    opened: ClassVar[list["Counting"]] = []

    def __init__(self, target: str, origin: Origin, /, *, force: bool = False) -> None:
        self.target = target
        self.steps = self.rows = 0
        self.items: list[Envelope | Interval] = []
        self.accounts: list[TimeBreakdown | None] = []
        self.opened.append(self)

    def take(self, item: Envelope | Interval, /) -> None:
        self.items.append(item)
        if isinstance(item, Interval):
            self.rows += 1
        elif isinstance(item.body, Progress):
            self.steps += sum(step.count for step in item.body.steps)

    def close(self, account: TimeBreakdown | None, /) -> None:
        self.accounts.append(account)


class Raising(Counting):
    """Has a fault."""

    def take(self, item: Envelope | Interval, /) -> None:
        super().take(item)
        raise ZeroDivisionError("oops")


class Complaining(Counting):
    """Loses something, tells of it and goes on."""

    def take(self, item: Envelope | Interval, /) -> None:
        super().take(item)
        if len(self.items) == 1:
            raise RecordingError("port 9400 is in use")


class Broken(Counting):
    """Cannot even be closed."""

    def close(self, account: TimeBreakdown | None, /) -> None:
        super().close(account)
        raise ZeroDivisionError("oops")


class Hanging(Counting):
    """Never comes back from its first message, unless released."""

    released: ClassVar[threading.Event]

    def take(self, item: Envelope | Interval, /) -> None:
        self.released.wait(PATIENCE_S)
        super().take(item)


def messages() -> list[Envelope]:
    trainer = Trainer()
    bodies = [Hello(can=("record",)), trainer.start()]
    moments = [BEGAN_S, BEGAN_S]
    for _ in range(STEPS):
        bodies.append(trainer.step())
        moments.append(trainer.now_s)
    bodies.append(trainer.finish())
    moments.append(trainer.now_s)
    return [
        Envelope(source="training", seq=number, sent_s=at_s, body=body)
        for number, (body, at_s) in enumerate(zip(bodies, moments, strict=True))
    ]


SENT = messages()
Run = Callable[..., tuple[Session, Screen]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Drive a session to its end, with a recording and with a sink of this class if any."""
    monkeypatch.setattr(Counting, "opened", [])
    monkeypatch.setattr(Hanging, "released", threading.Event(), raising=False)

    def call(kind: type[Counting] | None = None) -> tuple[Session, Screen]:
        session = Session(
            Plan(workload="encdec", settings=PLAN.settings),
            start_source=lambda _plan: Told(SENT, ended="it has ended"),
            beside=(),
            clock=lambda: BEGAN_S,
        )
        session.begin_sink("recording", tmp_path / "run.csv", force=True)
        if kind is not None:
            monkeypatch.setitem(SINKS, "counting", f"{__name__}:{kind.__name__}")
            session.begin_sink("counting", "9400")
        screen = Screen()
        session.start(screen)
        assert session.wait(PATIENCE_S)
        session.close()
        return session, screen

    yield call
    Hanging.released.set()


def recorded(folder: Path) -> list[dict[str, str]]:
    with (folder / "run.csv").open(newline="") as file:
        return [row | {"wall_time_utc": ""} for row in csv.DictReader(file)]


def of_training(items: list[Envelope | Interval]) -> list[Envelope]:
    return [one for one in items if isinstance(one, Envelope) and one.source == "training"]


def test_a_sink_of_the_table_gets_every_message_and_row_in_order_and_is_closed_once(
    run: Run, tmp_path: Path
) -> None:
    session, _ = run(Counting)
    (sink,) = Counting.opened
    assert (sink.target, sink.steps, sink.rows) == ("9400", STEPS, ROWS)
    assert [one.seq for one in of_training(sink.items)] == [one.seq for one in SENT]
    rows = [item for item in sink.items if isinstance(item, Interval)]
    assert [row.began_s for row in rows] == sorted(row.began_s for row in rows)
    reader = RowReader(tmp_path / "run.jsonl")
    logged = [item for item in reader if isinstance(item, Interval)]
    assert [row.ranks[0].step for row in rows] == [row.ranks[0].step for row in logged]
    (account,) = sink.accounts
    assert account.wall_s > 0
    assert session.sink_failures == {}


@pytest.mark.parametrize("kind", [Counting, Raising, Complaining, Broken, Hanging])
def test_whatever_a_sink_does_training_recording_and_screen_are_as_without_it(
    run: Run, tmp_path: Path, kind: type[Counting]
) -> None:
    _, alone = run()
    rows = recorded(tmp_path)
    session, screen = run(kind)
    assert recorded(tmp_path) == rows
    assert isinstance(list(LogReader(tmp_path / "run.jsonl"))[-1], Closed)
    for newest in (alone.newest, screen.newest):
        assert (newest.state, newest.total_steps) == ("finished", STEPS)
    assert session.failure is None
    assert "recording" not in session.sink_failures


@pytest.mark.parametrize(
    ("kind", "taken", "told"),
    [
        (Raising, (0, 0), "counting ends: ZeroDivisionError: oops"),
        (Complaining, (STEPS, ROWS), "port 9400 is in use"),
        (Broken, (STEPS, ROWS), "counting ends: ZeroDivisionError: oops"),
    ],
    ids=["a fault ends it", "after a loss it goes on", "it cannot be closed"],
)
def test_what_fails_in_a_sink_is_told_once(
    run: Run, kind: type[Counting], taken: tuple[int, int], told: str
) -> None:
    session, _ = run(kind)
    (sink,) = Counting.opened
    assert ((sink.steps, sink.rows), len(sink.accounts)) == (taken, 1)
    assert str(session.sink_failures["counting"]) == told


def test_a_failure_on_the_thread_of_a_sink_is_in_the_log_of_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lasting(Told):
        """Does not end before the failure was told."""

        def ended(self) -> str | None:
            return "it has ended" if told in screen.log else None

    told = "counting ends: ZeroDivisionError: oops"
    monkeypatch.setattr(Counting, "opened", [])
    monkeypatch.setitem(SINKS, "counting", f"{__name__}:Raising")
    screen = Screen()
    session = Session(
        PLAN, start_source=lambda _plan: Lasting(SENT[:-1]), beside=(), clock=lambda: BEGAN_S
    )
    session.begin_sink("recording", tmp_path / "run.csv")
    session.begin_sink("counting")
    session.start(screen)
    until(lambda: told in screen.log)
    session.close()
    said = [one.body for one in LogReader(tmp_path / "run.jsonl") if isinstance(one, Envelope)]
    assert Notice(text=told) in said


@pytest.mark.parametrize(("most", "steps"), [(MOST_WAITING, [STEPS]), (10, range(20))])
def test_a_stuck_sink_gets_what_waited_and_far_behind_all_but_single_steps(
    run: Run, monkeypatch: pytest.MonkeyPatch, most: int, steps: Iterable[int]
) -> None:
    monkeypatch.setattr("gpudash.sinks.active.MOST_WAITING", most)
    run(Hanging)
    (sink,) = Counting.opened
    Hanging.released.set()
    until(lambda: sink.accounts)
    assert sink.steps in steps
    assert sink.rows == ROWS
    assert of_training(sink.items)[-1] == SENT[-1]


def test_a_sink_may_take_readings_without_single_steps() -> None:
    class Reading(Counting):
        every_step, every_reading = False, True

    sinks, nothing = ActiveSinks(lambda _error: None), TimeBreakdown()
    sink = Reading("9400", ORIGIN)
    sinks.begin("reading", "9400", sink, ORIGIN, nothing)
    readings = [said(gpu(BEGAN_S + at_s)) for at_s in range(3)]
    for one in (*readings, said(Trainer().step())):
        sinks.take(one)
    sinks.close(BEGAN_S, nothing)
    sinks.wait(PATIENCE_S)
    assert sink.items == readings


def test_every_line_of_the_table_is_a_class_of_sinks() -> None:
    for name in SINKS:
        assert Sink in opener(name).__mro__  # type: ignore[attr-defined]


def test_a_name_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"prom is no sink; valid: recording, csv, jsonl"):
        opener("prom")
