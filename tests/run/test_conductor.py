"""The events of a session about an experiment."""

from itertools import count

import pytest

from gpudash.compare.ab import Comparison
from gpudash.protocol.commands import Blocks
from gpudash.protocol.session import ComparisonShown, Verdict
from gpudash.run.conductor import Conductor
from gpudash.run.normalise import Normaliser
from tests.compare.test_ab import faster, pipelined, unsteady
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
    none = "A/B: no verdict for pipelined=on: ended after 4 pairs, and a verdict needs 5"
    assert found == (f"A/B: {shown.verdict}" if shown.verdict else none)
    assert conductor.cancel("the training was restarted") is None
    assert [one for one in emitted if isinstance(one, Verdict)] == emitted[
        len(emitted) - verdicts :
    ]
    assert worker.settings["pipelined"] == "off"
