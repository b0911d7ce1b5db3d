"""Who watches a run that has no screen: whoever opens one, and else the gpudash that waits."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpudash.protocol.training import Progress, State
from gpudash.run.command_process import Foreground
from gpudash.run.job import TrainingJob
from gpudash.run.turns import Claim, Turn
from gpudash.run.user_command import UserCommand
from tests.watched import Watched

TRAINING = str(Path(__file__).with_name("scripted_training.py"))


def takes_over(turn):
    """Whether it is ours now, and was not before."""
    return turn.look() and turn.is_ours


def test_the_turn_changes_with_the_claim_and_back(tmp_path):
    turn = Turn(tmp_path)
    assert not turn.look()
    claim = Claim(tmp_path)
    assert turn.look()
    assert not turn.is_ours
    assert not claim.is_granted_within(0)
    turn.give_way()
    assert claim.is_granted_within(0)
    claim.close()
    assert takes_over(turn)
    second = Claim(tmp_path)
    assert not second.is_granted_within(0)
    second.close()


def test_a_run_that_nobody_watches_is_free_and_one_at_a_time_claims_it(tmp_path):
    claim = Claim(tmp_path)
    assert claim.is_granted_within(0)
    with pytest.raises(BlockingIOError):
        Claim(tmp_path)
    late = Turn(tmp_path)  # begins while another one watches
    assert not late.is_ours
    claim.close()
    assert takes_over(late)


def test_a_claim_ends_with_its_process(tmp_path):
    claims = f"from pathlib import Path; c = Claim(Path({str(tmp_path)!r}))"
    code = f"from gpudash.run.turns import Claim; {claims}; print('claimed', flush=True); input()"
    turn = Turn(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"claimed\n"
        assert turn.look()
        turn.give_way()
        other.kill()
    assert takes_over(turn)


def test_a_source_gives_the_training_away_and_takes_it_back(place):
    steps = ["--steps", "100000", "--step-s", "0.002"]
    held = Foreground(UserCommand("train.py", (sys.executable, TRAINING, *steps)), place)
    first = Watched(TrainingJob("train.py", held, place, gives_way=True))
    first.first(Progress)
    claim = Claim(place.path)
    first.first("parted")
    assert claim.is_granted_within(0)
    other = Watched(TrainingJob("train.py", held, place))
    other.first(Progress)  # alone
    before = len(first.envelopes)
    first.read()
    assert (len(first.envelopes), first.source.is_away) == (before, True)
    other.source.close()
    claim.close()
    shown = len(first.of(Progress))
    first.until(lambda: len(first.of(Progress)) > shown)
    states = [one.body for one in first.envelopes if isinstance(one.body, State)]
    assert (states[-1].phase, first.source.is_away) == ("training", False)
    held.signal(9)
    first.end()
    first.source.close()
