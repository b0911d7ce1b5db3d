"""Who has the time of the thread that trains: read now and then, so that no step feels it.

The thread is off the CPU while it waits for a batch, for a core, or for something else: a disk, a
lock, a network, or because it sleeps. That last is called blocked. A wait for the device spins, so
it is on the CPU.
"""

import gc
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, NamedTuple

SCHEDULER = Path("/proc/thread-self/schedstat")
NS = 1e-9
SHARES_EVERY_S = 0.5
"""Over so much time shares are taken at least: the scheduler's figures come in ticks."""
COMPILER = "torch._dynamo.callback"


class _Stopwatch:
    """How long something took in this process so far."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._began_s: float | None = None

    def begin(self, *_: object) -> None:
        self._began_s = perf_counter()

    def end(self, *_: object) -> None:
        if self._began_s is not None:
            self.spent_s += perf_counter() - self._began_s
            self._began_s = None


class _Collector(_Stopwatch):
    """Times Python's garbage collector, which stops all threads."""

    def __init__(self) -> None:
        super().__init__()
        gc.callbacks.append(self._heard)

    def _heard(self, phase: str, _about: Mapping[str, int]) -> None:
        (self.begin if phase == "start" else self.end)()


class _Compiler(_Stopwatch):
    """Times Dynamo, from when a script has imported it; older ones do not tell."""

    def __init__(self) -> None:
        super().__init__()
        self._is_heard = False

    def listen(self) -> None:
        handler: Any = getattr(sys.modules.get(COMPILER), "callback_handler", None)
        if handler is not None and not self._is_heard:
            self._is_heard = True
            handler.register_start_callback(self.begin)
            handler.register_end_callback(self.end)


COLLECTOR, COMPILER_TIME = _Collector(), _Compiler()


class Counters(NamedTuple):
    """What this thread has had so far."""

    at_s: float
    cpu_s: float
    delay_s: float | None
    """It was ready to run, and had no core; None where the kernel does not count it."""
    collected_s: float
    compiled_s: float


class HostTime:
    """Sums what iterations took, from `restart` on, on the thread that trains."""

    def __init__(self, read: Callable[[], Counters] | None = None) -> None:
        self._read = read or counters
        self.restart()

    def restart(self) -> None:
        self._busy_s = self._waited_s = 0.0
        self._fetch_s = self._fetch_cpu_s = self._start_s = self._own_s = 0.0
        self._before = self._read()

    def iterated(self, host_s: float, waited_s: float) -> None:
        """Add an iteration of `host_s`, of which it waited for batches."""
        self._busy_s += host_s - waited_s
        self._waited_s += waited_s

    def fetched(self, wall_s: float, cpu_s: float) -> None:
        """Note what some of the waits for a batch took, and how much of it on the CPU."""
        self._fetch_s += wall_s
        self._fetch_cpu_s += cpu_s

    def started(self, wall_s: float) -> None:
        """Note what of the waits was the start of an epoch's loader workers."""
        self._start_s += wall_s

    def leave_out(self, cpu_s: float) -> None:
        """Not count what gpudash itself used between two iterations."""
        self._own_s += cpu_s

    @property
    def _fetch_cpu_share(self) -> float:
        return min(self._fetch_cpu_s / self._fetch_s, 1.0) if self._fetch_s else 0.0

    def shares_pct(self) -> dict[str, float]:
        """Return the owners' shares of the time since `restart`, and restart; {} if too short."""
        COMPILER_TIME.listen()
        before, now = self._before, self._read()
        wall_s = now.at_s - before.at_s
        if wall_s < SHARES_EVERY_S or not self._busy_s:
            return {}
        owners = _owners_s(
            self._busy_s,
            max(self._waited_s - self._start_s, 0.0) * self._fetch_cpu_share,
            now.cpu_s - before.cpu_s - self._own_s,
            None if now.delay_s is None or before.delay_s is None else now.delay_s - before.delay_s,
            now.collected_s - before.collected_s,
            now.compiled_s - before.compiled_s,
        )
        owners["loader_start_pct"] = self._start_s
        self.restart()
        return {name: min(100 * spent_s / wall_s, 100.0) for name, spent_s in owners.items()}


def _owners_s(
    busy_s: float,
    unpack_s: float,
    cpu_s: float,
    delay_s: float | None,
    collected_s: float,
    compiled_s: float,
) -> dict[str, float]:
    """Divide the time of iterations beside their waits for batches, and what unpacks those."""
    off_s = max(busy_s - max(cpu_s - unpack_s, 0.0), 0.0)
    owners = {"unpack_pct": unpack_s}
    if delay_s is not None:
        owners["no_core_pct"] = min(delay_s, off_s)
        owners["blocked_pct"] = off_s - owners["no_core_pct"]
    left_s = busy_s - off_s
    for name, spent_s in (("gc_pct", collected_s), ("compile_pct", compiled_s)):
        owners[name] = min(spent_s, left_s)
        left_s -= owners[name]
    return {**owners, "code_pct": left_s}


def counters() -> Counters:
    try:
        delay_s = int(SCHEDULER.read_bytes().split()[1]) * NS
    except (OSError, IndexError, ValueError):
        delay_s = None
    return Counters(
        perf_counter(), thread_time(), delay_s, COLLECTOR.spent_s, COMPILER_TIME.spent_s
    )
