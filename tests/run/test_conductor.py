"""The events of a session about an experiment."""

from itertools import count

import pytest

from gpudash.compare.ab import Comparison
from gpudash.protocol.commands import Blocks
from gpudash.protocol.session import ComparisonShown, Notice, Verdict
from gpudash.run.conductor import Conductor
from gpudash.run.normalise import Normaliser
from tests.compare.test_ab import faster, pipelined, unsteady
from tests.compare.test_tuning import Training, faster_in_nhwc, tuning
from tests.scripted_worker import Worker


@pytest.mark.parametrize(("pairs", "verdicts"), [(4, 0), (5, 1)])
def test_the_verdict_of_an_ended_ab_is_emitted_once(pairs, verdicts):
    worker, normaliser, ids, emitted = (
        Worker(faster(1.25, noise=unsteady(0.1))),
        Normaliser(),
        count(),
        [],
    )
    conductor = Conductor(
        lambda run, blocks: worker.obey(Blocks(id=next(ids), run=run, blocks=blocks)),
        emitted.append,
    )
    started = normaliser.stamp(worker.start())
    comparison = Comparison(pipelined(pairs=40, precision=1e-6))
    conductor.conduct(comparison, started)

    def turn():
        worker.turn()
        for record in worker.take():
            conductor.fold(normaliser.stamp(record), started)

    while comparison.shown().pairs < pairs:
        turn()
    found = conductor.cancel("ended")
    shown = emitted[-1 - verdicts]
    assert isinstance(shown, ComparisonShown)
    assert (shown.is_over, shown.pairs) == (True, pairs)
    assert emitted[len(emitted) - verdicts :] == [Verdict(text=shown.verdict)] * verdicts
    while not comparison.done:
        turn()
    none = "A/B: no verdict for pipelined=on: ended after 4 pairs, too few for a verdict"
    assert found == (f"A/B: {shown.verdict}" if shown.verdict else none)
    assert conductor.cancel("the training was restarted") is None
    assert [one for one in emitted if isinstance(one, Verdict)] == emitted[
        len(emitted) - verdicts :
    ]
    assert worker.settings["pipelined"] == "off"


def test_a_tune_tells_each_setting_once_and_its_verdict():
    worker, normaliser, ids, emitted = Training(faster_in_nhwc), Normaliser(), count(), []

    def emit(event):
        emitted.append(event)
        conductor.fold(event, started)  # a session's own events come back, too

    conductor = Conductor(
        lambda run, blocks: worker.obey(Blocks(id=next(ids), run=run, blocks=blocks)), emit
    )
    started = normaliser.stamp(worker.start())
    tune = tuning("channels_last")
    conductor.conduct(tune, started)
    while not tune.done:
        worker.turn()
        for record in worker.take():
            conductor.fold(normaliser.stamp(record), started)
    told = [one.text for one in emitted if isinstance(one, Notice)]
    assert len(told) == 1
    assert told[0].startswith("tune: channels_last off → on: about +4")
    assert [one.text for one in emitted if isinstance(one, Verdict)] == [tune.verdict]
    shown = [one for one in emitted if isinstance(one, ComparisonShown)]
    assert "trying channels_last off or on" in {one.doing for one in shown}
    assert (shown[-1].best, shown[-1].start) == ({"channels_last": "on"}, {"channels_last": "off"})


def test_a_tune_that_is_ended_says_the_best_so_far():
    worker, normaliser, ids = Training(faster_in_nhwc), Normaliser(), count()
    conductor = Conductor(
        lambda run, blocks: worker.obey(Blocks(id=next(ids), run=run, blocks=blocks)),
        lambda _event: None,
    )
    started = normaliser.stamp(worker.start())
    tune = tuning("channels_last", "precision")
    conductor.conduct(tune, started)
    while not tune.leader:
        worker.turn()
        for record in worker.take():
            conductor.fold(normaliser.stamp(record), started)
    said = conductor.cancel("ended")
    assert said == "tune: ended; the best so far, not proven: channels_last=on"
    assert conductor.cancel("ended") is None
