"""A session without processes: a scripted worker runs the experiment while it is started."""

import os
import signal
from unittest import mock

from gpudash.cli.main import main
from gpudash.protocol.commands import Plan
from gpudash.snapshot import Snapshot
from tests.scripted_worker import Conducted, Worker


class ScriptedSession:
    """What the verbs need of a session. After `turns` the training ends, or Ctrl-C is pressed."""

    def __init__(self, worker=None, settings=None, *, turns=None, ctrl_c=False, failure=None):
        self.plan = Plan(workload="encdec", settings=settings or {})
        self.worker = worker or Worker()
        self.failure = failure
        self.turns, self.ctrl_c = turns, ctrl_c
        self.experiment = None

    def conduct(self, experiment):
        self.experiment = experiment

    def start(self, listener):
        self.listener = listener
        listener.on_snapshot(Snapshot(process=self.worker.start().process))

    def wait(self, timeout_s):
        """Run what is conducted; without it, and without a failure, the training goes on."""
        if self.failure is not None:
            return True
        if self.experiment is None:
            return False
        conducted = Conducted(self.experiment, self.worker)
        if self.turns is None:
            conducted.run()
        else:
            conducted.turn(self.turns)
            self.end(conducted)
        self.listener.on_snapshot(
            Snapshot(
                state="training",
                workload=self.plan.workload,
                device=self.worker.start().process.device,
                settings=self.worker.settings,
                comparison=self.experiment.shown(),
                skipped_samples=self.worker.skipped,
            )
        )
        return True

    def end(self, conducted):
        if self.ctrl_c:
            os.kill(os.getpid(), signal.SIGINT)
            return
        self.worker.finish()
        for record in self.worker.take():
            conducted.tell(record)

    def stop(self):
        raise AssertionError("it has ended")

    def close(self):
        pass


def called(*words, trains):
    """Call gpudash, whose trainings are these, one after the other; return its exit code."""
    with mock.patch("gpudash.cli.headless.Session", side_effect=trains):
        return main(words)
