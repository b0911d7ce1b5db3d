"""Run several ranks of a workload as one source: torchrun, and the processes it starts."""

from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from gpudash.protocol import AnyCommand, Envelope, Plan, State
from gpudash.rendezvous import Rendezvous
from gpudash.run.source import Source
from gpudash.run.training_processes import TrainingProcesses
from gpudash.run.worker_process import WorkerProcess

LAUNCHER = ("-m", "gpudash.worker.launch")


def start(plan: Plan) -> Source:
    """Start the plan's process, or its several ranks. Raises WorkerError."""
    return WorkerProcess(plan) if plan.nproc == 1 else RankProcesses(plan)


class RankProcesses(WorkerProcess):
    """The launcher with its pipes, and a connection to each rank. Rank 0 leads (`lockstep.py`)."""

    def __init__(self, plan: Plan) -> None:
        """Start the launcher. Raises WorkerError."""
        super().__init__(plan, LAUNCHER)
        self._ranks = TrainingProcesses(Rendezvous(Path(self._scratch.name)), rank_0_leads=True)
        self._seqs: Counter[tuple[str, int]] = Counter()
        self._unanswered: list[Envelope] = []
        self._failures: list[tuple[int, State]] = []  # each with its rank
        self._death: State | None = None  # of a rank that could not report it

    def send(self, command: AnyCommand, /) -> None:
        """Send the command to rank 0, which leads the others."""
        self._unanswered += self._ranks.send(command)

    def read(self) -> list[Envelope]:
        """Return the messages that have arrived; at the end, the first rank's failure."""
        has_ended = self.exit_code() is not None
        unanswered, self._unanswered = self._unanswered, []
        found = []
        for envelope in (*super().read(), *unanswered):
            if isinstance(envelope.body, State) and envelope.body.failure is not None:
                self._death = envelope.body
            else:
                found.append(envelope)
        for envelope in self._ranks.read():
            if isinstance(envelope.body, State) and envelope.body.failure is not None:
                self._failures.append((envelope.rank, envelope.body))
            else:
                found.append(envelope)
        why = self._death or self._first_failure()
        if has_ended and why is not None:
            self._death, self._failures = None, []
            failed = State(at_s=why.at_s, phase="failed", failure=why.failure)
            found.append(Envelope(source="training", seq=0, sent_s=why.at_s, body=failed))
        return [self._numbered(one) for one in found]

    def close(self) -> None:
        """End all processes."""
        super().close()
        self._ranks.close()

    def _first_failure(self) -> State | None:
        """Return the first failure: the other ranks' failures follow from it."""
        if not self._failures:
            return None
        rank, first = min(self._failures, key=lambda one: one[1].at_s)
        sentences = {state.failure.sentence for _, state in self._failures if state.failure}
        if len(sentences) == 1 or first.failure is None:
            return first
        sentence = f"rank {rank}: {first.failure.sentence}"
        return replace(first, failure=replace(first.failure, sentence=sentence))

    def _numbered(self, envelope: Envelope) -> Envelope:
        key = envelope.source, envelope.rank
        self._seqs[key] += 1
        return replace(envelope, seq=self._seqs[key])
