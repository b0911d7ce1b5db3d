"""A replayed recording shows what was shown live.

The live run is a real session over a scripted worker on a made-up clock, turn by turn: it trains,
switches, pauses, compares and restarts. A log with every step shows it again value by value, at
every moment. A default log has the steps of a row at its end, each with the means of its row: so
between two rows it is behind, and what `NOT_IN_ROWS` names is not exact.
"""

import random
from contextlib import suppress
from math import ceil
from types import SimpleNamespace

import msgspec
import pytest

from gpudash.commands.replay import open_replay
from gpudash.compare.ab import Question
from gpudash.errors import GpudashError
from gpudash.protocol import Envelope, Hello, Note, Plan, Printed, Progress
from gpudash.run.replay import NOTHING, SPEEDS, Player
from gpudash.run.session import Session
from gpudash.run.source import Source
from tests.run.test_session import Screen
from tests.scripted_run import BEGAN_S, SETTINGS, gpu, host
from tests.scripted_worker import Worker

ABLE = ("levers", "pause", "restart", "blocks", "record")
PLAN = Plan(workload="encdec", settings=SETTINGS)
OF_THE_SESSION = ("can", "playback", "recording", "last_command", "status")
"""What a replay says for itself; a live run's status names keys as well."""
NOT_IN_ROWS = {
    "series": "ticks are spread from bins of step times",
    "step_ms_p50": "to the width of a bin, 1 %",
    "step_ms_p95": "to the width of a bin, 1 %",
    "steps_per_s": "over the last seconds, from bins",
    "samples_per_s": "over the last seconds, from bins",
    "gpu": "one reading a row",
    "host": "one reading a row",
    "results": "the row in which the warm-up ends is known as a whole",
    "instruments_ms": "a mean over rows instead of reports",
    "unattributed_pct": "steps are laid back to back",
    "quiet_s": "the newest step is the newest row's",
    "step_histogram": "of the steps after the row in which the warm-up ends",
}
"""Values that a default log cannot give exactly, and why."""


class Made:
    """A made-up clock."""

    now_s = BEGAN_S
    sent = 0  # messages by then

    def __call__(self) -> float:
        return self.now_s


class Scripted(Source):
    """The scripted worker and its readings as a source."""

    def __init__(self, clock: Made, settings: dict[str, str]) -> None:
        self.clock = clock
        self.worker = Worker(lambda settings: 50.0 if settings["pipelined"] == "off" else 40.0)
        self.worker.settings = dict(settings)
        self.worker.now_s = clock.now_s
        started = msgspec.structs.replace(
            self.worker.start(), notes=(Note(lever=None, text="trains on a script"),)
        )
        self.said = [Hello(can=ABLE), started, Printed(lines=("hello",))]
        self.samples = 0

    def turn(self) -> None:
        self.worker.turn()
        later_s = max(self.worker.now_s, self.clock.now_s + 0.01)
        self.clock.now_s = self.worker.now_s = ceil(later_s * 1024) / 1024  # exact in any sum
        self.said += map(self.counted, self.worker.take())

    def counted(self, body):
        if not isinstance(body, Progress):
            return body
        self.samples += sum(step.samples for step in body.steps)
        return msgspec.structs.replace(body, total_samples=self.samples)

    def read(self) -> list[Envelope]:
        said, self.said = self.said, []
        if self.worker.trained:
            said += [gpu(self.clock.now_s - 1e-4, gpu_util_pct=50.0), host(self.clock.now_s - 1e-4)]
        found = []
        for body in said:
            self.clock.sent += 1
            source = "telemetry" if type(body).__name__.endswith("Reading") else "training"
            at_s = self.clock.now_s
            found.append(Envelope(source=source, seq=self.clock.sent, sent_s=at_s, body=body))
        return found

    def send(self, command) -> None:
        self.worker.obey(command)
        self.said += map(self.counted, self.worker.take())

    def close(self) -> None:
        pass


class Driven(Session):
    """A session that takes its turns when it is told to, and not on a thread of its own."""

    def begin(self) -> "Driven":
        self.screen = Screen()
        self._thread = SimpleNamespace(is_alive=lambda: True, ident=None, start=lambda: None)
        self.start(self.screen)
        self._say(self.plan)
        return self

    def turn(self):
        self._obey_requests()
        self._read_training()
        return self._snapshot(self._clock())


def live(path, **how):
    """Record a run; return its snapshots by the moment, and what was logged."""
    clock = Made()
    sources = []

    def start_source(plan):
        sources.append(Scripted(clock, SETTINGS | plan.settings))
        return sources[-1]

    session = Driven(PLAN, start_source=start_source, beside=(), clock=clock)
    session.record(path, **how)
    session.begin()
    shown = {}

    def turns(count):
        for _ in range(count):
            sources[-1].turn()
            shown[clock.now_s] = session.turn()

    turns(40)
    session.change({"batch_size": "16"})
    turns(40)
    session.pause()
    turns(30)
    session.resume()
    turns(30)
    session.compare(Question(lever="pipelined", a="off", b="on", pairs=3))
    turns(500)
    session.restart(Plan(workload="encdec", settings={"num_workers": "4"}))
    clock.now_s += 0.25
    session.turn()
    turns(40)
    session.close()
    return shown, session.screen.log


class Replayed:
    """A replay on a made-up clock."""

    def __init__(self, path, speed=1.0) -> None:
        self.clock = Made()
        self.player = Player(speed, self.clock)
        self.replay = open_replay(path, self.player)
        self.session = Driven(
            NOTHING, start_source=lambda _plan: self.replay, beside=(), clock=self.replay.now
        ).begin()
        self.settle()

    def settle(self):
        """Take turns until nothing is left to be told; return what is shown."""
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


def known(snapshot, *without):
    """Return what is to be the same in both."""
    return {
        name: getattr(snapshot, name)
        for name in snapshot.__struct_fields__
        if name not in (*OF_THE_SESSION, *without)
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "run.csv"
    return (path, *live(path))


def test_a_default_log_shows_the_run_again_but_for_what_rows_cannot_know(recorded):
    path, shown, log = recorded
    end_s, last = list(shown.items())[-1]
    again = Replayed(path)
    found = again.at(end_s - BEGAN_S)
    assert known(found, *NOT_IN_ROWS) == known(last, *NOT_IN_ROWS)
    assert found.step_ms_p50 == pytest.approx(last.step_ms_p50, rel=0.01)
    assert found.step_ms_p95 == pytest.approx(last.step_ms_p95, rel=0.01)
    assert [row.configuration for row in found.results] == [
        row.configuration for row in last.results
    ]
    assert again.session.screen.log == log


def test_a_log_with_every_step_shows_each_moment_again_value_by_value(tmp_path):
    shown, log = live(tmp_path / "run.csv", every_step=True)
    again = Replayed(tmp_path / "run.csv")
    states = set()
    for at_s, snapshot in shown.items():
        assert known(again.played_to(at_s)) == known(snapshot)
        states.add(snapshot.state)
    assert states >= {"training", "paused"}
    labels = [marker.label for marker in snapshot.markers]
    assert labels == ["batch_size=16", "paused", "resumed", "A/B", "end of A/B", "restart"]
    assert any(row.verdict for row in snapshot.results)
    assert again.session.screen.log == log


def test_going_back_is_playing_from_the_beginning(recorded):
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


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_what_is_left_of_a_broken_file_is_shown_or_told_in_a_line(recorded, tmp_path, suffix):
    path, *_ = recorded
    whole = path.with_suffix(suffix).read_bytes()
    chance = random.Random(7)
    for _ in range(40):
        broken = bytearray(whole[: chance.randrange(len(whole))])
        for _ in range(chance.randrange(20)):
            if broken:
                broken[chance.randrange(len(broken))] = chance.choice(b'0987654321e-,"[]{}\n')
        (tmp_path / f"broken{suffix}").write_bytes(broken)
        with suppress(GpudashError):
            again = Replayed(tmp_path / f"broken{suffix}")
            assert again.at(again.player.length_s) is not None
            assert again.at(0.0).total_steps == 0


def test_the_player_is_held_moved_and_sped_up(recorded):
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


def test_nothing_can_be_asked_of_a_recording(recorded):
    again = Replayed(recorded[0])
    assert again.settle().can == ()


def test_a_csv_without_its_log_says_what_it_cannot_know(recorded, tmp_path):
    path, shown, _ = recorded
    (tmp_path / "run.csv").write_bytes(path.read_bytes())
    again = Replayed(tmp_path / "run.csv")
    found = again.at(again.player.length_s)
    assert found.total_steps == list(shown.values())[-1].total_steps
    assert any("not in a CSV" in note for note in found.notes)


def test_a_csv_is_shown_by_the_log_beside_it(recorded):
    again = Replayed(recorded[0])
    assert again.settle().playback.name == "run.csv"
    assert not any("not in a CSV" in note for note in again.at(1.0).notes)
