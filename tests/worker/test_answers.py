"""What a workload answers at its end, and where memory runs out."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from gpudash.instrument import reporter
from gpudash.instrument.device import DeviceMemory
from gpudash.protocol.commands import Change, Plan
from gpudash.protocol.envelope import Event
from gpudash.protocol.training import Progress, Refused
from gpudash.worker import workload_training
from gpudash.worker.__main__ import describe
from tests.lives import turns
from tests.worker.in_process import ENTRY, FITS_3, SETTINGS, Run, stop_when


def stop_after(kind: str, count: int) -> Callable[[Run, Event], None]:
    return stop_when(lambda run, event: isinstance(event, Progress) and len(run.of(kind)) == count)


def test_a_command_that_comes_too_late_is_answered_by_finished() -> None:
    def react(run: Run, event: Event) -> None:
        if isinstance(event, Progress) and event.total_steps == 5:
            run.send(Change(id=1, settings={"batch_size": "3"}))

    plan = Plan(workload="fake", settings={}, steps=5)
    run = Run(ENTRY, react, plan=plan).until_stopped()
    assert set(run.of("finished")[0].answers) == {1}
    assert not run.of("changed")


def test_a_rollback_is_refused_then_changed_and_answers_no_command() -> None:
    run = Run(FITS_3, stop_after("changed", 2))
    run.until_stopped(Change(id=1, settings={"batch_size": "4"}))
    events = [one for one in turns(run.events) if one[0] in ("changed", "Refused")]
    assert [(name, event.answers) for name, event in events] == [
        ("changed", (1,)),
        ("Refused", ()),
        ("changed", ()),
    ]
    assert events[1][1].kind == "out_of_memory"
    assert [event.requested for event in run.of("changed")] == [{"batch_size": "4"}, {}]


def test_a_refused_batch_size_says_which_would_have_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def peak(run: Run) -> DeviceMemory:
        mib = 1000.0 + 100.0 * int(run.training.settings["batch_size"])
        return DeviceMemory(peak_mib=mib, reserved_mib=mib)

    sizes = ["3", "4"]  # at 4 memory runs out

    def react(run: Run, event: Event) -> None:
        if isinstance(event, Progress) and "mem_peak_mib" in event.values and sizes:
            seen = Counter(step.segment for step in run.steps)
            if seen[2 - len(sizes)] > 100:
                run.send(Change(id=len(sizes), settings={"batch_size": sizes.pop(0)}))
        elif run.of(Refused):
            run.stop()

    monkeypatch.setattr(reporter, "STATE_EVERY_S", 0.0)
    monkeypatch.setattr(workload_training, "capacity_mib", lambda _device: 1395.0)
    run = Run(FITS_3, react)
    run._loop.training.reports._read_memory = lambda: peak(run)
    (refused,) = run.until_stopped().of(Refused)
    assert refused.reason == (
        "out of memory with batch_size=4: went back to batch_size=3; "
        "batch 3 would fit, 4 would not (from the peaks at 2 and 3)"
    )


def test_a_final_out_of_memory_says_which_batch_would_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload_training, "capacity_mib", lambda _device: 1000.0 + 100.0 * 12)
    run = Run(FITS_3, settings={**SETTINGS, "batch_size": "4"})
    for size, mib in ((2, 1200.0), (3, 1300.0)):
        settings = run._loop.training.settings | {"batch_size": str(size)}
        run._loop.training.needs.note(settings, DeviceMemory(reserved_mib=mib, peak_mib=mib))
    with pytest.raises(torch.OutOfMemoryError) as raised:
        run.until_stopped()
    failed = describe(raised.value, "fake", {"batch_size": "4"}).failure
    assert failed.kind == "out_of_memory"
    assert failed.sentence == (
        "out of memory with batch_size=4; "
        "batch 12 would fit, 14 would not (from the peaks at 2 and 3)"
    )
