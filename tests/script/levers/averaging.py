"""Trains two ranks on gloo, with and without the lever `grad_sync`; prints how they differ."""

import copy
import pickle
from functools import partial

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import SGD

from gpudash.levers.grad_sync import GradSync
from tests.script.levers.scripts import found
from tests.script.ranks import main

RANKS = 2
ALIKE = [3] * 8
CHANGING = [3, 3, 3, 5, 2, 1, 4, 3, 3, 1, 1, 3]
SHAPES = {}


def shape(function):
    SHAPES[function.__name__] = function
    return function


def net():
    """Rank 1 has the running means of rank 0, as DDP sends them before each pass."""
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def frozen_net():
    made = net()
    made[0].requires_grad_(requires_grad=False)
    return made


class Accumulating:
    """A training whose steps have so many backward passes, over batches of this rank."""

    def __init__(self, levers, lengths=ALIKE, clip=None, moves=None, net=net):
        torch.manual_seed(0)
        self.levers, self.lengths, self.clip = levers, lengths, clip
        self.moves = moves or {1: "last", len(lengths) - 2: "each"}
        self.batches = torch.Generator().manual_seed(distributed.get_rank())
        self.net = net()
        self.optimizer = SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.sent = []
        """Passes of each step that averaged gradients."""
        self.model = DistributedDataParallel(self.net)
        self.model.register_comm_hook(None, self._averages)
        self.model.logger._set_comm_hook_name("")

    def _averages(self, _state, bucket):
        self.sent[-1] += bucket.is_last()
        done = distributed.all_reduce(bucket.buffer().div_(RANKS), async_op=True).get_future()
        return done.then(lambda future: future.value()[0])

    def move(self, value):
        self.levers.update(
            found(self.model, optimizers=[self.optimizer], world_size=2, backwards=3)
        )
        self.levers.apply({"grad_sync": value})
        assert self.levers.settings == {"grad_sync": value}

    def loss(self):
        return self.model(torch.randn(4, 8, generator=self.batches)).square().mean()

    def pass_back(self, passes):
        for _ in range(passes):
            self.loss().backward()

    accumulate = pass_back

    def step(self, passes):
        self.accumulate(passes)
        if self.clip is not None:
            self.clip(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self):
        for number, passes in enumerate(self.lengths):
            if self.levers is not None and number in self.moves:
                self.move(self.moves[number])
            self.sent.append(0)
            self.step(passes)
        return self

    @property
    def state(self):
        return [one.detach().double().flatten() for one in self.net.state_dict().values()]


def compared(kind=Accumulating, **options):
    plain, moved = kind(None, **options).train(), kind(GradSync(), **options).train()
    differs = [float((a - b).abs().max()) for a, b in zip(plain.state, moved.state, strict=True)]
    return {"differs": max(differs), "plain": plain.sent, "sent": moved.sent}


SHAPES |= {
    "alike": compared,
    "changing": partial(compared, lengths=CHANGING),
    "frozen_weights": partial(compared, lengths=CHANGING, net=frozen_net),
    "clipped_by_norm": partial(compared, lengths=CHANGING, clip=clip_grad_norm_),
    "clipped_by_value": partial(compared, lengths=CHANGING, clip=clip_grad_value_),
}


def accumulating(**options):
    """Decorate what a training does in place of the passes of a step."""

    def decorate(accumulate):
        kind = type("Accumulates", (Accumulating,), {"accumulate": accumulate})
        SHAPES[accumulate.__name__] = partial(compared, kind, **options)
        return accumulate

    return decorate


@accumulating(lengths=CHANGING, clip=clip_grad_norm_)
def a_norm_on_one_rank_within_a_step(training, passes):
    """The other rank goes on to its next pass."""
    training.pass_back(1)
    if distributed.get_rank() == 0 and len(training.sent) % 2:
        clip_grad_norm_(training.model.parameters(), float("inf"))
    training.pass_back(passes - 1)


@accumulating(lengths=CHANGING)
def a_norm_on_one_rank_behind_its_last_pass(training, passes):
    """The other rank averages gradients for its optimizer."""
    training.pass_back(passes)
    if distributed.get_rank() == 0:
        clip_grad_norm_(training.model.parameters(), float("inf"))


@accumulating(moves={1: "last"})
def moved_within_a_step(training, passes):
    training.pass_back(passes - 1)
    if training.levers is not None and len(training.sent) == 5:
        training.move("each")
    training.pass_back(1)


@accumulating(lengths=[3, 3, 3, 3, 3, 2, 3, 3], moves={1: "last"})
def put_back_within_a_shorter_step(training, passes):
    training.pass_back(passes)
    if training.levers is not None and len(training.sent) == 6:
        training.move("each")


@accumulating()
def a_step_that_is_given_up(training, passes):
    """Its gradients are dropped, and its passes count as those of the next step."""
    if len(training.sent) == 5:
        training.pass_back(2)
        training.optimizer.zero_grad()
    training.pass_back(passes)


@accumulating()
def a_last_pass_that_is_left_out(training, passes):
    """Its forward pass has come, but not its backward pass, as where a loss is not finite."""
    training.pass_back(passes - 1)
    loss = training.loss()
    if len(training.sent) != 5:
        loss.backward()


@accumulating()
def calls_of_an_evaluation(training, passes):
    training.pass_back(1)
    training.model.eval()
    training.loss()
    training.model.train()
    with torch.no_grad():
        training.loss()
    training.pass_back(passes - 1)


@shape
def a_second_optimizer():
    """It begins to step while passes are kept back."""

    class Another(Accumulating):
        def step(self, passes):
            if len(self.sent) == 5:
                self.optimizer = SGD(self.model.parameters(), lr=0.05)
            super().step(passes)

    return compared(Another, lengths=[3, 3, 3, 3, 2, 3, 3, 3])


@shape
def left_alone():
    """What a checkpoint or a copy has of it, between two steps."""
    training = Accumulating(GradSync(), lengths=CHANGING[:5], moves={1: "last"}).train()
    saved = pickle.dumps((training.model.module, training.optimizer))
    copied = copy.deepcopy(training.optimizer)
    hooks = [one._post_accumulate_grad_hooks for one in training.net.parameters()]
    return {
        "traces": [b"gpudash" in saved, len(copied._optimizer_step_pre_hooks), *filter(None, hooks)]
    }


if __name__ == "__main__":
    main(SHAPES, RANKS, lambda shapes: {name: run() for name, run in shapes.items()})
