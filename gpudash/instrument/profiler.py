"""Profiles some steps of any training loop with torch.profiler.

The loop calls it at each border between two steps. Nothing stays on before `begin` or after `end`.
"""

import mmap
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from threading import get_ident
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch import nn
from torch.autograd import profiler as autograd
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity

from ..errors import first_line
from ..protocol.commands import PROFILE_LIMIT_S
from ..protocol.inspections import Flops, Profiled, SyncCall
from ..protocol.records import encode
from .flops import ALL, begin_measuring
from .module_marks import ModuleMarks
from .pinning import measure as measure_pinning
from .syncs import SyncWindow
from .weights import weights_of

INJECTED = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH")
"""Environment variables by which Nsight and similar tools enter a process."""
ANOTHER = "another profiler is active here: try again once it has ended"
NO_DEVICE_EVENTS = (
    "the GPU was not traced: run without other GPU profilers, and have the driver allow it "
    "(NVreg_RestrictProfilingToAdminUsers=0)"
)
STARTS = ("_prepare_trace", "_start_trace")
"""Methods of `torch.autograd.profiler.profile` with which every torch profiler begins."""
PAGEABLE = b'"Memcpy HtoD (Pageable'
"""In a trace's text: a copy to the device from memory that is not page-locked."""
BYTES = re.compile(rb'[^}]*?"bytes":\s*(\d+)')
"""In a trace's text, from such a copy on: its bytes."""
LARGE_BYTES = 1 << 20
"""Bytes of such copies in a step from which on pinning is measured."""
OF_DEVICE = (b'"kernel"', b'"gpu_memcpy"', b'"gpu_memset"')
"""In a trace's text: the categories of a GPU's events."""
_LOG_LEVEL = "KINETO_LOG_LEVEL"


class NoProfile(Exception):  # noqa: N818  # it is an answer
    """There is no profile; the message is a clause that says why, or what to do."""


class Profiler:
    """One profile: `begin`, then `step` at each border, then `end`; or `abandon`."""

    _on: ClassVar["Profiler | None"] = None
    _inherited: ClassVar["Profiler | None"] = None
    """In a forked child: its parent's profiler, kept from being destroyed."""

    def __init__(
        self, device: torch.device, steps: int, path: Path, roots: Iterable[nn.Module] = ()
    ) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._steps = steps
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}~")
        self._torch: Any = None  # torch's own profiler
        self._thread = 0
        self._annotation: Any = None  # of the step in progress
        self._window = SyncWindow()
        self._marks = ModuleMarks(roots)
        self._syncs: tuple[SyncCall, ...] = ()
        self._other_starts: dict[str, Callable[..., Any]] = {}  # how other profilers begin
        self._first_step = self._done = 0
        self._border_s = self._ended_s = 0.0
        self._called_s = self._began_s = time.monotonic()

    @property
    def is_enough(self) -> bool:
        is_late = self._done > 0 and self.is_overdue
        return self._done >= self._steps or is_late or self._ended_s > 0

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() - self._began_s > PROFILE_LIMIT_S

    def begin(self, first_step: int) -> None:
        """Call it between two steps. It waits for the device. May raise NoProfile."""
        self._first_step = first_step
        self.check()
        if self._is_cuda:
            torch.cuda.synchronize(self._device)  # sync: only these steps are traced and timed
        self._called_s = time.monotonic()
        # not torch.profiler itself, which is a layer on this and imports the compiler
        self._torch = autograd.profile(
            use_device="cuda" if self._is_cuda else None,
            use_kineto=True,  # else kernels are only timed
            experimental_config=_trace_alone(),
        )
        Profiler._on, self._thread = self, get_ident()
        is_loud = _LOG_LEVEL not in os.environ
        if is_loud:  # else Kineto writes to the script's stderr
            os.environ[_LOG_LEVEL] = "99"
        try:
            self._window.start()
            self._torch.__enter__()
            self._marks.start()
        except BaseException as error:  # a signal handler of the script's may raise here
            if not _is_active():
                self._torch = None  # ending what never began could crash
            self.abandon()
            if not isinstance(error, RuntimeError):
                raise
            raise NoProfile(f"torch's profiler did not start: {first_line(error)}") from error
        finally:
            if is_loud:
                del os.environ[_LOG_LEVEL]
        self._patch_others()
        self._began_s = self._border_s = time.monotonic()
        self._annotate()

    def step(self, *, is_last: bool = False) -> bool:
        if self._ended_s:
            return True
        self._close_annotation()
        self._done, self._border_s = self._done + 1, time.monotonic()
        if is_last or self.is_enough:
            return True
        self._annotate()
        return False

    def stop(self) -> None:
        """End only what this thread began. A second call does nothing."""
        if Profiler._on is not self or self._thread != get_ident():
            return
        Profiler._on = None
        self.unpatch_others()
        is_within = self._annotation is not None
        self._marks.stop()
        self._close_annotation()
        self._syncs = self._window.stop()
        if self._is_cuda:
            torch.cuda.synchronize(self._device)  # sync: as before the steps
        self._ended_s = self._border_s if is_within else time.monotonic()
        if self._torch is not None:
            self._torch.__exit__(None, None, None)

    def end(
        self,
        precision: str = "",
        flops: Flops | None = None,
        untraced_step_ms: float | None = None,
        untraced_phases_ms: dict[str, float] | None = None,
        optimizers: Iterable[Optimizer] = (),
    ) -> Profiled:
        """May raise NoProfile."""
        try:
            self.stop()
            if not self._done:
                raise NoProfile("no step was over before it had to end")
            # a CPU needs time for each precision
            precisions = (precision,) if precision and not self._is_cuda else ALL
            read_peak = begin_measuring(self._device, precisions)
            self._torch.export_chrome_trace(str(self._unfinished))  # while the GPU measures
            self._torch = None  # freeing it takes time
            copies = pageable_copies(self._unfinished) if self._is_cuda else []
            peak = read_peak()
            if copies is None:
                raise NoProfile(NO_DEVICE_EVENTS)
            are_large = sum(copies) >= LARGE_BYTES * self._done
            pinning = measure_pinning(self._device, copies, self._done) if are_large else None
            steps_s, now_s = self._ended_s - self._began_s, time.monotonic()
            profiled = Profiled(
                at_s=now_s,
                path=str(self._path),
                first_step=self._first_step,
                steps=self._done,
                steps_ms=steps_s * 1e3,
                took_ms=(now_s - self._called_s - steps_s) * 1e3,
                untraced_step_ms=untraced_step_ms,
                untraced_phases_ms=untraced_phases_ms or {},
                precision=precision,
                syncs=self._syncs,
                peak=peak,
                pinning=pinning,
                flops=flops,
                weights=weights_of(optimizers),
            )
            add_record(self._unfinished, profiled)
            self._unfinished.replace(self._path)
        except (OSError, RuntimeError, ValueError) as error:  # an empty file cannot be mapped
            raise NoProfile(f"the trace could not be written: {first_line(error)}") from error
        finally:
            self.abandon()
        return profiled

    def abandon(self) -> None:
        """Switch everything off, and remove unfinished files. A second call does nothing."""
        with suppress(Exception):
            self.stop()
        self._torch = None
        for draft in (self._unfinished, Path(f"{self._unfinished}.tmp")):  # torch's own draft
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def unpatch_others(self) -> None:
        for name, start in self._other_starts.items():
            setattr(autograd.profile, name, start)

    @classmethod
    def cut_short(cls) -> None:
        if cls._on is not None:
            with suppress(Exception):
                cls._on.stop()

    @classmethod
    def forget_in_child(cls) -> None:
        """In a fork the parent's profiler would grow without end."""
        cls._inherited, cls._on = cls._on, None
        if cls._inherited is not None:
            cls._inherited.unpatch_others()
            with suppress(Exception):
                private: Any = torch.autograd
                private._enable_record_function(False)  # noqa: SLF001  # of this thread

    def check(self) -> None:
        if _is_active() or _is_warming_up():
            raise NoProfile(ANOTHER)
        if self._is_cuda:
            if torch.cuda.is_current_stream_capturing():
                raise NoProfile("a CUDA graph is being captured: try again in a moment")
            if ProfilerActivity.CUDA not in torch.profiler.supported_activities():  # type: ignore[no-untyped-call]  # in torch
                raise NoProfile("this build of torch has no CUPTI: install one for CUDA")
            if any(name in os.environ for name in INJECTED):
                raise NoProfile("another GPU profiler has started this command: run it without")
        try:
            self._unfinished.touch()
            self._unfinished.unlink()  # a step may never end
        except OSError as error:
            raise NoProfile(f"cannot write {self._path}: {error.strerror}") from error

    def _annotate(self) -> None:
        # named like torch's own schedule, with the number of the training's step
        name = f"ProfilerStep#{self._first_step + self._done}"
        self._annotation = autograd.record_function(name)
        self._annotation.__enter__()

    def _close_annotation(self) -> None:
        annotation, self._annotation = self._annotation, None
        if annotation is not None:
            annotation.__exit__(None, None, None)

    def _patch_others(self) -> None:
        """Have other profilers end ours first: two at once raise, or crash, in the script."""
        for name in STARTS:
            start = self._other_starts[name] = getattr(autograd.profile, name)

            def first_end_ours(profile: Any, *args: Any, start: Any = start) -> Any:
                Profiler.cut_short()
                return start(profile, *args)

            setattr(autograd.profile, name, first_end_ours)


os.register_at_fork(after_in_child=Profiler.forget_in_child)


def add_record(path: Path, profiled: Profiled) -> None:
    """May raise OSError, if the trace is not complete."""
    with path.open("r+b") as file:
        file.seek(-min(file.seek(0, os.SEEK_END), 64), os.SEEK_END)
        at, tail = file.tell(), file.read()
        brace = tail.rfind(b"}")
        if brace < 0 or tail[brace + 1 :].strip():
            raise OSError("the disk may be full")
        file.seek(at + brace)
        file.write(b',\n"gpudash": ' + encode(profiled) + b"\n}\n")


def _is_active() -> bool:
    private: Any = torch.autograd
    return bool(autograd._is_profiler_enabled or private._profiler_enabled())  # noqa: SLF001  # no public name


def _is_warming_up() -> bool:
    """While a profiler waits for its schedule, another one would crash it."""
    return any(one.entered and one.kineto_results is None for one in _prepared)


_prepared: WeakSet[autograd.profile] = WeakSet()
"""All profiles of this process that were prepared: torch keeps no list."""


def _note_prepared() -> None:
    prepare: Any = autograd.profile._prepare_trace  # noqa: SLF001  # no public name

    @wraps(prepare)
    def noting(profile: autograd.profile) -> Any:
        _prepared.add(profile)
        return prepare(profile)

    autograd.profile._prepare_trace = noting  # type: ignore[method-assign]  # noqa: SLF001  # how any profiler begins


_note_prepared()


def _trace_alone() -> Any:
    private: Any = torch._C  # noqa: SLF001  # where torch keeps the option
    try:
        return private._profiler._ExperimentalConfig(trace_only=True)  # noqa: SLF001  # as above
    except TypeError:  # an older torch
        return None


def pageable_copies(path: Path) -> list[int] | None:
    """Return the bytes of each copy from memory that is not page-locked; None without a GPU."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if not any(_has_category(text, one) for one in OF_DEVICE):
            return None
        return [int(found[1]) for at in _places(text) if (found := BYTES.match(text, at))]


def _has_category(text: mmap.mmap, category: bytes) -> bool:
    at = text.rfind(category)  # events of a GPU are near the end
    while at >= 0 and not text[max(at - 8, 0) : at].rstrip().endswith(b'"cat":'):
        at = text.rfind(category, 0, at)
    return at >= 0


def _places(text: mmap.mmap) -> Iterator[int]:
    at = text.find(PAGEABLE)
    while at >= 0:
        yield at
        at = text.find(PAGEABLE, at + 1)
