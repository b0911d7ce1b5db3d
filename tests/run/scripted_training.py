"""A training process as gpudash sees one: it listens, reports steps and obeys. No torch.

Run as a script, by whatever starts a user's: it stands for a training with gpudash's hooks in it.
"""

import argparse
import os
import sys
import time
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import Thread

import msgspec

from gpudash import rendezvous
from gpudash.instrument import stack_server
from gpudash.instrument.endpoint import Endpoint, SocketLine
from gpudash.protocol.training import Hello, Lever, Offered
from tests.lives import in_process
from tests.scripted_run import started
from tests.scripted_worker import Worker

LEVERS = (
    Lever(
        name="num_workers",
        kind="count",
        default="2",
        maximum=64,
        effect="new loader",
        summary="processes that load",
        source="DataLoader",
    ),
    Lever(
        name="precision",
        kind="choice",
        default="script",
        choices=("script", "bf16"),
        impossible=(("tf32", "TF32 needs a GPU"),),
        summary="autocast",
        source="torch.autocast",
    ),
    Lever(
        name="batch_size",
        kind="count",
        default="8",
        summary="samples of a step",
        source="DataLoader",
        refusal="the script sets its batch size itself",
    ),
)

LATE_AT = 40
MANY = 200  # steps that have a rate
FOUND_AT = 20
"""With `--finds`, the turn in which all levers are known."""


class Training:
    """Serves one dashboard at a time between its steps."""

    def __init__(self, place, rank, world_size=1, job="", *, complete=True, tells=False):
        self.complete, self.turns, self.tells = complete, 0, tells
        self.worker, self.rank = Worker(), rank
        self.world_size, self.job = world_size, job
        self.worker.now_s = time.monotonic()
        self.endpoint = Endpoint(place.socket(os.getpid()))
        self.line, self.watched_from = None, 0

    @property
    def is_watched(self):
        return self.line is not None and not self.line.gone

    def turn(self):
        self.accept()
        for command in self.line.read() if self.is_watched else ():
            self.worker.obey(command)
        self.turns += 1
        if self.is_watched and self.turns == self.watched_from + MANY:
            self.tell("watched for many steps")
        if self.turns == FOUND_AT and not self.complete:
            self.complete = True
            self.offer()
        self.worker.turn()
        for event in self.worker.take():
            self.send(event)

    def accept(self):
        connection = self.endpoint.accept()
        if connection is not None and self.is_watched:
            connection.close()
        elif connection is not None:
            self.line, self.watched_from = SocketLine(connection, self.rank), self.turns
            self.begin()

    def begin(self):
        self.tell("watched")
        self.send(Hello(pid=os.getpid(), job=self.job))
        self.offer()
        worker = self.worker
        first = started(time.monotonic(), dict(worker.settings))
        first = in_process(first, pid=os.getpid(), world_size=self.world_size)
        self.send(worker.begin(msgspec.structs.replace(first, segment=worker.segment)))

    def tell(self, text):
        if self.tells:
            print(text, flush=True)

    def offer(self):
        levers = LEVERS if self.complete else LEVERS[:1]
        self.send(Offered(found="SGD, root Net", levers=levers, complete=self.complete))

    def await_dashboard(self):
        while not self.is_watched:
            self.accept()
            time.sleep(0.01)

    def send(self, event):
        if self.is_watched:
            self.line.send(event)


def load(file):
    while not file.exists():
        time.sleep(0.02)


LARGE = bytes(1_000_000)
"""While so much is hashed, other threads run."""
OPTIONS = {
    "--steps": {"type": int, "default": 100_000},
    "--until": {"type": Path, "help": "instead: until it is there"},
    "--step-s": {"type": float, "default": 0.01},
    "--rank": {"type": int, "default": int(os.environ.get("RANK", "0"))},
    "--world-size": {"type": int, "default": 1},
    "--job": {"default": ""},
    "--exit": {"type": int, "default": 0},
    "--fork": {"action": "store_true", "help": "two train, as under torchrun"},
    "--dies": {"type": Path, "help": "once it is there, unless started again"},
    "--late": {"type": Path, "help": "after some steps it waits for it"},
    "--tells": {"action": "store_true", "help": "since when it is watched"},
    "--step-ms": {"type": float, "default": 50.0, "help": "of a step, as it is told"},
    "--busy": {"action": "store_true", "help": "it works on while it is paused"},
    "--loss": {"type": float, "help": "of the second step"},
    "--finds": {"action": "store_true", "help": "some levers after some steps only"},
}


def asked():
    parser = argparse.ArgumentParser()
    for name, how in OPTIONS.items():
        parser.add_argument(name, **how)
    return parser.parse_args()


def behave(worker, arguments):
    worker.step_ms = lambda _: arguments.step_ms
    if arguments.loss is not None:
        worker.first_loss = lambda step: arguments.loss if step == 2 else 1 / step
    if arguments.busy:
        for _ in range(4):  # a share of a busy machine's core that is seen, too
            Thread(target=lambda: any(not sha256(LARGE) for _ in count()), daemon=True).start()


def main():
    arguments = asked()
    place = rendezvous.of_environment()
    pid = os.fork() if arguments.fork else 0
    if place is None:
        sys.exit("gpudash is not there")
    place.mark("python")
    place.mark("torch")
    print("training", os.getpid(), flush=True)
    training = Training(
        place,
        arguments.rank,
        arguments.world_size,
        arguments.job,
        complete=not arguments.finds,
        tells=arguments.tells,
    )
    behave(training.worker, arguments)
    if arguments.late:
        stack_server.answer(place)
    if arguments.dies or arguments.late or arguments.finds or arguments.loss is not None:
        training.await_dashboard()
    while arguments.dies and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        training.turn()
        time.sleep(arguments.step_s)
        if arguments.dies.exists():
            os._exit(1)
    for step in count() if arguments.until else range(arguments.steps):
        if arguments.until and arguments.until.exists():
            break
        if arguments.late and step == LATE_AT:
            load(arguments.late)
        training.turn()
        time.sleep(arguments.step_s)
    if pid:
        os.waitpid(pid, 0)
    print("done", file=sys.stderr, flush=True)
    sys.exit(arguments.exit)


if __name__ == "__main__":
    main()
