"""Who has the time of the thread that trains: read now and then, so that no step feels it.

It is read where an iteration ends, so that what is divided is the time of whole iterations: of one
that lasts seconds a reading in between would miss what has most of it.

The thread is off the CPU while it waits for a batch, for a core, or for something else: a disk, a
lock, a network, or because it sleeps. That last is called blocked. A wait for the device spins, so
it is on the CPU.
"""

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from operator import add, methodcaller, sub
from pathlib import Path
from time import perf_counter, thread_time
from types import MethodType
from typing import Any, NamedTuple

from . import patching

SCHEDULER = Path("/proc/thread-self/schedstat")
NS = 1e-9
MOST_COLLECTIONS = 10_000
"""Of them the time is kept until somebody asks."""
SHARES_EVERY_S = 0.5
"""Over so much time shares are taken at least: the scheduler's figures come in ticks."""
LATE = 0.1
"""Of the time of iterations: a break that is noticed later than this has a part in their time."""
COMPILER = "torch._dynamo.callback"


class _Collector:
    """Times Python's garbage collector, which stops all threads.

    What it calls has no bytecode: a Ctrl-C that came while it collected would be raised in there,
    and is lost where nothing can raise. So `getattr(self, "start", …)` reads a property in C, which
    has an iterator in C put the time into `moments`.
    """

    start = stop = property(methodcaller("note"))

    def __init__(self) -> None:
        self._moments = deque[float](maxlen=2 * MOST_COLLECTIONS)
        moments: Iterator[float] = iter(perf_counter, None)
        self.note = map(self._moments.append, moments).__next__
        self._spent_s = 0.0
        self._called = MethodType(getattr, self)

    def listen(self) -> None:
        """Do it until gpudash is taken out again."""
        if self._called not in gc.callbacks:
            gc.callbacks.append(self._called)
            patching.at_undo(lambda: gc.callbacks.remove(self._called))

    def spent_s(self) -> float:
        """Return how long it took so far, without the collection that goes on."""
        while len(self._moments) > 1:
            began_s, ended_s = self._moments.popleft(), self._moments.popleft()
            self._spent_s += ended_s - began_s
        return self._spent_s


class _Compiler:
    """Times Dynamo, from when a script has imported it; older ones do not tell."""

    def __init__(self) -> None:
        self.spent_s = self.spent_cpu_s = 0.0
        self.count = 0
        self._began: tuple[float, float] | None = None
        self._is_heard = False

    def listen(self) -> None:
        handler: Any = getattr(sys.modules.get(COMPILER), "callback_handler", None)
        if handler is not None and not self._is_heard:
            self._is_heard = True
            handler.register_start_callback(self._begin)
            handler.register_end_callback(self._end)
            patching.at_undo(lambda: self._leave(handler))

    def _leave(self, handler: Any) -> None:
        self._is_heard = False
        handler.remove_start_callback(self._begin)
        handler.remove_end_callback(self._end)

    def _begin(self, *_: object) -> None:
        self._began = perf_counter(), thread_time()

    def _end(self, *_: object) -> None:
        if self._began is not None:
            began_s, began_cpu_s = self._began
            self.count += 1
            self.spent_s += perf_counter() - began_s
            self.spent_cpu_s += thread_time() - began_cpu_s
            self._began = None


COLLECTS, COMPILES = _Collector(), _Compiler()


class Counters(NamedTuple):
    """What this thread has had so far."""

    at_s: float
    cpu_s: float
    delay_s: float | None = 0.0
    """It was ready to run, and had no core; None where the kernel does not count it."""
    collected_s: float = 0.0
    compiled_s: float = 0.0
    compiled_cpu_s: float = 0.0
    """Of that on the CPU: the rest waits for processes that compile."""
    compiles: float = 0
    alloc_retries: float | None = 0
    """What follows is asked of the driver; None where the allocator does not count it."""
    device_allocs: float | None = 0
    device_frees: float | None = 0


COUNTED = ("compiles", "alloc_retries", "device_allocs", "device_frees")
"""Fields that are told as they are: how often a step has each."""


def since(before: Counters, now: Counters) -> Counters:
    """Return what was spent between the two."""
    return _each(sub, now, before)


def _each(of: Callable[[float, float], float], one: Counters, other: Counters) -> Counters:
    pairs = zip(one, other, strict=True)
    values: list[Any] = [None if a is None or b is None else of(a, b) for a, b in pairs]
    return Counters(*values)


class HostTime:
    """Sums what iterations took, from `restart` on, on the thread that trains."""

    def __init__(self, read: Callable[[], Counters] | None = None) -> None:
        self.requests: Callable[[], Mapping[str, int]] = dict
        """Returns what the allocator has asked of the driver so far."""
        self._read = read or (lambda: counters(self.requests()))
        self._elsewhere_share = 0.0  # s a step
        self._usual_s = 0.0
        COLLECTS.listen()
        self.restart()

    def restart(self) -> None:
        self._found: dict[str, float] = {}
        self._begin(self._read())

    def _begin(self, now: Counters) -> None:
        self._busy_s = self._waited_s = 0.0
        self._steps = self._seen_steps = 0
        self._elsewhere_s = self._fetch_cpu_s = self._start_s = 0.0
        self._spent = Counters(0.0, 0.0)
        self._go_on(now)

    def go_on(self) -> None:
        """Leave out the time since `break_off`."""
        self._go_on(self._read())

    def _go_on(self, now: Counters) -> None:
        self._before, self._iterated_s = now, 0.0
        self._at_split: Counters | None = None

    def break_off(self) -> None:
        """Note that an evaluation, a checkpoint or a command interrupts iterations."""
        if not self._iterated_s:
            return
        spent = since(self._before, self._read())
        if spent.at_s > self._iterated_s * (1 + LATE):
            self.restart()
        else:
            self._spent, self._iterated_s = _each(add, self._spent, spent), 0.0

    def iterated(self, host_s: float, waited_s: float, steps: int, *, is_seen: bool) -> None:
        """Add iterations of `host_s`, of which it waited for batches; whether marks saw them."""
        self._iterated_s += host_s
        self._busy_s += host_s - waited_s
        self._waited_s += waited_s
        self._steps += steps
        self._seen_steps += steps * is_seen
        if self._busy_s + self._waited_s >= SHARES_EVERY_S:
            self._divide(self._at_split or self._read())

    def split(self, host_s: float) -> None:
        """Note that an iteration of `host_s` may have ended here, as only what follows shows."""
        is_due = self._busy_s + self._waited_s + host_s >= SHARES_EVERY_S
        self._at_split = self._read() if is_due else None

    def join(self) -> None:
        """Note that it had not ended at `split`."""
        self._at_split = None

    def elsewhere(self, off_s: float) -> None:
        """Note how long a step that marks see waited for another thread: autograd's."""
        self._elsewhere_s += off_s

    def fetched(self, cpu_s: float, start_s: float = 0.0) -> None:
        """Note how much of iterations' waits for batches was on the CPU, and started epochs."""
        self._fetch_cpu_s += cpu_s
        self._start_s += start_s

    @property
    def usual_wait_s(self) -> float:
        """For the batches of a step, in the time since the last reading or until it."""
        if not self._steps:
            return self._usual_s
        return (self._waited_s - self._start_s) / self._steps

    def leave_out(self, cpu_s: float) -> None:
        """Not count what gpudash itself used between two iterations."""
        self._before = self._before._replace(cpu_s=self._before.cpu_s + cpu_s)

    def values(self) -> dict[str, float]:
        """Return the owners' shares of the newest iterations, once; {} if these were too few.

        With what a step was counted to have.
        """
        COMPILES.listen()  # before the next compilation, which may be all of a long step
        found, self._found = self._found, {}
        return found

    def _divide(self, now: Counters) -> None:
        """Divide the time until `now`, where an iteration has ended, and begin anew."""
        spent = _each(add, self._spent, since(self._before, now))
        if self._busy_s:
            self._found = self._shares(spent)
        self._usual_s = self.usual_wait_s
        self._begin(now)

    def _shares(self, spent: Counters) -> dict[str, float]:
        if self._seen_steps:
            self._elsewhere_share = self._elsewhere_s / self._seen_steps
        start_s = min(self._start_s, self._waited_s)
        unpack_s = min(self._fetch_cpu_s, self._waited_s - start_s)
        cpu_s = max(spent.cpu_s - unpack_s, 0.0)
        elsewhere_s = self._steps * self._elsewhere_share
        owners = {"loader_start_pct": start_s, "unpack_pct": unpack_s}
        owners |= _owners_s(self._busy_s, elsewhere_s, spent._replace(cpu_s=cpu_s))
        found = {name: min(100 * one_s / spent.at_s, 100.0) for name, one_s in owners.items()}
        for name in COUNTED if self._steps else ():
            count = getattr(spent, name)
            found |= {} if count is None else {name: count / self._steps}
        return found


def _owners_s(busy_s: float, elsewhere_s: float, spent: Counters) -> dict[str, float]:
    """Divide the time of iterations beside their waits for batches."""
    off_s = max(busy_s - spent.cpu_s, 0.0)
    compiled_s = min(spent.compiled_s, busy_s)
    waits_s = max(off_s - elsewhere_s - (spent.compiled_s - spent.compiled_cpu_s), 0.0)
    owners = {}
    if spent.delay_s is not None:
        owners["no_core_pct"] = min(spent.delay_s, waits_s)
        owners["blocked_pct"] = waits_s - owners["no_core_pct"]
    owners["compile_pct"] = compiled_s
    left_s = max(busy_s - waits_s - compiled_s, 0.0)
    owners["gc_pct"] = min(spent.collected_s, left_s)
    return {**owners, "code_pct": left_s - owners["gc_pct"]}


def counters(requests: Mapping[str, int]) -> Counters:
    try:
        delay_s = int(SCHEDULER.read_bytes().split()[1]) * NS
    except (OSError, IndexError, ValueError):
        delay_s = None
    return Counters(
        perf_counter(),
        thread_time(),
        delay_s,
        COLLECTS.spent_s(),
        COMPILES.spent_s,
        COMPILES.spent_cpu_s,
        COMPILES.count,
        *(requests.get(name) for name in COUNTED[1:]),
    )
