"""What the hooks cost somebody else's training: with against without, in one process or in several.

    python benchmarks/bench_hooks.py --targets-ms 0.5,1.4,2.4,3 --pairs 40
    torchrun --nproc-per-node 2 benchmarks/bench_hooks.py --targets-ms 3 --pairs 40

An MLP under AdamW, fed by a DataLoader, gets as many layers as its step needs to last so long:
on a GPU such steps are bound by the host, where every microsecond of a hook is felt. Blocks with
and without the hooks take turns, in an order drawn for each pair, each between borders at which
the device has finished; the first steps of a block are left out. Without means torch as it was.
With means all that a dashboard asks for: steps and phases are measured and reported, short steps
on a GPU several at a time. `--unwatched` is what a training pays that goes on without its
dashboard: steps are only counted. A peer published +40 % at 1.4 ms a step and +8 % at 2.4 ms.

Each cost is given twice: by the wall clock, and in CPU time of the process, which what else runs
on the machine hardly touches. Below stands what the dashboard says that measuring costs. Under
torchrun the model is in DistributedDataParallel, or with --sharded in fully_shard, one process for
each GPU; all of them switch at the same step, and rank 0 prints its own costs.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import torch
from ratios import ratio_with_interval, show
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optim
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpudash.compare.paired_t import block_order
from gpudash.instrument.reporter import Reports
from gpudash.instrument.wire import StepReport, encoded
from gpudash.levers.training_objects import TrainingObjects
from gpudash.protocol.training import Aside
from gpudash.script import hooked_methods, shards
from gpudash.script.patches import patch
from gpudash.script.roots import CALL_ATTRIBUTE
from gpudash.script.tracker import Tracker

DROPPED_STEPS = 5
WARMUP_STEPS = 50
LOOK_EVERY_S = 0.025
"""As the driver: reports are sent at most so often."""


class Cost(NamedTuple):
    """What a step took."""

    wall_us: float
    cpu_us: float
    """In all threads of the process."""


class Watcher:
    """What the driver does with a dashboard there, less the socket."""

    def __init__(self) -> None:
        self.tracker = Tracker(self)
        self.is_on = True
        """Whether steps are to be measured from the next border on."""
        self._reports: Reports | None = None
        self._due_s = 0.0
        self.reported_steps = 0
        self.said_ms = 0.0
        """What the reports say that measuring has cost."""

    def found(self, _found: TrainingObjects) -> None:
        """Make the reports, once."""
        clock, losses = self.tracker.meter.clock, self.tracker.meter.losses
        if self._reports is None and clock is not None and losses is not None:
            self._reports = Reports(
                clock,
                losses,
                lambda: ({}, 0),
                lambda: None,
                self._send,
                read_collectives=self.tracker.collectives,
            )

    def border(self, _step: int) -> None:
        """Report where it is due; switch."""
        now_s = time.monotonic()
        if self._reports is not None and now_s >= self._due_s:
            self._due_s = now_s + LOOK_EVERY_S
            self._reports.send()
        self.tracker.meter.active = self.is_on

    def aside(self, why: Aside | None) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing: there are no cells."""

    def begins_anew(self) -> None:
        """Nothing, as above."""

    def loads(self) -> None:
        """Nothing: no loader has workers."""

    def idle(self) -> None:
        """Nothing: steps are short here."""

    def _send(self, report: StepReport) -> None:
        encoded(report, 0, 0, 0.0)
        self.reported_steps += sum(step.count for step in report.steps)
        self.said_ms += report.instruments_ms


class Hooks:
    """All that gpudash has put into torch and into a model, to be taken out and put back."""

    def __init__(self, watcher: Watcher) -> None:
        self._attributes: list[tuple[Any, str]] = [
            (torch.autograd, "backward"),
            (_BaseDataLoaderIter, "__next__"),
            *((sys.modules[shards.PARAM_GROUP], name) for name in shards.HOOKED),
            *(
                (getattr(sys.modules[module], owner), name)
                for module, owner, names in hooked_methods.WAITS
                for name in names
            ),
        ]
        self._torchs = self._now()
        patch(watcher.tracker)
        self._ours = self._now()
        self._lists: list[dict[int, Any]] = [
            getattr(optim, f"_global_optimizer_{when}_hooks") for when in ("pre", "post")
        ]
        self._listed = [dict(hooks) for hooks in self._lists]
        self._calls: dict[nn.Module, Any] = {}

    def take_out(self, script: "Script") -> None:
        """Leave torch and the model as they were; the tracker has been turned off before."""
        self._ours = self._now()  # the wait for others is hooked later than the rest
        self._put(self._torchs)
        for hooks in self._lists:
            hooks.clear()
        for module in script.model.modules():
            if CALL_ATTRIBUTE in module.__dict__:
                self._calls[module] = module.__dict__.pop(CALL_ATTRIBUTE)

    def put_back(self) -> None:
        """Put back what was taken out."""
        self._put(self._ours)
        for hooks, listed in zip(self._lists, self._listed, strict=True):
            hooks.update(listed)
        for module, call in self._calls.items():
            module.__dict__[CALL_ATTRIBUTE] = call
        self._calls.clear()

    def _now(self) -> list[Any]:
        return [getattr(owner, name) for owner, name in self._attributes]

    def _put(self, values: list[Any]) -> None:
        for (owner, name), value in zip(self._attributes, values, strict=True):
            setattr(owner, name, value)


class Batches(Dataset[tuple[Tensor, Tensor]]):
    """Batches that are there already: making them is no part of the question."""

    def __init__(self, batch_size: int, width: int, device: torch.device) -> None:
        images = torch.randn(batch_size, width, device=device)
        self._batch = images, torch.randint(10, (batch_size,), device=device)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._batch


class Script:
    """A training as a user writes it: nothing in it knows of gpudash."""

    def __init__(self, layers: int, options: argparse.Namespace, device: torch.device) -> None:
        width, lean = options.width, options.lean
        hidden = chain.from_iterable((nn.Linear(width, width), nn.ReLU()) for _ in range(layers))
        self.model: nn.Module = nn.Sequential(*hidden, nn.Linear(width, 10)).to(device)
        if options.sharded:
            linear = [module for module in self.model.modules() if isinstance(module, nn.Linear)]
            for module in (*linear, self.model):
                fully_shard(module)
        elif distributed.is_initialized():
            self.model = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=lean or None)
        batches = Batches(options.batch_size, width, device if lean else torch.device("cpu"))
        loader: DataLoader[Any] = DataLoader(batches, batch_size=None)
        self.batches: Iterator[Any] = chain.from_iterable(repeat(loader))
        self.device = device

    def train(self, steps: int) -> None:
        """Train so many steps."""
        for images, answers in islice(self.batches, steps):
            self.optimizer.zero_grad()
            loss = cross_entropy(self.model(images.to(self.device)), answers.to(self.device))
            loss.backward()  # type: ignore[no-untyped-call]  # in torch
            self.optimizer.step()

    def cost(self, steps: int) -> Cost:
        """Return what a step takes, over `steps` steps after the dropped ones."""
        self.train(DROPPED_STEPS)
        self.synchronize()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        self.train(steps)
        cpu_s = time.process_time() - began_cpu_s  # before a wait that spins
        self.synchronize()
        return Cost((time.perf_counter() - began_s) / steps * 1e6, cpu_s / steps * 1e6)

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def layers_that_last(target_us: float, options: argparse.Namespace, device: torch.device) -> int:
    """Return with how many layers a step lasts so long; one layer if that is too long already."""
    times_us = []
    for layers in (1, 9):
        script = Script(layers, options, device)
        script.train(WARMUP_STEPS)
        times_us.append(script.cost(WARMUP_STEPS).wall_us)
    layer_us = max(1.0, (times_us[1] - times_us[0]) / 8)
    return of_rank_0(1 + max(0, round((target_us - times_us[0]) / layer_us)))


def of_rank_0(number: int) -> int:
    """Return what rank 0 says: all train the same steps."""
    told = [number]
    if distributed.is_initialized():
        distributed.broadcast_object_list(told)
    return told[0]


def everywhere(*, holds: bool) -> bool:
    """Return whether it holds in all processes."""
    told = [holds]
    if distributed.is_initialized():
        told = [holds] * distributed.get_world_size()
        distributed.all_gather_object(told, holds)
    return all(told)


def is_first() -> bool:
    """Return whether this process is to print."""
    return not distributed.is_initialized() or distributed.get_rank() == 0


def compare(script: Script, watcher: Watcher, hooks: Hooks, options: argparse.Namespace) -> None:
    """Take turns; print the cost."""
    turn(script, watcher, is_on=False)
    script.train(WARMUP_STEPS)
    steps = of_rank_0(max(3, round(options.block_s * 1e6 / script.cost(WARMUP_STEPS).wall_us)))
    costs: dict[bool, list[Cost]] = {False: [], True: []}
    for order in block_order(options.pairs, seed=0):
        for hooked in (False, True) if order == "AB" else (True, False):
            turn(script, watcher, is_on=hooked and not options.unwatched)
            if not hooked:
                hooks.take_out(script)
            costs[hooked].append(script.cost(steps))
            if not hooked:
                hooks.put_back()
    for name in Cost._fields if is_first() else ():
        without, having = ([getattr(cost, name) for cost in costs[each]] for each in (False, True))
        off_us = sum(without) / len(without)
        cost_us, low_us, high_us = (
            (one - 1) * off_us for one in ratio_with_interval(having, without)
        )
        kind = "unwatched" if options.unwatched else "with"
        what = f"hooks, {kind} over without, {off_us / 1e3:.2f} ms a step"
        what += f" ({name.removesuffix('_us')})"
        print(f"{what}: {cost_us:+.1f} µs a step [{low_us:+.1f}, {high_us:+.1f}]")
        interval = [cost_us, low_us, high_us]
        show(what, having, without, cost_us=interval, off_us=off_us, steps_a_block=steps)
    if watcher.reported_steps and is_first():
        said_us = watcher.said_ms * 1e3 / watcher.reported_steps
        print(f"the screen says that measuring costs {said_us:.1f} µs a step")
    if not options.unwatched and watcher.reported_steps < options.pairs * steps:
        raise SystemExit(f"{watcher.reported_steps} steps were reported: the hooks were not on")


def turn(script: Script, watcher: Watcher, *, is_on: bool) -> None:
    """Train until the tracker is on, or off, on all ranks."""
    watcher.is_on = is_on
    while not everywhere(
        holds=watcher.tracker.meter.active is is_on
    ):  # short steps have few borders
        script.train(1)


def the_device(name: str) -> torch.device:
    """Return this process's device. Under torchrun, join the others."""
    device = torch.device(name)
    if "RANK" in os.environ:
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        else:
            torch.set_num_threads(1)
        distributed.init_process_group(device_id=device if device.type == "cuda" else None)
    return device


def main() -> None:
    """Print four lines for each length of a step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets-ms", default="0.5,1.4,2.4,3")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--block-s", type=float, default=0.25, help="seconds a block lasts")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument(
        "--lean", action="store_true", help="data on the device, fused AdamW: the shortest steps"
    )
    parser.add_argument("--unwatched", action="store_true", help="no dashboard is open")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sharded", action="store_true", help="fully_shard in place of DDP")
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    device = the_device(arguments.device)
    targets_us = [float(target) * 1e3 for target in arguments.targets_ms.split(",")]
    depths = [layers_that_last(target, arguments, device) for target in targets_us]
    watcher = Watcher()
    hooks = Hooks(watcher)
    for depth in depths:
        watcher.reported_steps, watcher.said_ms = 0, 0.0
        compare(Script(depth, arguments, device), watcher, hooks, arguments)
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
