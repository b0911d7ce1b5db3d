"""An observer that records its calls, for scripts that the tests run."""

import gc
import json
from importlib import import_module

import torch

from gpudash.instrument import patching
from gpudash.script import steps
from gpudash.script.discovery import found_line
from gpudash.script.patches import patch
from gpudash.script.tracker import Tracker


class Toy:
    def __init__(self):
        self.clear()

    def clear(self):
        self.founds, self.borders, self.asides, self.records = [], [], [], []
        self.untimed, self.failures, self.anew, self.newest = [], [], [], None
        self.losses, self.feeds, self.complete = [], [], []
        self.requested = []  # losses that the tracker has asked for itself
        self.at_border = lambda step: None

    def found(self, found):
        self.newest = found
        self.founds.append(found_line(found))
        self.feeds.append(found.feed is not None)
        self.complete.append(found.complete)

    def border(self, step):
        self.borders.append(step)
        self.look()
        self.at_border(step)

    def aside(self, why):
        self.asides.append((why, self.tracker.meter.steps))

    def flush(self):
        self.look()

    def begins_anew(self):
        self.anew.append(self.tracker.meter.steps)

    def loads(self):
        pass

    def idle(self):
        pass

    def look(self):
        for record, loss in self.tracker.meter.clock.finished():
            self.records.append(record)
            self.losses.append(None if loss is None else float(loss))
        self.untimed += self.tracker.meter.clock.counted()
        self.requested += self.tracker.meter.losses.arrived()


def results(toy, cases, told, *, together=False):
    """Run each case as a training of its own; return by its name what `told` and it return.

    `together`: similar steps are timed together.
    """
    found = {}
    for name, run in cases.items():
        toy.clear()
        gc.collect()
        toy.tracker.reset()
        steps.FIRST_STEPS = 0  # these trainings are shorter
        toy.tracker.meter.active, toy.tracker.meter.may_skip = True, together
        torch.compiler.reset()
        if torch._dynamo.utils:
            torch._dynamo.utils.counters.clear()
        more = run(toy) or {}
        toy.tracker.finish()
        if toy.tracker.meter.clock is not None:
            toy.look()
        found[name] = told(toy) | more
    return found


class Cases(dict):
    """Trainings by name, each with the results that it is to have."""

    def case(self, **expected):
        """Decorate one."""

        def decorate(function):
            self[function.__name__] = function, expected
            return function

        return decorate

    def main(self, told):
        """Print the results of all."""
        toy = watched()
        found = results(toy, {name: run for name, (run, _) in self.items()}, told)
        toy.tracker.end()
        patching.undo()
        print(json.dumps(found))


def import_compiler():
    """Import what the first model that is compiled does; for all processes that are forked then.

    Each search for models would pass it, too, were it imported later than the objects frozen there.
    """
    import_module("torch._inductor.compile_fx")
    torch.compile(torch.add, backend="aot_eager")(torch.ones(1), 1)


def watched():
    torch.compiler.reset()  # imports the compiler, as the first optimizer does
    gc.freeze()  # makes each search for models faster
    toy = Toy()
    toy.tracker = Tracker(toy)
    toy.tracker.failed = lambda what, error: toy.failures.append(f"{what}: {error!r}")
    patch(toy.tracker)
    return toy
