"""A replay of a recording shows the same as the live run.

The live run is a real session over a scripted worker on a made-up clock, turn by turn: it trains,
switches, pauses, compares and restarts. Its log shows it again value by value, at every moment.
"""

import random
from contextlib import suppress
from math import ceil
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudash.compare.ab import Question
from gpudash.errors import GpudashError
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Hello, Note, Printed, Progress
from gpudash.run.replay import NOTHING, Player, Replay
from gpudash.run.session import Session
from gpudash.run.source import Source
from gpudash.run.speeds import SPEEDS
from tests.run.test_session import Screen
from tests.scripted_run import BEGAN_S, SETTINGS, gpu, host, measured, started
from tests.scripted_worker import Worker

ABLE = ("levers", "pause", "restart", "blocks", "record", "profile")
PLAN = Plan(workload="encdec", settings=SETTINGS)
ROW_S = 0.5
TICK_S = 1 / 1024
"""All moments are multiples of it, so that sums are exact."""
BOOT_S = 512 * TICK_S
OF_THE_SESSION = ("can", "playback", "recording", "last_command", "status")
"""Fields that differ in a replay; a live run's status also names keys."""


class Made:
    """A made-up clock."""

    sent = 0  # messages by then

    def __init__(self, now_s: float = BEGAN_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Prompt(Worker):
    """Reports each step as it ends, and waits a moment before the next one."""

    def __init__(self):
        super().__init__(step_ms=lambda _: 1e3 * TICK_S * self.ticks())

    def ticks(self) -> int:
        return {"off": 51, "on": 41}[self.settings["pipelined"]] + self.trained % 3

    def iterate(self, step_ms=None):
        super().iterate(step_ms and 1e3 * TICK_S)
        (step,) = self.waiting
        host_ms, data_ms = 0.04 * step.step_ms, 0.002 * step.step_ms
        self.waiting = [measured(step, host_ms=host_ms, data_ms=data_ms)]
        self.report()
        self.now_s += TICK_S


class Scripted(Source):
    """The scripted worker and its readings as a source: each message comes at its moment."""

    trains = Prompt

    def __init__(self, clock: Made, settings: dict[str, str]) -> None:
        self.clock = clock
        self.worker = self.trains()
        self.worker.settings = dict(settings)
        self.worker.now_s = clock.now_s + BOOT_S
        first = started(self.worker.now_s, dict(settings))
        noted = msgspec.structs.replace(first, notes=(Note(lever=None, text="trains on a script"),))
        self.said = [Hello(can=ABLE), self.worker.begin(noted), Printed(lines=("hello",))]
        self.samples = 0

    def turn(self) -> None:
        """Train; the clock stays where it is."""
        self.worker.turn()
        if self.worker.paused:
            self.worker.now_s += 10 * TICK_S
        self.receive()
        at_s = self.worker.now_s
        self.said += [gpu(at_s, gpu_util_pct=50.0, power_w=300.0), host(at_s)]

    def receive(self) -> None:
        self.said += map(self.counted, self.worker.take())

    def counted(self, body):
        if not isinstance(body, Progress):
            return body
        self.samples += sum(step.samples for step in body.steps)
        return msgspec.structs.replace(
            body, total_samples=self.samples, instruments_ms=0.1 * len(body.steps)
        )

    def moments(self) -> list[float]:
        """Return when something comes, and the borders of rows on the way, in order."""
        moments = [happened_s(body, self.clock.now_s) for body in self.said]
        borders = range(ceil(self.clock.now_s / ROW_S), ceil(self.worker.now_s / ROW_S))
        return sorted({*moments, *(ROW_S * border for border in borders), self.worker.now_s})

    def read(self) -> list[Envelope]:
        found = []
        while self.said and happened_s(self.said[0], self.clock.now_s) <= self.clock.now_s:
            body = self.said.pop(0)
            self.clock.sent += 1
            source = "telemetry" if type(body).__name__.endswith("Reading") else "training"
            at_s = self.clock.now_s
            found.append(Envelope(source=source, seq=self.clock.sent, sent_s=at_s, body=body))
        return found

    def send(self, command) -> None:
        self.worker.obey(command)
        self.receive()

    def close(self) -> None:
        pass


def happened_s(body, otherwise_s):
    return getattr(body, "until_s", getattr(body, "at_s", otherwise_s))


class Driven(Session):
    """A session that takes its turns on request, and not on a thread of its own."""

    def begin(self) -> "Driven":
        self.screen = Screen()
        self._thread = SimpleNamespace(is_alive=lambda: True, ident=None, start=lambda: None)
        self.start(self.screen)
        self._emit(self.plan)
        return self

    def turn(self):
        self._requests.obey()
        self._read_training()
        return self._snapshot(self._clock())


def live(path, turns_of, source=Scripted):
    """Record a run; return its snapshots by moment, and the session."""
    clock = Made()
    sources = []

    def start_source(plan):
        sources.append(source(clock, SETTINGS | plan.settings))
        return sources[-1]

    session = Driven(PLAN, start_source=start_source, beside=(), clock=clock)
    session.begin_sink("recording", path)
    session.begin()
    shown = {}

    def turns(count):
        shown[clock.now_s] = session.turn()  # what was asked is obeyed
        for _ in range(count):
            sources[-1].turn()
            for at_s in sources[-1].moments():
                clock.now_s = at_s
                shown[at_s] = session.turn()

    turns_of(session, turns, path)
    session.close()
    return shown, session


def eventful(session, turns, path):
    turns(40)
    session.profile(3, path.with_name("trace.json"))
    turns(1)
    session.change({"batch_size": "16"})
    turns(40)
    session.pause()
    turns(30)
    session.resume()
    turns(30)
    session.compare(Question(lever="pipelined", a="off", b="on", pairs=3))
    turns(300)
    session.restart(Plan(workload="encdec", settings={"num_workers": "4"}))
    turns(40)


class Replayed:
    """A replay on a made-up clock."""

    def __init__(self, path, speed=1.0) -> None:
        self.clock = Made()
        self.player = Player(speed, self.clock)
        self.replay = Replay(path, self.player)
        self.session = Driven(
            NOTHING, start_source=lambda _plan: self.replay, beside=(), clock=self.replay.now
        ).begin()
        self.settle()

    def settle(self):
        """Take turns until no message is left; return the snapshot."""
        while True:
            before = self.replay.now(), self.player.length_s, len(self.session.screen.log)
            snapshot = self.session.turn()
            if before == (self.replay.now(), self.player.length_s, len(self.session.screen.log)):
                return snapshot

    def at(self, position_s):
        self.player.seek(position_s)
        return self.settle()

    def played_to(self, at_s):
        self.clock.now_s = max(at_s, self.clock.now_s)
        return self.settle()


def known(snapshot):
    """Return the fields that must be the same in both."""
    return {
        name: getattr(snapshot, name)
        for name in snapshot.__struct_fields__
        if name not in OF_THE_SESSION
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "run.csv"
    return (path, *live(path, eventful))


def test_a_log_shows_each_moment_again_value_by_value(recorded):
    path, shown, session = recorded
    again = Replayed(path)
    states = set()
    for at_s, snapshot in shown.items():
        assert known(again.played_to(at_s)) == known(snapshot)
        states.add(snapshot.state)
    assert any(one.profiling for one in shown.values())
    assert snapshot.profile.path == str(path.with_name("trace.json"))
    assert snapshot.profile_of == (PLAN.workload, SETTINGS)
    assert states >= {"training", "paused"}
    labels = [marker.label for marker in snapshot.markers]
    assert labels == ["batch_size=16", "paused", "resumed", "A/B", "end of A/B", "restart"]
    assert any(one.verdict for one in snapshot.verdicts)
    assert again.session.screen.log == session.screen.log


ASKED = st.sampled_from(
    [
        lambda session: session.change({"batch_size": "16"}),
        lambda session: session.change({"pipelined": "on"}),
        lambda session: session.pause(),
        lambda session: session.resume(),
        lambda session: session.new_row(),
        lambda session: session.compare(Question(lever="pipelined", a="off", b="on", pairs=3)),
        lambda session: session.restart(Plan(workload="encdec", settings={"num_workers": "4"})),
    ]
)


@settings(deadline=None, max_examples=12)  # a busy machine is no failure
@given(asked=st.lists(st.tuples(ASKED, st.integers(1, 40)), max_size=6))
def test_whatever_is_asked_a_replay_shows_what_was_live(tmp_path_factory, asked):
    def turns_of(session, turns, _path):
        turns(10)
        for ask, count in asked:
            ask(session)
            turns(count)

    path = tmp_path_factory.mktemp("drawn") / "run.csv"
    shown, session = live(path, turns_of)
    again = Replayed(path)
    for at_s, snapshot in shown.items():
        assert known(again.played_to(at_s)) == known(snapshot)
    assert again.session.screen.log == session.screen.log


def test_seeking_back_equals_playing_from_the_beginning(recorded):
    path, shown, _ = recorded
    played, other = Replayed(path), Replayed(path)
    middle_s = list(shown)[len(shown) // 2] - BEGAN_S
    first = played.at(middle_s)
    other.at(other.player.length_s)
    assert other.at(middle_s) == first
    assert other.session.screen.log == played.session.screen.log


def test_a_file_that_grows_is_followed(recorded, tmp_path):
    path, shown, _ = recorded
    lines = path.with_suffix(".jsonl").read_bytes().splitlines(keepends=True)
    grows = tmp_path / "grows.jsonl"
    half = len(lines) // 2
    grows.write_bytes(b"".join(lines[:half]) + lines[half][:10])
    again = Replayed(grows)
    again.player.seek_end()
    before = again.settle()
    assert before.playback.following
    with grows.open("ab") as file:
        file.write(lines[half][10:] + b"".join(lines[half + 1 :]))
    after = again.settle()
    assert after.playback.position_s > before.playback.position_s
    assert after.total_steps == list(shown.values())[-1].total_steps
    assert not after.playback.playing  # it was closed: no more will come


def test_the_rest_of_a_broken_log_is_shown_or_one_line_says_why_not(recorded, tmp_path):
    path, *_ = recorded
    whole = path.with_suffix(".jsonl").read_bytes()
    chance = random.Random(7)
    for _ in range(12):
        broken = bytearray(whole[: chance.randrange(len(whole))])
        for _ in range(chance.randrange(20)):
            if broken:
                broken[chance.randrange(len(broken))] = chance.choice(b'0987654321e-,"[]{}\n')
        (tmp_path / "broken.jsonl").write_bytes(broken)
        with suppress(GpudashError):
            again = Replayed(tmp_path / "broken.jsonl")
            assert again.at(again.player.length_s) is not None
            assert again.at(0.0).total_steps == 0


def test_the_player_pauses_seeks_and_changes_speed(recorded):
    path, *_ = recorded
    again = Replayed(path)
    player = again.player
    again.played_to(BEGAN_S + 1)
    assert player.position_s == pytest.approx(1)
    player.play_or_hold()
    again.played_to(BEGAN_S + 3)
    assert (player.position_s, player.playing) == (pytest.approx(1), False)
    player.play_or_hold()
    player.faster(1)
    again.played_to(BEGAN_S + 4)
    assert (player.position_s, player.speed) == (pytest.approx(3), 2)
    player.seek(-5)
    assert player.position_s == 0
    for _ in SPEEDS:
        player.faster(1)
    assert player.speed == SPEEDS[-1]
    player.seek_end()
    assert player.position_s == player.length_s
    player.play_or_hold()  # nothing comes any more: again from the beginning
    assert (player.position_s, player.playing) == (0, True)


def test_a_csv_is_shown_by_the_log_beside_it_and_takes_no_commands(recorded):
    shown = Replayed(recorded[0]).settle()
    assert (shown.playback.name, shown.can) == ("run.csv", ())
