"""What tests of several folders share."""

import atexit
import fcntl
import gc
import multiprocessing.synchronize
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path

import pytest
from hypothesis import settings

from tests.having import Having

os.environ["OMP_NUM_THREADS"] = "1"
"""Here and in every process started, before torch is imported: tiny tensors gain nothing from
more threads, and where tests share the cores two threads wait for each other most of the time."""

os.environ["XDG_STATE_HOME"] = "/dev/null/nowhere"
"""Nothing is remembered from one dashboard to the next, nor of this machine's user."""

os.environ["MPLCONFIGDIR"] = f"{tempfile.gettempdir()}/matplotlib-of-gpudash-tests-{os.getuid()}"
"""Where matplotlib keeps which fonts there are: each process would look for them anew."""

os.environ["XDG_CONFIG_HOME"] = "/dev/null/nowhere"
for _name in [name for name in os.environ if name.startswith(("GPUDASH_", "_GPUDASH_"))]:
    if _name != "GPUDASH_WRITE_SCREENS":  # the tests' own
        del os.environ[_name]
"""No test sees how this machine's user has configured gpudash."""

_cores, os.sched_getaffinity = os.sched_getaffinity, lambda _pid: {0, 1}
import workloads.standard_levers  # noqa: E402, F401  # their defaults are those of two cores

os.sched_getaffinity = _cores

import gpudash.run.attempts  # noqa: E402

_project_file, ROOT = gpudash.run.attempts.project_file, Path(__file__).parents[1]


def _project_elsewhere() -> Path | None:
    path = _project_file()
    return None if path is None or path.is_relative_to(ROOT) else path


setattr(gpudash.run.attempts, "project_file", _project_elsewhere)  # noqa: B010
"""What tests compare is kept in no repository but their own."""

SHM = Path("/dev/shm")
WITHOUT_SHM = "there is no /dev/shm, over which loader workers hand their batches"


def pytest_report_header() -> str:
    return "" if SHM.is_dir() else f"{WITHOUT_SHM}: tests that need some are skipped"


if not SHM.is_dir():
    multiprocessing.synchronize.SemLock.__init__ = lambda *_, **__: pytest.skip(WITHOUT_SHM)
    """What all of them need first, and what fails without."""


@pytest.fixture(scope="session")
def shared_memory() -> None:
    """For tests whose loader workers are those of another process."""
    if not SHM.is_dir():
        pytest.skip(WITHOUT_SHM)


SHORT, LONG = 50, 2_000
settings.register_profile("short", max_examples=SHORT, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=LONG, deadline=None)
settings.load_profile("short")


if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # behind a shell that goes on
    signal.signal(signal.SIGINT, signal.default_int_handler)
"""Programs that tests start inherit what is ignored, and some are ended by these signals."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is imported stays: no look for garbage goes through it, of which tests ask for many.

    Nor is it looked for as often as usual: that took a tenth of the time of the screen's tests.
    """
    gc.disable()
    with _first_alone(session.config):
        yield
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@contextmanager
def _first_alone(config: pytest.Config) -> Iterator[None]:
    """The first of pytest's workers compiles the tests, and the others read what it has written.

    Otherwise each of them compiles all, for all begin at the same time.
    """
    asked = Path(config.args[0].partition("::")[0])
    if "PYTEST_XDIST_WORKER" not in os.environ or not asked.exists():
        yield
        return
    file = os.open(asked, os.O_RDONLY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Loaders' tests come first: a fork takes longer the more its process has come to hold."""
    items.sort(key=lambda item: "loader" not in item.path.stem)


# not before: pytest collects garbage at its end too; and not never: libraries complain of leaks
atexit.register(gc.unfreeze)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Of a record that is compared with some fields show those in which it differs."""
    if not isinstance(right, Having) or op != "==":
        return None
    names = right.differing(left)
    return ["the record differs", *(f"{n}: {names[n]!r}, not {right.fields[n]!r}" for n in names)]


def slow_examples(count: int) -> settings:
    """Return the settings of a test with so many examples, in a long run so many times more."""
    return settings(max_examples=count * settings().max_examples // SHORT)


@pytest.fixture(autouse=True)
def _own_color() -> Iterator[None]:
    """`--color` is for all that follows in a process; in the tests, for one of them."""
    before = os.environ.pop("NO_COLOR", None)
    yield
    os.environ.pop("NO_COLOR", None)
    if before is not None:
        os.environ["NO_COLOR"] = before


@pytest.fixture
def called_with_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `main` called in this process starts the worker's double."""
    from gpudash.run.session import Session
    from tests import worker_double

    with_double = partialmethod(Session.__init__, start_source=worker_double.start_double)
    monkeypatch.setattr(Session, "__init__", with_double)
    monkeypatch.setenv("PYTHONPATH", worker_double.environment()["PYTHONPATH"])


@pytest.fixture
def known_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile does not measure the device's peak, which takes a CPU up to two seconds."""
    from gpudash.instrument import profiler
    from gpudash.protocol.inspections import Peak

    def known(_device: object, precisions: Iterable[str]) -> Callable[[], Peak]:
        return lambda: Peak(matmul_tflops=dict.fromkeys(precisions, 0.1), memory_gb_s=10.0)

    monkeypatch.setattr(profiler, "begin_measuring", known)


@pytest.fixture
def own_catalogue() -> Iterator[None]:
    """What a test adds to the catalogue of workloads goes with it."""
    from workloads import CATALOGUE

    before = dict(CATALOGUE)
    yield
    CATALOGUE.clear()
    CATALOGUE.update(before)


@pytest.fixture(scope="session")
def with_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment, to be activated, whose Python has torch from its start: see tests/warm.py."""
    from tests import warm

    place = tmp_path_factory.mktemp("with_torch")
    (place / "bin").mkdir()
    warm.program(place / "bin" / "python")
    return place


@pytest.fixture
def short_path() -> Iterator[Path]:
    """An empty directory. Its name, unlike tmp_path's, leaves room for a socket's in 107 bytes."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
