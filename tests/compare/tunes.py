"""Simulated trainings for tunes: a grid gives a step's duration, and noise is added to each block.

Some figures of the grids were measured on one H200 (benchmarks/RESULTS.md); each grid says which.
What is between them is made up, with strong interactions.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from math import exp, inf, pi, sin
from random import Random
from typing import Any, NamedTuple

from gpudash.compare.experiment import BLOCK_S, RUN_S
from gpudash.compare.tune.search import ALLOWANCE, Allowance, NoCost, RoundCosts, Search
from gpudash.compare.tune.tunable import Tunable
from gpudash.compare.tune.tuning import MIN_STEPS
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Lever

WARMUP_STEPS = 2
LOADER_S = 0.4
"""What new loader workers take to start; one loader rests with its workers, beside the active."""
BATCH_S = 0.04
"""What a loader that takes over takes until its first batch."""
COMPILE_S = 20.0


def switch(name, **about):
    return Lever(name=name, kind="switch", default="off", summary="", source="", **about)


def count(name, default, most, **about):
    return Lever(
        name=name, kind="count", default=default, maximum=most, summary="", source="", **about
    )


def choice(name, *choices, **about):
    return Lever(
        name=name,
        kind="choice",
        default=choices[0],
        choices=choices,
        summary="",
        source="",
        **about,
    )


NEXT_STEP = {"effect": "next step"}
NEW_LOADER = {"effect": "new loader"}
LEVERS = {
    lever.name: Tunable(lever)
    for lever in (
        choice("precision", "tf32", "fp32", "bf16", **NEXT_STEP),
        switch("channels_last", **NEXT_STEP),
        switch("pipelined", **NEXT_STEP),
        switch("cuda_graph", **NEXT_STEP),
        switch("compile", helps=(("on", "fewer kernels"),), **NEXT_STEP),
        choice("fused_optimizer", "foreach", "fused", "single", **NEXT_STEP),
        count("num_workers", "2", 16, **NEW_LOADER),
        switch("pin_memory", **NEW_LOADER),
        choice("loss", "nonzero", "where", "counted", "minmax", **NEXT_STEP),
    )
}


class Grid(NamedTuple):
    """A training: its levers, and how long a step takes with each setting."""

    name: str
    levers: tuple[str, ...]
    step_ms: Callable[[Mapping[str, str]], float]
    known: Mapping[str, Tunable] = LEVERS
    """The levers by name."""
    values: Mapping[str, Sequence[str]] = {}
    """All values of each lever, if they are not the lever's own; a number takes powers of two."""

    @property
    def tunables(self):
        return [self.known[name] for name in self.levers]

    @property
    def start(self) -> Settings:
        return {name: self.known[name].lever.default for name in self.levers}

    def settings(self) -> list[Settings]:
        """Every setting."""
        values = (
            self.values.get(name)
            or self.known[name].lever.values
            or ("0", "1", "2", "4", "8", "16")
            for name in self.levers
        )
        return [dict(zip(self.levers, one, strict=True)) for one in product(*values)]

    @property
    def best_ms(self) -> float:
        return min(map(self.step_ms, self.settings()))


def encdec(of_64):
    """The encoder and decoder: with tf32 12.7 ms at batch 64, with NHWC 11.0, with bf16 too 7.17.

    As measured: a graph then 6.95, compiling 6.24, compiling on two streams 5.37; at batch 8 tf32
    3.78, NHWC 2.67, bf16 2.65, a graph 2.11, compiling 2.92. The rest is made up.
    """

    def step_ms(settings):
        nhwc, bf16 = settings["channels_last"] == "on", settings["precision"] == "bf16"
        fp32 = settings["precision"] == "fp32"
        if of_64:
            device = (11.0 if nhwc else 12.7) if not bf16 else (7.17 if nhwc else 13.1)
            device = 26.4 - 2.0 * nhwc if fp32 else device
            host = 3.2
        else:
            device = (2.1 if nhwc else 3.5) if not bf16 else (1.9 if nhwc else 3.7)
            device = 5.6 - 0.3 * nhwc if fp32 else device
            host = 2.55 + 0.1 * bf16 - 0.02 * nhwc
        compiled, graph = settings["compile"] == "on", settings["cuda_graph"] == "on"
        if compiled:
            device *= 0.87 if bf16 and nhwc else 0.97
            host *= 1.1
        if graph:
            host = 0.4
            device *= 0.97 if not compiled else 1.02
        if settings["pipelined"] == "on":
            device *= 0.86 if compiled else 0.90
            host *= 1.06
            device *= 1.12 if graph else 1.0
        return max(device, host) + 0.1

    return step_ms


def of_loader(settings):
    """A script that waits for batches until there are enough workers; then its device decides."""
    workers = int(settings["num_workers"])
    makes_ms = 40.0 / max(workers, 1) * (1 + 0.02 * workers)
    pinned = settings["pin_memory"] == "on"
    device = 7.5 if settings["precision"] == "bf16" else 10.0
    if settings["channels_last"] == "on":
        device *= 0.75 if settings["precision"] == "bf16" else 1.05
    copies = 0.2 if pinned else 1.0
    if workers == 0:
        return makes_ms + device + copies
    return max(device + copies, makes_ms)


def of_launches(settings):
    """A transformer that launches bind: fused +57 %, compile +29 % alone, as measured."""
    update = {"fused": 1.0, "foreach": 3.4, "single": 6.5}[settings["fused_optimizer"]]
    host, device = 3.0, 2.2
    if settings["compile"] == "on":
        host, device = 1.6, 1.7
    if settings["precision"] == "bf16":
        host, device = host * 1.25, device * 0.6
    return max(host + update, device + 0.5)


def of_masks(settings):
    """A masked loss: 287 ms a step with `nonzero`, 202 with `counted`, 200 with `minmax`.

    As measured: with `minmax` NHWC 142, bf16 156, both 153, compiled 192 and 138 with NHWC.
    """
    loss = {"nonzero": 87.0, "where": 88.0, "counted": 2.0, "minmax": 0.0}[settings["loss"]]
    nhwc, bf16 = settings["channels_last"] == "on", settings["precision"] == "bf16"
    fp32 = settings["precision"] == "fp32"
    model = {(False, False): 200.0, (True, False): 142.0, (False, True): 156.0, (True, True): 153.0}
    found = model[nhwc, bf16] * (1.4 if fp32 else 1.0)
    return loss + found * (0.965 if settings["compile"] == "on" else 1.0)


FIVE = ("precision", "channels_last", "pipelined", "cuda_graph", "fused_optimizer")
SIX = (*FIVE, "loss")


def made_up(seed: int, levers: Sequence[str] = FIVE, of_three: float = 0.0) -> Grid:
    """Levers with pairwise terms of up to a quarter, drawn at random; perhaps of three, too."""
    random = Random(seed)
    single = {
        (name, value): random.gauss(0.0, 0.12)
        for name in levers
        for value in LEVERS[name].lever.values
    }
    values = sorted(single)
    pair = {(a, b): random.gauss(0.0, 0.08) for a in values for b in values if a[0] < b[0]}
    threes = (one for one in combinations(values, 3) if len({name for name, _ in one}) == 3)
    triple = {one: random.gauss(0.0, of_three) for one in threes if of_three}

    def step_ms(settings):
        chosen = sorted(settings.items())
        found = sum(single[one] for one in chosen)
        found += sum(pair[two] for two in combinations(chosen, 2))
        found += sum(triple[three] for three in combinations(chosen, 3) if of_three)
        return 8.0 * exp(found)

    return Grid(f"made up {seed}", levers, step_ms)


COMPUTE = ("precision", "channels_last", "pipelined", "cuda_graph", "compile")
GRIDS = (
    Grid("encdec, batch 8", COMPUTE, encdec(False)),
    Grid("encdec, batch 64", COMPUTE, encdec(True)),
    Grid("a loader", ("num_workers", "precision", "channels_last", "pin_memory"), of_loader),
    Grid("launches", ("fused_optimizer", "precision", "compile"), of_launches),
    Grid("masks", ("loss", "channels_last", "precision", "compile"), of_masks),
)


class Noise(NamedTuple):
    """What disturbs a block's time."""

    spread: float = 0.01
    drift: float = 0.0
    """How much a minute changes the pace, up and down."""
    bursts: float = 0.0
    """How often a block is hit by another job, which makes it a fifth longer."""

    def factor(self, random, at_s):
        shared = self.drift * sin(2 * pi * at_s / 60)
        burst = 1.2 if random.random() < self.bursts else 1.0
        return burst * exp(random.gauss(0.0, self.spread) + shared)


QUIET = Noise()


class Tuned(NamedTuple):
    """A simulated tune, judged by the grid's truth."""

    search: Search
    result: Settings
    behind_best: float
    """How much longer a step takes than with the grid's best setting."""
    behind_start: float
    """How much longer than at the start; negative if it is faster."""


class Simulation:
    """One training whose clock is made up."""

    def __init__(
        self,
        grid: Grid,
        seed: int,
        noise: Any = QUIET,
        allowance: Allowance = ALLOWANCE,
        known: Settings | None = None,
    ) -> None:
        self.grid, self.noise = grid, noise
        self.random = Random(seed)
        self.search = Search(grid.start, grid.tunables, allowance, known)
        self.before, self.resting = grid.start, None
        self.compiled = set()
        self.rounds = []  # what raced, and the settings that were asked for

    def of_a_loader(self, settings):
        """What makes a loader another one."""
        return {
            one: value for one, value in settings.items() if self.grid.known[one].lever.rebuilds
        }

    def block(self, changes, *, short_runs):
        """Run a block; return its cost."""
        settings = self.grid.start | changes
        step_ms = self.grid.step_ms(settings)
        if step_ms == inf:
            return NoCost(reason="it cannot be run", for_good=False)
        least_s = RUN_S if short_runs else BLOCK_S
        loader, before = self.of_a_loader(settings), self.of_a_loader(self.before)
        steps = max(MIN_STEPS, 2 * int(settings.get("num_workers", 0)))  # two bursts
        whole_ms = max(steps * step_ms, least_s * 1e3) + WARMUP_STEPS * step_ms
        # what is there already; its end is waited for
        held = 2 * int(self.before.get("num_workers", 0))
        whole_ms += held * min(step_ms, self.grid.step_ms(self.before))
        if loader != before:
            whole_ms += 1e3 * (BATCH_S + LOADER_S * (self.resting != loader))
            self.resting = before
        self.before = settings
        key = frozenset(settings.items())
        if settings.get("compile") == "on" and key not in self.compiled:
            self.compiled.add(key)
            self.search.compiled_s += COMPILE_S
        self.search.spent_s += whole_ms / 1e3
        return step_ms * self.noise.factor(self.random, self.search.spent_s)

    def run(self) -> Tuned:
        course, asked = self.search.course(), None
        measured = None
        while True:
            try:
                wanted = course.send(measured) if measured is not None else next(course)
            except StopIteration:
                break
            if asked is not None and wanted != asked:  # a block of the old round has begun
                self.block(asked.settings[0], short_runs=asked.short_runs)
            asked = wanted
            self.rounds.append((self.search.racing or "the proof", wanted))
            order = tuple(self.random.sample(range(len(wanted.settings)), len(wanted.settings)))
            costs = {
                one: self.block(wanted.settings[one], short_runs=wanted.short_runs) for one in order
            }
            measured = RoundCosts(order, costs)
        search, grid = self.search, self.grid
        result = search.leader if search.is_proven else {}
        took_ms = grid.step_ms(grid.start | result)
        return Tuned(
            search, result, took_ms / grid.best_ms - 1, took_ms / grid.step_ms(grid.start) - 1
        )
