"""Several ranks of a workload as one source: torchrun's process, and theirs, which it starts."""

from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from gpudash.protocol import AnyCommand, Envelope, Failed, Plan
from gpudash.rendezvous import Rendezvous
from gpudash.run.source import Source
from gpudash.run.training_processes import TrainingProcesses
from gpudash.run.worker_process import WorkerProcess

LAUNCHER = ("-m", "gpudash.worker.launch")


def start(plan: Plan) -> Source:
    """Start what the plan asks for: one process, or several. Raises WorkerError."""
    return WorkerProcess(plan) if plan.nproc == 1 else RankProcesses(plan)


class RankProcesses(WorkerProcess):
    """The launcher with its pipes, and a line to each of the ranks."""

    def __init__(self, plan: Plan) -> None:
        """Start them. Raises WorkerError."""
        super().__init__(plan, LAUNCHER)
        self._ranks = TrainingProcesses(Rendezvous(Path(self._scratch.name)))
        self._seqs: Counter[tuple[str, int]] = Counter()
        self._unheard: list[Envelope] = []
        self._failures: list[tuple[Failed, Envelope]] = []

    def send(self, command: AnyCommand, /) -> None:
        """Hand it to the ranks."""
        self._unheard += self._ranks.send(command)

    def read(self) -> list[Envelope]:
        """Return what has arrived; after the end of all, which rank has failed first, and why."""
        has_ended = self.exit_code() is not None
        unheard, self._unheard = self._unheard, []
        told = []
        for envelope in (*super().read(), *unheard, *self._ranks.read()):
            if isinstance(envelope.body, Failed):
                self._failures.append((envelope.body, envelope))
            else:
                told.append(envelope)
        if has_ended and self._failures:
            told.append(self._first_failure())
        return [self._numbered(one) for one in told]

    def close(self) -> None:
        """End all of them."""
        super().close()
        self._ranks.close()

    def _first_failure(self) -> Envelope:
        """Return it as rank 0's: what the others say came of it."""
        first, envelope = min(self._failures, key=lambda one: one[0].at_s)
        if len({failed.sentence for failed, _ in self._failures}) > 1:
            first = replace(first, sentence=f"rank {envelope.rank}: {first.sentence}")
        self._failures = []
        return replace(envelope, rank=0, body=first)

    def _numbered(self, envelope: Envelope) -> Envelope:
        key = envelope.source, envelope.rank
        self._seqs[key] += 1
        return replace(envelope, seq=self._seqs[key])
