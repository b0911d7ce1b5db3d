"""Some steps of a training under torch.profiler, whoever's loop they are.

Told of each border between two steps. Outside of `begin` and `end` nothing of it is left on.
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

import msgspec
import torch
from torch import nn
from torch.autograd import profiler as autograd
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity

from gpudash.instrument.module_marks import ModuleMarks
from gpudash.instrument.peak import ALL, begin_measuring
from gpudash.instrument.pinning import measure as measure_pinning
from gpudash.instrument.syncs import SyncWindow
from gpudash.instrument.weights import weights_of
from gpudash.protocol import PROFILE_LIMIT_S, Flops, Profiled, SyncCall

INJECTED = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH")
"""Environment variables by which Nsight and its like come into a process."""
ANOTHER = "another profiler is active here: try again once it has ended"
NO_DEVICE_EVENTS = (
    "the GPU was not traced: run without other GPU profilers, and have the driver allow it "
    "(NVreg_RestrictProfilingToAdminUsers=0)"
)
STARTS = ("_prepare_trace", "_start_trace")
"""Of `torch.autograd.profiler.profile`: how any of torch's profilers begins."""
PAGEABLE = b'"Memcpy HtoD (Pageable'
"""In a trace's text: a copy to the device from memory that is not page-locked, …"""
BYTES = re.compile(rb'[^}]*?"bytes":\s*(\d+)')
"""… and how much it copies."""
LARGE_BYTES = 1 << 20
"""Of such copies in a step: pinning is worth being measured."""
OF_DEVICE = (b'"kernel"', b'"gpu_memcpy"', b'"gpu_memset"')
"""In a trace's text: the categories of what a GPU has done."""
_LOG_LEVEL = "KINETO_LOG_LEVEL"


class NoProfile(Exception):  # noqa: N818  # it is an answer
    """There is none: one clause says why not, or what to do."""


class Profiler:
    """One profile: `begin`, a `step` at each border from there on, `end`; or `abandon`."""

    _on: ClassVar["Profiler | None"] = None
    _inherited: ClassVar["Profiler | None"] = None
    """In a forked child, its parent's, to be destroyed there alone."""

    def __init__(
        self, device: torch.device, steps: int, path: Path, roots: Iterable[nn.Module] = ()
    ) -> None:
        """Trace so many steps; the calls of these modules, and of those in them, are marked."""
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._steps = steps
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}~")
        self._torch: Any = None  # torch's own
        self._thread = 0
        self._annotation: Any = None  # of the step in progress
        self._window = SyncWindow()
        self._marks = ModuleMarks(roots)
        self._syncs: tuple[SyncCall, ...] = ()
        self._others: dict[str, Callable[..., Any]] = {}  # how other profilers begin
        self._first_step = self._done = 0
        self._border_s = self._ended_s = 0.0
        self._called_s = self._began_s = time.monotonic()

    @property
    def is_enough(self) -> bool:
        """Whether it is to be ended at this border."""
        is_late = self._done > 0 and self.is_overdue
        return self._done >= self._steps or is_late or self._ended_s > 0

    @property
    def is_overdue(self) -> bool:
        """Whether it has lasted too long: to be ended, wherever the step in progress is."""
        return time.monotonic() - self._began_s > PROFILE_LIMIT_S

    def begin(self, first_step: int) -> None:
        """Trace from here on, between two steps, from an idle device on. Raises NoProfile."""
        self._first_step = first_step
        self.check()
        if self._is_cuda:
            torch.cuda.synchronize(self._device)  # sync: these steps alone are traced and timed
        self._called_s = time.monotonic()
        # what torch.profiler is made of: that would import the compiler first
        self._torch = autograd.profile(
            use_device="cuda" if self._is_cuda else None,
            use_kineto=True,  # else kernels are only timed
            experimental_config=_trace_alone(),
        )
        Profiler._on, self._thread = self, get_ident()
        is_loud = _LOG_LEVEL not in os.environ
        if is_loud:  # else Kineto talks on the script's own stderr
            os.environ[_LOG_LEVEL] = "99"
        try:
            self._window.start()
            self._torch.__enter__()
            self._marks.start()
        except BaseException as error:  # a signal's handler of the script's may raise here
            if not _is_active():
                self._torch = None  # to end what never began could crash
            self.abandon()
            if not isinstance(error, RuntimeError):
                raise
            raise NoProfile(f"torch's profiler did not start: {_first_line(error)}") from error
        finally:
            if is_loud:
                del os.environ[_LOG_LEVEL]
        self._give_way_to_others()
        self._began_s = self._border_s = time.monotonic()
        self._annotate()

    def step(self, *, is_last: bool = False) -> bool:
        """Take that a step is over here; return whether that is enough, or was the last."""
        if self._ended_s:
            return True
        self._close_annotation()
        self._done, self._border_s = self._done + 1, time.monotonic()
        if is_last or self.is_enough:
            return True
        self._annotate()
        return False

    def stop(self) -> None:
        """Trace no further; on the thread that began. Again: nothing."""
        if Profiler._on is not self or self._thread != get_ident():
            return
        Profiler._on = None
        self.let_others_begin()
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
        optimizers: Iterable[Optimizer] = (),
    ) -> Profiled:
        """Stop, write the trace and return what it holds. Raises NoProfile."""
        try:
            self.stop()
            if not self._done:
                raise NoProfile("no step was over before it had to end")
            # a CPU takes its time for each
            precisions = (precision,) if precision and not self._is_cuda else ALL
            read_peak = begin_measuring(self._device, precisions)
            self._torch.export_chrome_trace(str(self._unfinished))  # the GPU works meanwhile
            self._torch = None  # what it holds takes time to be given back
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
                precision=precision,
                syncs=self._syncs,
                peak=peak,
                pinning=pinning,
                flops=flops,
                weights=weights_of(optimizers),
            )
            note(self._unfinished, profiled)
            self._unfinished.replace(self._path)
        except (OSError, RuntimeError, ValueError) as error:  # an empty file has no text
            raise NoProfile(f"the trace could not be written: {_first_line(error)}") from error
        finally:
            self.abandon()
        return profiled

    def abandon(self) -> None:
        """Switch off what is on, and leave nothing behind. Again: nothing."""
        with suppress(Exception):
            self.stop()
        self._torch = None
        for draft in (self._unfinished, Path(f"{self._unfinished}.tmp")):  # torch's own of ours
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def let_others_begin(self) -> None:
        """Stand in no other profiler's way any more."""
        for name, start in self._others.items():
            setattr(autograd.profile, name, start)

    @classmethod
    def cut_short(cls) -> None:
        """Stop the one that is on, if there is one: what it has is kept."""
        if cls._on is not None:
            with suppress(Exception):
                cls._on.stop()

    @classmethod
    def forget_in_child(cls) -> None:
        """Record nothing in a forked child: its parent's profiler would grow there, unended."""
        cls._inherited, cls._on = cls._on, None
        if cls._inherited is not None:
            cls._inherited.let_others_begin()
            with suppress(Exception):
                private: Any = torch.autograd
                private._enable_record_function(False)  # noqa: SLF001  # of this thread

    def check(self) -> None:
        """Do nothing, where a profile may begin. Raises NoProfile."""
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
        # as torch's own schedule does, by the number of the training's step
        name = f"ProfilerStep#{self._first_step + self._done}"
        self._annotation = autograd.record_function(name)
        self._annotation.__enter__()

    def _close_annotation(self) -> None:
        annotation, self._annotation = self._annotation, None
        if annotation is not None:
            annotation.__exit__(None, None, None)

    def _give_way_to_others(self) -> None:
        """Have another profiler find nothing on: two at once raise, or crash, in the script."""
        for name in STARTS:
            start = self._others[name] = getattr(autograd.profile, name)

            def first_end_ours(profile: Any, *args: Any, start: Any = start) -> Any:
                Profiler.cut_short()
                return start(profile, *args)

            setattr(autograd.profile, name, first_end_ours)


os.register_at_fork(after_in_child=Profiler.forget_in_child)


def note(path: Path, profiled: Profiled) -> None:
    """Add our record to a trace. Raises OSError where the trace is not whole."""
    with path.open("r+b") as file:
        file.seek(-min(file.seek(0, os.SEEK_END), 64), os.SEEK_END)
        at, tail = file.tell(), file.read()
        brace = tail.rfind(b"}")
        if brace < 0 or tail[brace + 1 :].strip():
            raise OSError("the disk may be full")
        file.seek(at + brace)
        file.write(b',\n"gpudash": ' + msgspec.json.encode(profiled) + b"\n}\n")


def _is_active() -> bool:
    """Return whether somebody's profiler is on. Nothing public tells."""
    private: Any = torch.autograd
    return bool(autograd._is_profiler_enabled or private._profiler_enabled())  # noqa: SLF001  # nothing public tells


def _is_warming_up() -> bool:
    """Return whether one is about to be, by its schedule: what comes between would crash it."""
    return any(one.entered and one.kineto_results is None for one in _prepared)


_prepared: WeakSet[autograd.profile] = WeakSet()
"""All profiles of this process that were ever made ready: torch keeps no list."""


def _note_prepared() -> None:
    prepare: Any = autograd.profile._prepare_trace  # noqa: SLF001  # nothing public tells

    @wraps(prepare)
    def noting(profile: autograd.profile) -> Any:
        _prepared.add(profile)
        return prepare(profile)

    autograd.profile._prepare_trace = noting  # type: ignore[method-assign]  # noqa: SLF001  # how any profiler begins


_note_prepared()


def _trace_alone() -> Any:
    """Have no events made for Python, which nobody reads here; None where torch always does."""
    private: Any = torch._C  # noqa: SLF001  # where torch keeps the option
    try:
        return private._profiler._ExperimentalConfig(trace_only=True)  # noqa: SLF001  # as above
    except TypeError:  # of an older torch
        return None


def pageable_copies(path: Path) -> list[int] | None:
    """Return the bytes of each copy to the device from memory that is not page-locked.

    None where the trace holds no event of a GPU.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if all(text.rfind(one) < 0 for one in OF_DEVICE):  # they stand near the end
            return None
        return [int(found[1]) for at in _places(text) if (found := BYTES.match(text, at))]


def _places(text: mmap.mmap) -> Iterator[int]:
    at = text.find(PAGEABLE)
    while at >= 0:
        yield at
        at = text.find(PAGEABLE, at + 1)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
