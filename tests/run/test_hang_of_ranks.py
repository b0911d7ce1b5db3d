"""A session sees real stacks of ranks, of which one is late or dies under torchrun.

Ranks that die, and single processes, are doubles without torch.
"""

import signal
from operator import ne
from pathlib import Path

import pytest

from gpudash.diagnosis.headline import headline
from gpudash.protocol.commands import Plan
from gpudash.run.command_process import keep
from gpudash.run.job import TrainingJob
from gpudash.run.session import Session
from gpudash.run.user_command import UserCommand
from tests.run.screens import Screen
from tests.waiting import until

SCRIPT = str(Path(__file__).with_name("hangs.py"))
DOUBLE = str(Path(__file__).with_name("scripted_training.py"))
HANG_S = 1.0
SILENCES = "no rank has finished a step", "steps come again;"
"""How a silence's begin and end are told."""


class Trains(Screen):
    """Records each hang, too. Lets the script go on once `seen` is true."""

    def __init__(self, file, seen):
        super().__init__()
        self.hangs, self.file, self.seen = [], file, seen

    def on_snapshot(self, snapshot):
        super().on_snapshot(snapshot)
        if snapshot.hang is not None and snapshot.hang.stacks:
            self.hangs.append((snapshot.hang, headline(snapshot)))
        if self.seen(snapshot):
            self.file.touch()


@pytest.fixture
def train(monkeypatch, place, tmp_path, with_torch):
    """Have Python run these words to their end; they wait until `seen` is true."""
    monkeypatch.setattr(Session, "hang_s", HANG_S)
    started = []

    def run(*words, seen):
        file = tmp_path / "go on"
        python = str(with_torch / "bin" / "python")
        held = keep(UserCommand("hangs.py", (python, *words, str(file))), place)
        source = TrainingJob("hangs.py", held, place)
        plan = Plan(workload="hangs.py", settings={})
        session = Session(plan, rate_hz=20, start_source=lambda _: source, beside=())
        screen = Trains(file, seen)
        started.append((held, session))
        session.start(screen)
        until(lambda: session.wait(0.1), lambda: screen.log)
        session.close()  # its last snapshot is whole
        return screen

    yield run
    for held, session in started:
        held.signal(signal.SIGKILL)
        session.close()


def test_the_rank_that_the_other_waits_for_is_named_and_both_train_on(train):
    screen = train(SCRIPT, seen=lambda s: s.hang is not None and len(s.hang.stacks) == 2)
    hang, shown = screen.hangs[0]
    assert hang.missing == (1,)
    assert [one.collective for one in hang.stacks] == ["backward", ""]
    assert hang.stacks[1].lines[0].endswith(" load")
    assert shown.kind == "silent"
    assert shown.title.startswith("no rank has finished a step for ")
    late, other = shown.evidence
    assert late.startswith("rank 1 is in load (hangs.py:")
    assert other.startswith("rank 0 waits in backward (hangs.py:")
    assert any(line.endswith(" load") for line in screen.log)
    told = [line.partition(" for ")[0] for line in screen.log if line.startswith(SILENCES)]
    assert told[:2] == [*SILENCES]
    assert all(map(ne, told, told[1:]))  # a busy machine may be silent once more
    assert "trained on" in screen.output  # every rank went on, unharmed, to the end
    assert screen.newest.state == "finished"


def test_a_rank_that_torchrun_starts_again_is_shown_as_such(train):
    torchrun = (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=1",
    )
    screen = train(
        *(*torchrun, DOUBLE, "--steps", "60", "--dies"),
        seen=lambda s: [row.steps > 0 for row in s.ranks] == [True, True],
    )
    assert screen.newest.state == "finished"
    newest = screen.newest.ranks
    assert [(row.restarts, row.steps) for row in newest] == [(1, 57)] * 2  # the last 3 are lost
    assert [marker.label for marker in screen.newest.markers] == ["restart"]
    for rank in (0, 1):
        assert sum(f"rank {rank} began again" in line for line in screen.log) == 1
