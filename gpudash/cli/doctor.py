"""`gpudash doctor`: report what this machine can measure, and why it cannot measure the rest.

Every check tries the real thing; the GPU's are the readings of the dashboard. A machine without a
GPU is fine: the report says what is missing, and nothing fails.
"""

import argparse
import ctypes
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import groupby
from typing import Any

import msgspec
import psutil

from gpudash import rendezvous
from gpudash.cli.stdout import say_found
from gpudash.errors import UsageError
from gpudash.format import plain
from gpudash.run import child, runs
from gpudash.run.user_command import look_in
from gpudash.telemetry import gpm
from gpudash.telemetry.gpu import FAST, SLOW, Gpu, list_gpus, open_gpu
from gpudash.telemetry.nvml import GpuUnavailable, NotMeasured
from gpudash.telemetry.procfs import MIB
from workloads.cgroup import cores_quota, memory_limit_bytes
from workloads.needs import install_line, missing
from workloads.standard_levers import usable_cores

GIB = 1024**3
PR_GET_PDEATHSIG = 2
TORCH_TIMEOUT_S = 60.0
REPEATS = 5
SHARED = "/dev/shm"  # noqa: S108  # loader workers hand batches over there
LEAST_SHARED_MIB = 1024
"""A container has 64 by default, which a few batches fill."""
MORE_SHARED = (
    ": loader workers hand batches over there, and die of a bus error once it is full; "
    "docker run --shm-size=8g, or an emptyDir of medium Memory mounted there, makes it larger"
)
MARKS = {True: "ok", False: "no", None: "–"}

ASK_TORCH = """
import json, torch
from gpudash.instrument.device import describe_device
from gpudash.script.overhead import instruments_us
devices = []
if torch.cuda.is_available():
    for index in range(torch.cuda.device_count()):
        found = describe_device(torch.device("cuda", index))
        devices.append([found.name, found.uuid])
found = {"version": torch.__version__, "cuda": torch.version.cuda, "devices": devices}
try:
    found["instruments_us"] = instruments_us(torch.device("cuda:0" if devices else "cpu"))
except RuntimeError as error:
    found["instruments_us"], found["why"] = None, str(error).splitlines()[0]
print(json.dumps(found))
"""

READINGS = {name: read for name, read in (FAST | SLOW).items() if read is not Gpu.others}
"""All but that of a training's other processes: here is no training."""
"""Name in the report → the dashboard's reading."""


def main(arguments: argparse.Namespace) -> None:
    checks = (*examine(), _configuration(arguments.configuration))
    say_found(Report(checks), report(checks), as_json=arguments.json, indent=2)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check of the report."""

    name: str
    ok: bool | None
    """None if not applicable, because something in another check is missing."""
    detail: str
    """The finding, or the reason of the failure."""


class Report(msgspec.Struct, frozen=True):
    """What `gpudash doctor --json` prints."""

    checks: tuple[Check, ...]
    schema_version: int = 1


class Torch(msgspec.Struct, frozen=True):
    """Torch's versions, devices and the instruments' cost."""

    version: str
    cuda: str | None
    devices: tuple[tuple[str, str], ...]
    """Name and UUID of each."""
    instruments_us: tuple[float, float] | None
    """CPU time of the hooks and reports in a script's step: on average, and with phases."""
    why: str = ""
    """… or why that could not be measured."""


def examine() -> tuple[Check, ...]:
    """Take a few seconds, mostly to import torch in a child process."""
    return (
        Check(
            name="python", ok=True, detail=f"{platform.python_version()} on {platform.platform()}"
        ),
        _machine(),
        _shared_memory(),
        *_torch(),
        *_gpu(),
        _terminal(),
        _processes(),
        _memory(),
        _runs(),
    )


def report(checks: tuple[Check, ...]) -> str:
    """Tell in one line what is not measured for one reason."""
    by_reason = groupby(checks, key=lambda one: one.detail if one.ok is None else one.name)
    named = [
        (" to ".join(dict.fromkeys((same[0].name, same[-1].name))), same[0])
        for same in ([*each] for _, each in by_reason)
    ]
    width = max(len(name) for name, _ in named)
    return "\n".join(f"{MARKS[one.ok]:<2}  {name:<{width}}  {one.detail}" for name, one in named)


def _configuration(found: Any) -> Check:
    paths = ", ".join(str(path) for path, there in found.files if there)
    return Check(
        name="configuration",
        ok=not found.problem if paths or found.problem else None,
        detail=plain(found.problem or paths or "no file; gpudash info says where one could be"),
    )


def _machine() -> Check:
    quota, limit_bytes = cores_quota(), memory_limit_bytes()
    why = "" if quota is None else f" (quota of the cgroup: {quota:.4g})"
    cores = f"{os.cpu_count()} cores, {usable_cores()} of them usable here{why}"
    held_bytes = psutil.virtual_memory().total
    memory = f"{held_bytes / GIB:.1f} GiB of memory"
    if limit_bytes is not None and limit_bytes < held_bytes:
        memory += f", {limit_bytes / GIB:.4g} of them for this cgroup"
    return Check(name="machine", ok=True, detail=f"{cores}; {memory}")


def _shared_memory() -> Check:
    name = "shared memory"
    try:
        found = os.statvfs(SHARED)
    except OSError as error:
        detail = f"{SHARED}: {error.strerror}; loader workers need it"
        return Check(name=name, ok=False, detail=detail)
    size_mib, free_mib = (
        blocks * found.f_frsize / MIB for blocks in (found.f_blocks, found.f_bavail)
    )
    detail = f"{SHARED} has {size_mib:,.0f} MiB, {free_mib:,.0f} of them free"
    is_small = size_mib < LEAST_SHARED_MIB
    return Check(name=name, ok=not is_small, detail=detail + MORE_SHARED * is_small)


def _runs() -> Check:
    name = "runs"
    try:
        runs.check_folder()
    except UsageError as error:
        return Check(name=name, ok=False, detail=str(error))
    mine = len(runs.living())
    folders = " or ".join(map(str, rendezvous.folders()))
    others = rendezvous.of_others()
    beside = f", {others} of other users" if others else ""
    detail = f"{mine} of yours live in {folders}{beside}; seen from elsewhere by {look_in()}"
    return Check(name=name, ok=True, detail=plain(detail))


# ── torch ───────────────────────────────────────────────────────────────────────────────


def _torch() -> Iterator[Check]:
    """Import torch in a child: it may be slow, broken or missing."""
    if missing(("torch",)):
        reason = f"not in gpudash's own environment; {install_line()} is for its workloads"
        yield Check(name="torch", ok=None, detail=f"{reason}, a script has its own")
        return
    try:
        done = child.run("-c", ASK_TORCH, timeout_s=TORCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        reason = f"its import took longer than {TORCH_TIMEOUT_S:.0f} s"
        yield Check(name="torch", ok=False, detail=reason)
        return
    if done.returncode != 0:
        last_line = done.stderr.strip().splitlines()[-1:]
        reason = last_line[0] if last_line else f"its import ended with code {done.returncode}"
        yield Check(name="torch", ok=False, detail=reason)
        return
    torch = msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Torch)
    build = f"built for CUDA {torch.cuda}" if torch.cuda else "built without CUDA"
    yield Check(name="torch", ok=True, detail=f"{torch.version}, {build}")
    for name, uuid in torch.devices:
        yield Check(name="torch device", ok=True, detail=f"{name}, UUID {uuid}")
    if not torch.devices:
        yield Check(
            name="torch device", ok=False, detail="no CUDA device: training runs on the CPU"
        )
    if torch.instruments_us is None:
        yield Check(name="own cost", ok=False, detail=torch.why)
        return
    average_us, phases_us = torch.instruments_us
    detail = f"{average_us:.1f} µs a step, {phases_us:.1f} µs where its phases are measured"
    yield Check(name="own cost", ok=True, detail=detail)


# ── the GPU ─────────────────────────────────────────────────────────────────────────────


def _gpu() -> Iterator[Check]:
    try:
        driver, gpus = list_gpus()
        if not gpus:
            raise GpuUnavailable("no NVIDIA GPU is present")  # noqa: TRY301  # one way to be without
    except GpuUnavailable as error:
        yield Check(name="NVML", ok=False, detail=str(error))
        for name in READINGS:
            yield Check(name=name, ok=None, detail="no GPU to read")
        return
    yield Check(name="NVML", ok=True, detail=f"driver {driver}")
    for each in gpus:
        yield Check(name=f"GPU {each.index}", ok=True, detail=f"{each.name}, {each.uuid}")
    with ThreadPoolExecutor(len(gpus)) as pool:
        found = list(pool.map(_timed, (each.uuid for each in gpus)))
    for name in READINGS:
        of_each = {
            f"GPU {each.index}": costs[name] for each, costs in zip(gpus, found, strict=True)
        }
        yield _reading(name, of_each)


def _timed(uuid: str) -> dict[str, float | str]:
    """Return the median cost of each reading in µs, or why it cannot be taken."""
    try:
        with closing(open_gpu(uuid)) as gpu:
            return {name: _cost_us(gpu, name) for name in READINGS}
    except GpuUnavailable as error:
        return dict.fromkeys(READINGS, str(error))


def _reading(name: str, of_each: Mapping[str, float | str]) -> Check:
    costs_us = [one for one in of_each.values() if isinstance(one, float)]
    why_not = {one for one in of_each.values() if isinstance(one, str)}
    are_alike = len(of_each) == 1 or (not costs_us and len(why_not) == 1)
    told = []
    if costs_us:
        least, most = f"{min(costs_us):.1f}", f"{max(costs_us):.1f}"
        cost = f"{least} to {most}" if least != most else least
        told.append(
            f"{cost} µs a call{f' on {len(costs_us)} of {len(of_each)} GPUs' * (not are_alike)}"
        )
    for reason in sorted(why_not):
        which = ", ".join(gpu for gpu, one in of_each.items() if one == reason)
        told.append(reason if are_alike else f"{which}: {reason}")
    return Check(name=name, ok=not why_not, detail="; ".join(told))


def _cost_us(gpu: Gpu, name: str) -> float | str:
    costs_us = []
    value: object = None
    try:
        for _ in range(REPEATS):
            begun_ns = time.perf_counter_ns()
            value = READINGS[name](gpu)
            costs_us.append((time.perf_counter_ns() - begun_ns) / 1000)
            time.sleep(gpm.SHORTEST_S if name in SLOW else 0)  # a rate needs time between
    except (NotMeasured, GpuUnavailable) as error:
        return str(error)
    return statistics.median(costs_us) if value != {} else "the NVIDIA driver gives no value"


# ── around it ───────────────────────────────────────────────────────────────────────────


def _terminal() -> Check:
    term = os.environ.get("TERM", "")
    if not sys.stdout.isatty():
        return Check(name="terminal", ok=None, detail="the output is not a terminal")
    columns, rows = shutil.get_terminal_size()
    usable = term not in {"", "dumb"}
    detail = f"{term or 'TERM is not set'}, {_colours(term)}, {columns}×{rows}"
    return Check(name="terminal", ok=usable, detail=detail)


def _colours(term: str) -> str:
    if os.environ.get("NO_COLOR"):
        return "greys alone (NO_COLOR is set)"
    if os.environ.get("COLORTERM", "") in {"truecolor", "24bit"}:
        return "16 million colours"
    return "256 colours" if "256color" in term else "16 colours"


def _processes() -> Check:
    """Return whether a worker can be made to end with gpudash, even while C code is running."""
    name = "ending of workers"
    if not sys.platform.startswith("linux"):
        return Check(name=name, ok=False, detail=f"no death signal on {platform.system()}")
    signal = ctypes.c_int()
    code = ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(signal), 0, 0, 0)
    if code != 0:
        return Check(name=name, ok=False, detail="prctl is refused here: no death signal")
    return Check(name=name, ok=True, detail="process groups and the death signal work")


def _memory() -> Check:
    rss_mib = psutil.Process().memory_info().rss / MIB
    detail = f"{rss_mib:.0f} MiB without the dashboard and the training"
    return Check(name="own memory", ok=True, detail=detail)
