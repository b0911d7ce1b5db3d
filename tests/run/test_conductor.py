"""The events of a session about an experiment."""

from itertools import count

import pytest

from gpudash.compare.ab import Comparison
from gpudash.protocol.commands import Blocks
from gpudash.protocol.session import ComparisonShown, Notice
from gpudash.ranks.normalise import Normaliser
from gpudash.run.conductor import Conductor
from tests.compare.test_ab import faster, pipelined, unsteady
from tests.compare.test_tuning import Training, faster_in_nhwc, tuning
from tests.scripted_worker import Worker


class Conducted:
    """An experiment on a worker; what is emitted comes back, as a session's own events do."""

    def __init__(self, worker, experiment):
        self.worker, self.normaliser, self.emitted, ids = worker, Normaliser(), [], count()
        self.conductor = Conductor(
            lambda run, blocks: worker.obey(Blocks(id=next(ids), run=run, blocks=blocks)),
            self.emit,
        )
        self.started = self.normaliser.stamp(worker.start())
        self.conductor.conduct(experiment, self.started)

    def emit(self, event):
        self.emitted.append(event)
        self.conductor.fold(event, self.started)

    def until(self, condition):
        while not condition():
            self.worker.turn()
            for record in self.worker.take():
                self.conductor.fold(self.normaliser.stamp(record), self.started)

    def of(self, kind):
        return [one for one in self.emitted if isinstance(one, kind)]


@pytest.mark.parametrize(("pairs", "verdicts"), [(4, 0), (5, 1)])
def test_the_verdict_of_an_ended_ab_is_emitted_once(pairs, verdicts):
    comparison = Comparison(pipelined(pairs=40, precision=1e-6))
    run = Conducted(Worker(faster(1.25, noise=unsteady(0.1))), comparison)
    run.until(lambda: comparison.shown().pairs >= pairs)
    found = run.conductor.cancel("ended")
    shown = run.emitted[-1]
    assert (shown.is_over, shown.pairs) == (True, pairs)
    assert (shown.verdict is not None) == bool(verdicts)
    run.until(lambda: comparison.done)
    none = "A/B: no verdict for pipelined=on: ended after 4 pairs, too few for a verdict"
    assert found == (f"A/B: {shown.verdict}" if shown.verdict else none)
    assert run.conductor.cancel("the training was restarted") is None
    assert run.emitted[-1] == shown
    assert run.worker.settings["pipelined"] == "off"


def test_a_tune_tells_each_setting_once_and_its_verdict():
    tune = tuning("channels_last")
    run = Conducted(Training(faster_in_nhwc), tune)
    run.until(lambda: tune.done)
    (told,) = run.of(Notice)
    assert told.text == "tune: channels_last off → on: taken"
    shown = run.of(ComparisonShown)
    assert [one.verdict for one in shown if one.verdict] == [tune.verdict]
    assert "trying channels_last off or on" in {one.doing for one in shown}
    assert (shown[-1].best, shown[-1].start) == ({"channels_last": "on"}, {"channels_last": "off"})
