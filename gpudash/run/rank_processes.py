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
        self._failures: list[Envelope] = []

    def send(self, command: AnyCommand, /) -> None:
        """Hand it to the ranks."""
        self._unheard += self._ranks.send(command)

    def read(self) -> list[Envelope]:
        """Return what has arrived; after the end of all, which rank has failed first, and why."""
        has_ended = self.exit_code() is not None
        unheard, self._unheard = self._unheard, []
        found = [*super().read(), *unheard, *self._ranks.read()]
        self._failures += [one for one in found if isinstance(one.body, Failed)]
        found = [one for one in found if not isinstance(one.body, Failed)]
        if has_ended and self._failures:
            found.append(self._first_failure())
        return [self._numbered(one) for one in found]

    def close(self) -> None:
        """End all of them."""
        super().close()
        self._ranks.close()

    def _first_failure(self) -> Envelope:
        """Return it as rank 0's: what the others say came of it."""
        first = min(self._failures, key=lambda one: one.body.at_s)  # type: ignore[union-attr]  # a Failed
        alike = {one.body.sentence for one in self._failures} == {first.body.sentence}
        self._failures = []
        sentence = first.body.sentence if alike else f"rank {first.rank}: {first.body.sentence}"
        return replace(first, rank=0, body=replace(first.body, sentence=sentence))

    def _numbered(self, envelope: Envelope) -> Envelope:
        key = envelope.source, envelope.rank
        self._seqs[key] += 1
        return replace(envelope, seq=self._seqs[key])
