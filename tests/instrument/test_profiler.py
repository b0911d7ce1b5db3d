"""Steps under torch.profiler: the trace is complete, and the training is not changed."""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import profiler as autograd

from gpudash.instrument import profiler as module
from gpudash.instrument.profiler import NoProfile, Profiler, add_record, pageable_copies
from gpudash.protocol.inspections import Pinning, Profiled
from tests.warm import python
from tests.workloads.trainings import CPU

pytestmark = pytest.mark.usefixtures("known_peak")
PINNING = Pinning(pin_ms=1, thread_pin_ms=1, copy_ms=1)


def toy() -> Callable[[], Tensor]:
    """Return a step of a training with random batches; it returns the sum of its weights."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step() -> Tensor:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        return torch.cat([one.detach().flatten() for one in model.parameters()])

    return step


def begun(path: Path, steps: int = 100, device: torch.device = CPU, first: int = 1) -> Profiler:
    profiler = Profiler(device, steps, path)
    profiler.begin(first)
    return profiler


def profiled(path: Path, steps: int = 3, step: Callable[[], object] | None = None) -> Profiled:
    step = step or toy()
    profiler = begun(path, steps, first=7)
    is_over = False
    while not is_over:
        step()
        is_over = profiler.step()
    return profiler.end("fp32")


def is_off() -> bool:
    return not (autograd._is_profiler_enabled or torch.autograd._profiler_enabled())


def nothing_is_left(folder: Path) -> bool:
    return is_off() and not list(folder.iterdir())


def step_names(path: Path) -> list[str]:
    events = json.loads(path.read_text())["traceEvents"]
    return [one["name"] for one in events if one.get("name", "").startswith("ProfilerStep#")]


def test_a_trace_has_each_step_by_number_and_our_record(tmp_path):
    path = tmp_path / "trace.json"
    found = profiled(path)
    assert step_names(path) == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]
    assert msgspec.convert(json.loads(path.read_text())["gpudash"], Profiled) == found
    assert (found.first_step, found.steps, found.precision) == (7, 3, "fp32")
    assert found.path == str(path)
    assert found.steps_ms > 0
    assert found.took_ms > 0
    assert found.peak.matmul_tflops == {"fp32": 0.1}


def test_many_profiles_of_a_process_are_all_whole(tmp_path):
    step, counts = toy(), set()
    step()
    for number in range(6):
        path = tmp_path / f"{number}.json"
        profiled(path, step=step)
        events = json.loads(path.read_text())["traceEvents"]
        counts.add(sum(one.get("cat") == "cpu_op" for one in events))
        assert len(step_names(path)) == 3
    assert len(counts) == 1


def test_after_a_profile_everything_is_off_and_no_file_is_left(tmp_path):
    starts = [getattr(autograd.profile, name) for name in module.STARTS]
    environment = dict(os.environ)
    profiled(tmp_path / "trace.json")
    assert is_off()
    assert [getattr(autograd.profile, name) for name in module.STARTS] == starts
    assert dict(os.environ) == environment
    assert list(tmp_path.iterdir()) == [tmp_path / "trace.json"]


def test_the_device_is_measured_while_the_trace_is_written(tmp_path, monkeypatch):
    did = []
    export = autograd.profile.export_chrome_trace
    monkeypatch.setattr(
        module, "begin_measuring", lambda *_: did.append("begins") or (lambda: did.append("reads"))
    )
    monkeypatch.setattr(
        autograd.profile,
        "export_chrome_trace",
        lambda *arguments: did.append("writes") or export(*arguments),
    )
    profiled(tmp_path / "trace.json")
    assert did == ["begins", "writes", "reads"]


def as_torch_writes(category, name="a", **args):
    """An event as torch lays it out."""
    values = ",".join(f'"{key}": {value}' for key, value in args.items())
    event = f'"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": 7,'
    return f'{{\n {event}\n "ts": 1.5, "dur": 2,\n "args": {{\n {values}\n }}\n }}'


PAGEABLE = "Memcpy HtoD (Pageable -> Device)"


@pytest.mark.parametrize(
    ("events", "copies"),
    [
        ([as_torch_writes("cpu_op")], None),  # no device was traced
        ([as_torch_writes("user_annotation", "kernel")] * 2, None),  # nor by such a name
        ([as_torch_writes("kernel"), as_torch_writes("user_annotation", "kernel")], []),
        ([as_torch_writes("cpu_op"), as_torch_writes("kernel")], []),
        ([as_torch_writes("gpu_memset", "Memset (Device)", bytes=4)], []),
        (
            [
                as_torch_writes("kernel"),
                as_torch_writes("gpu_memcpy", PAGEABLE, stream=7, bytes=24),
                as_torch_writes("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", bytes=8),
                as_torch_writes("gpu_memcpy", PAGEABLE, bytes=42),
                as_torch_writes("gpu_memcpy", PAGEABLE),
                as_torch_writes("cpu_op"),
            ],
            [24, 42],
        ),
    ],
)
def test_a_trace_shows_copies_to_the_device_from_pageable_memory(tmp_path, events, copies):
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [\n{",".join(events)}\n]}}')
    assert pageable_copies(path) == copies


@pytest.mark.parametrize("is_on", [False, True])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_profile_that_fails_to_begin_leaves_nothing(tmp_path, monkeypatch, error, is_on):
    looks = []
    monkeypatch.setattr(module.SyncWindow, "start", lambda _self: looks.append("on"))
    monkeypatch.setattr(module.SyncWindow, "stop", lambda _self: looks.append("off"))
    enter = autograd.profile.__enter__

    def ended(profile: autograd.profile) -> None:
        if is_on:
            enter(profile)
        raise error

    monkeypatch.setattr(autograd.profile, "__enter__", ended)
    with pytest.raises((NoProfile, KeyboardInterrupt)):
        Profiler(CPU, 3, tmp_path / "trace.json").begin(1)
    assert looks == ["on", "off"]
    assert nothing_is_left(tmp_path)


def test_a_profile_changes_no_bit_of_the_training(tmp_path):
    def weights(*, with_profile: bool) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        step = toy()
        step()
        if with_profile:
            profiled(tmp_path / "trace.json", step=step)
        else:
            for _ in range(3):
                step()
        return step(), torch.get_rng_state()

    for one, other in zip(weights(with_profile=True), weights(with_profile=False), strict=True):
        assert torch.equal(one, other)


def test_a_profile_prints_nothing(tmp_path):
    """It needs its own process, as Kineto reads its log level only at the first profile."""
    first = "from pathlib import Path; from tests.instrument.test_profiler import profiled\n"
    done = python("-c", f"{first}profiled(Path({str(tmp_path / 'trace.json')!r}))")
    assert (done.stdout, done.stderr) == ("", "")


def test_without_a_whole_step_there_is_no_profile(tmp_path):
    profiler = begun(tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())
    with pytest.raises(NoProfile, match="no step was over"):
        profiler.end()
    assert nothing_is_left(tmp_path)
    profiler = begun(tmp_path / "trace.json")
    for _ in range(2):
        profiler.abandon()
        assert nothing_is_left(tmp_path)


@pytest.mark.parametrize("begin", ["start", "prepare_trace"])
def test_no_profile_begins_while_another_profiler_is_on_or_warms_up(tmp_path, begin):
    other = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    getattr(other, begin)()
    try:
        with pytest.raises(NoProfile, match="another profiler"):
            profiled(tmp_path / "trace.json")
    finally:
        if begin == "prepare_trace":
            other.start_trace()
        toy()()
        other.stop_trace()
    assert len(other.events()) > 0
    profiled(tmp_path / "trace.json")  # once it has ended


def test_a_profile_ends_early_if_another_profiler_begins(tmp_path):
    profiler = begun(tmp_path / "trace.json")
    toy()()
    assert not profiler.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as other:
        toy()()
        assert profiler.step()
    assert len(other.events()) > 0
    assert profiler.end().steps == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "trace.json"]


def test_a_forked_child_traces_nothing_and_its_parent_goes_on(tmp_path):
    path, step = tmp_path / "trace.json", toy()
    profiler = begun(path, 2)
    step()
    assert not profiler.step()
    child = os.fork()
    if not child:
        torch.zeros(1)
        events = torch.autograd._disable_profiler().events()
        os._exit(any(one.name() == "aten::zeros" for one in events))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    step()
    assert profiler.step()
    assert profiler.end().steps == 2
    assert step_names(path) == ["ProfilerStep#1", "ProfilerStep#2"]


@pytest.mark.parametrize("limit_s", [-1.0, None])
def test_a_profile_that_takes_too_long_or_has_its_last_step_ends_early(
    tmp_path, monkeypatch, limit_s
):
    path = tmp_path / "trace.json"
    if limit_s is not None:
        monkeypatch.setattr(module, "PROFILE_LIMIT_S", limit_s)
    profiler = begun(path)
    assert profiler.step(is_last=limit_s is None)
    assert profiler.end().steps == 1
    assert step_names(path) == ["ProfilerStep#1"]


def test_a_missing_folder_is_named(tmp_path):
    path = tmp_path / "none" / "trace.json"
    with pytest.raises(NoProfile, match=f"cannot write {path}: No such file"):
        profiled(path)
    assert is_off()


@pytest.fixture
def small_disk():
    """Let no file grow beyond a few KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_on_a_full_disk_the_former_trace_stays(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(NoProfile, match="the trace could not be written"):
        profiled(path)
    assert [one.name for one in tmp_path.iterdir()] == ["trace.json"]
    assert path.read_text() == "old"
    assert is_off()


def test_an_incomplete_trace_is_no_profile(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"name": "aten::a')
    with pytest.raises(OSError, match="full"):
        add_record(path, Profiled(at_s=0, path="", first_step=1, steps=1, steps_ms=1, took_ms=1))


@pytest.mark.parametrize(
    ("is_captured", "why"), [(False, "another GPU profiler"), (True, "captured")]
)
def test_beside_a_gpu_profiler_or_a_graphs_capture_nothing_is_traced(
    tmp_path, monkeypatch, is_captured, why
):
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_captured)
    activities = {*torch.profiler.ProfilerActivity.__members__.values()}
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: activities)
    with pytest.raises(NoProfile, match=why):
        begun(tmp_path / "trace.json", device=torch.device("cuda"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_trace_on_a_gpu_holds_its_kernels(tmp_path):
    cuda, path = torch.device("cuda"), tmp_path / "trace.json"
    profiler = begun(path, 2, cuda)
    is_over = False
    while not is_over:
        torch.ones(8, device=cuda).sum()
        is_over = profiler.step()
    profiler.end()
    events = json.loads(path.read_text())["traceEvents"]
    assert sum(one.get("cat") == "kernel" for one in events) >= 4


@pytest.mark.parametrize(("mib", "is_measured"), [(0.5, False), (1, True)])
def test_pinning_is_measured_if_much_is_copied_from_pageable_memory(
    tmp_path, monkeypatch, mib, is_measured
):
    def export(_, path):
        copy = '"cat": "gpu_memcpy", "name": "Memcpy HtoD (%s -> Device)", "args": {"bytes": %d}'
        copies = [copy % ("Pageable", mib * 2**20), copy % ("Pinned", 1 << 30)] * 3
        Path(path).write_text("[{" + "}, {".join(['"cat": "kernel"', *copies]) + "}]\n}")

    monkeypatch.setattr(autograd.profile, "export_chrome_trace", export)
    did, search = [], pageable_copies
    monkeypatch.setattr(module, "pageable_copies", lambda path: did.append("found") or search(path))
    monkeypatch.setattr(module, "begin_measuring", lambda *_: lambda: did.append("waited"))
    asked = []
    monkeypatch.setattr(module, "measure_pinning", lambda *of: asked.append(of) or PINNING)
    profiler = begun(tmp_path / "trace.json", 3)
    profiler._is_cuda = True  # from here on
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    while not profiler.step():
        pass
    assert profiler.end("fp32").pinning == (PINNING if is_measured else None)
    assert asked == ([(CPU, [1 << 20] * 3, 3)] if is_measured else [])
    assert did == ["found", "waited"]  # the GPU works on its measurement meanwhile
