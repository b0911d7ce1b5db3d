"""What a session says of an experiment that it has conducted."""

from itertools import count

import pytest

from gpudash.compare.ab import Comparison
from gpudash.protocol import Blocks, ComparisonShown, Verdict
from gpudash.run.conductor import Conductor
from gpudash.run.normalise import Normaliser
from tests.compare.test_ab import faster, pipelined
from tests.scripted_worker import Worker


@pytest.mark.parametrize(("pairs", "verdicts"), [(3, 0), (4, 1)])
def test_the_verdict_of_an_ab_that_is_ended_is_said_once(pairs, verdicts):
    worker, normaliser, ids, said = Worker(faster(1.25)), Normaliser(), count(), []
    conductor = Conductor(
        lambda run, blocks: worker.obey(Blocks(id=next(ids), run=run, blocks=blocks)), said.append
    )
    started, comparison = worker.start(), Comparison(pipelined(pairs=40))
    conductor.conduct(comparison, started)

    def turn():
        worker.turn()
        for record in worker.take():
            conductor.fold(normaliser.stamp(record), started)

    while comparison.shown().pairs < pairs:
        turn()
    conductor.cancel("ended")
    shown = said[-1 - verdicts]
    assert isinstance(shown, ComparisonShown)
    assert (shown.is_over, shown.pairs) == (True, pairs)
    assert said[len(said) - verdicts :] == [Verdict(text=shown.verdict)] * verdicts
    while not comparison.done:
        turn()
    conductor.cancel("the training was restarted")
    assert [one for one in said if isinstance(one, Verdict)] == said[len(said) - verdicts :]
    assert worker.settings["pipelined"] == "off"
