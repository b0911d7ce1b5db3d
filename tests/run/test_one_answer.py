"""Dashboard, log, replay, report and the last line of a recorded run name the same limit."""

from itertools import groupby

import msgspec
import pytest

from gpudash.diagnosis.headline import headline
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.envelope import Envelope
from gpudash.recording.log import LogReader
from gpudash.report.page import page
from gpudash.run.replayed import replayed
from tests.cli.test_headless import ended
from tests.run.test_replay import Prompt, Replayed, Scripted, live
from tests.scripted_run import BEGAN_S, gpu, measured

CHANGES_AT = 200
STEPS = 650


class Waits(Prompt):
    """Waits for data in its first steps; later its GPU is always at work."""

    def iterate(self, step_ms=None):
        super().iterate(step_ms)
        progress = self.sent[-1]
        waits = self.trained <= CHANGES_AT
        (step,) = progress.steps
        step = measured(
            step,
            data_ms=(0.4 if waits else 0.01) * step.step_ms,
            device_ms=(0.55 if waits else 0.97) * step.step_ms,
        )
        self.sent[-1] = msgspec.structs.replace(progress, steps=(step,))


class Source(Scripted):
    trains = Waits

    def turn(self) -> None:
        """Train; the GPU reads as busy as it is."""
        super().turn()
        *said, _reading, host = self.said
        util_pct = 55.0 if self.worker.trained <= CHANGES_AT else 97.0
        self.said = [*said, gpu(host.at_s, gpu_util_pct=util_pct), host]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return a recording, its snapshots by moment, and the session that made it."""
    path = tmp_path_factory.mktemp("answers") / "run.csv"
    return (path, *live(path, lambda _session, turns, _path: turns(STEPS), Source))


def messages(path):
    reader = LogReader(path.with_suffix(".jsonl"))
    found = [one.body for one in reader if isinstance(one, Envelope)]
    return [one for one in found if isinstance(one, AnswerShown)]


def test_the_log_holds_every_answer_that_was_shown_and_the_limit_changed_once(recorded):
    path, shown, _session = recorded
    said = messages(path)
    answers = [answer for answer, _ in groupby(snapshot.answer for snapshot in shown.values())]
    assert [one.answer for one in said] == answers
    titles = dict.fromkeys(one.answer.title for one in said[1:])
    assert list(titles) == ["input-bound", "GPU-bound"]
    assert len(said) < 20


def test_a_replay_shows_the_headline_of_the_dashboard_at_every_moment(recorded):
    path, shown, _session = recorded
    again, live = Replayed(path), list(shown.items())
    for at_s, snapshot in live[::40]:
        found, was = headline(again.played_to(at_s)), headline(snapshot)
        if snapshot.answer is not None:
            assert found == msgspec.structs.replace(was, tries=(), caution="")


def test_report_and_last_line_have_the_same_limits_with_the_same_shares(recorded, capsys):
    path, shown, session = recorded
    limits = session.limits.shares()
    run = replayed(path)
    assert run.snapshot.answer == shown[max(shown)].answer
    assert [one.answer for one in run.limits] == [one.answer for one in limits]
    for found, was in zip(run.limits, limits, strict=True):
        assert found.share == pytest.approx(was.share, abs=0.02)
        assert found.began_s == pytest.approx(was.began_s, abs=1.0)
    main = session.limits.main()
    assert main.startswith("GPU-bound for ")
    text = page(run, ("gpudash", "report"))
    assert "GPU-bound for " in text
    assert "Input-bound" not in text.split("What limited it")[0]
    ended(shown[max(shown)], limits=session.limits)
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"recorded to run.csv; {main}")


def test_of_a_recording_without_answers_replay_and_report_name_the_same(recorded, tmp_path):
    """Older ones have none: they are found as in a training."""
    path, shown, session = recorded
    old = tmp_path / "old.jsonl"
    lines = path.with_suffix(".jsonl").read_bytes().splitlines(keepends=True)
    old.write_bytes(b"".join(line for line in lines if b"AnswerShown" not in line))
    run, again = replayed(old), Replayed(old)
    for at_s in range(int(BEGAN_S) + 3, int(max(shown)), 8):  # as at a high speed
        again.played_to(at_s)
    last = again.played_to(max(shown))
    assert last.answer.title == run.snapshot.answer.title == "GPU-bound"
    again_shares = {one.answer.title: one.share for one in again.session.limits.shares()}
    for shares in (again_shares, {one.answer.title: one.share for one in run.limits}):
        live = {one.answer.title: one.share for one in session.limits.shares()}
        assert shares == pytest.approx(live, abs=0.06)
