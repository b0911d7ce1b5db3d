"""A gpudash that listens for other nodes."""

from gpudash.addresses import LOOPBACK, Address
from gpudash.run.nodes import Nodes
from gpudash.run.training_processes import TrainingProcesses
from tests.lives import told_by
from tests.waiting import until

TOKEN = "a token of the tests"


class Listening:
    """The processes of a run that other nodes may connect to, and all that they say."""

    def __init__(self, place, address=None, token=TOKEN):
        self.nodes = Nodes(address or Address(LOOPBACK, 0), token)
        self.address = self.nodes.address
        self.processes = TrainingProcesses(place, self.nodes)
        self.messages, self.sentences = [], []

    def turn(self):
        self.messages += [*self.processes.read(), *self.processes.departed()]
        self.sentences += [notice.text for notice in self.processes.notices()]

    def until(self, predicate):
        return until(
            lambda: self.turn() or predicate(), lambda: (self.messages[-3:], self.sentences)
        )

    def bodies(self, kind):
        return told_by(self.messages, kind)

    def first(self, kind):
        return self.until(lambda: self.bodies(kind))[0]
