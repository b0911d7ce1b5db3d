"""Trainings as snapshots, and what is answered about them."""

import msgspec

from gpudash.diagnosis.answer import find
from gpudash.diagnosis.headline import headline
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.session import ComparisonShown, Straggler
from gpudash.protocol.training import Device
from gpudash.snapshot import Marker, RecentMeans, Series, Snapshot
from gpudash.trace.summary import Summary
from tests.tui.fake_engine import PHASES, referred, with_recent
from workloads import CATALOGUE
from workloads.levers import resolve

changed = msgspec.structs.replace
GPU = Device(kind="cuda", name="NVIDIA H200")
CPU = Device(kind="cpu", name="AMD EPYC")


def settings(workload="encdec", **changes):
    return resolve(CATALOGUE[workload].levers, {"num_workers": "4", **changes})


def measured(workload="encdec", *, device=GPU, chosen=None, core_wait_pct=None, **ms):
    """A training of 10 ms a step: the GPU works for 6 of it, the host for 3, unless `ms` differ."""
    times = {"step_ms": 10.0, "data_ms": 0.0, "host_ms": 3.0, "device_ms": 6.0, **ms}
    values = {"core_wait_pct": core_wait_pct, **times}
    values = {name: value for name, value in values.items() if value is not None}
    return referred(
        Snapshot(
            state="training",
            workload=workload,
            device=device,
            settings=settings(workload, **(chosen or {})),
            total_steps=5000,
            steps_since_break=5000,
            step_ms_p50=times["step_ms"],
            phases=PHASES,
            host=HostReading(at_s=0.0, values={"cpu_pct": 130.0}),
            recent=RecentMeans(steps=max(2000 / times["step_ms"], 5), values=values),
        )
    )


def gpu_step(**changes):
    """One stream, never idle."""
    return measured(
        device_ms=9.9, prepare_ms=3.4, forward_ms=2.0, backward_ms=4.3, optimizer_ms=0.2, **changes
    )


def two_streams():
    """The mock-up's: encdec at batch 32 on an H200."""
    return measured(
        chosen={"pipelined": "on"},
        step_ms=6.83,
        host_ms=2.61,
        device_ms=6.83,
        overlap_ms=5.58,
        prepare_ms=5.58,
        forward_ms=2.72,
        backward_ms=3.95,
        optimizer_ms=0.16,
    )


def cpu_step():
    return measured(
        device=CPU,
        chosen={"precision": "fp32"},
        step_ms=320.0,
        host_ms=315.0,
        data_ms=5.0,
        device_ms=313.0,
        prepare_ms=112.0,
        forward_ms=47.0,
        backward_ms=149.0,
        optimizer_ms=5.0,
    )


def launching():
    """encdec at batch 8 with bf16, resident: the host was busy for the whole step."""
    return measured(
        chosen={"data": "resident"}, step_ms=3.14, host_ms=3.14, device_ms=3.1, forward_ms=1.2
    )


def answered(snapshot, before=None, cores=8, profile=None):
    """The snapshot with the answer that is found of it; `before` was found before."""
    snapshot = with_recent(referred(snapshot))
    found = find(snapshot, cores, profile)
    return changed(snapshot, answer=found or before)


def ask(snapshot, before=None, cores=8, profile=None):
    """What is said of the training; `before` was said long before."""
    return headline(answered(snapshot, before and before.answer, cores, profile))


def starved(core_wait_pct, data_ms=7.0):
    """A training that waits for data and for cores."""
    return measured(core_wait_pct=core_wait_pct, data_ms=data_ms, host_ms=1.0, device_ms=2.0)


def behind(snapshot=None, **changes):
    values = {"rank": 5, "phase": "backward", "excess_ms": 1.1, "slower_pct": 11.0}
    straggler = Straggler(**{**values, "others_wait_ms": 1.8, **changes})
    return changed(snapshot or measured(device_ms=9.9), straggler=straggler)


def read(snapshot, throttle="none", top_clock_mhz=None, **values):
    """The snapshot with these readings of the GPU; its clock was as high as `top_clock_mhz`."""
    clocks = {"sm_clock_mhz": (top_clock_mhz or values.get("sm_clock_mhz"),)}
    recent = changed(snapshot.recent, values=snapshot.recent.values | values)
    reading = GpuReading(at_s=0.0, index=0, uuid="", name="", values={"throttle": throttle})
    return changed(snapshot, gpu=reading, recent=recent, series=Series(at_s=(0.5,), values=clocks))


def evaluating(share, lasts_s=0.1):
    """For this share of the last half minute the training has evaluated, so long at a time."""
    every_s = lasts_s / share
    asides = tuple(
        Marker(kind="evaluation", at_s=number * every_s, label="evaluation", lasts_s=lasts_s)
        for number in range(round(30.0 / every_s))
    )
    return changed(measured(), asides=asides, elapsed_s=30.0)


def profiled(**values):
    """A step of 10 ms on one stream: the device is at work for 6 ms of it by default."""
    about = {"busy_ms": 6.0, "idle_ms": {"host": 4.0}, "blocked_ms": 0.0, "launches": 500.0}
    return Summary(steps=10, step_ms=10.0, on_device=True, **{**about, "launch_ms": 1.0, **values})


def deepened(snapshot, profile):
    return ask(snapshot, profile=profile)


def compared(**values):
    shown = ComparisonShown(
        lever="precision",
        a="tf32",
        b="bf16",
        pairs=3,
        planned_pairs=40,
        change=None,
        low=None,
        high=None,
        history=(),
        verdict=None,
        failure=None,
    )
    return changed(shown, **values)


def later(snapshot, elapsed_s):
    """The snapshot, and another tick is over."""
    return changed(snapshot, elapsed_s=elapsed_s, recent=changed(snapshot.recent))


def given(answers, *snapshots, every_s=1.0, begin_s=0.0, profile=None):
    """What is said of these snapshots, one after the other."""
    said = []
    for number, one in enumerate(snapshots):
        snapshot = later(one, begin_s + number * every_s)
        answers.look(snapshot, 8, profile)
        said.append(headline(changed(snapshot, answer=answers.newest)))
    return said


def crowding(core_wait_pct, loader_cpu_pct=10.0, cpu_pct=200.0):
    """What is read of the host: the training uses two cores, unless `cpu_pct` differs."""
    values = {"cpu_pct": cpu_pct, "loader_cpu_pct": loader_cpu_pct, "core_wait_pct": core_wait_pct}
    return HostReading(at_s=0.0, values=values)
