"""Every command is answered exactly once by its id, whatever the worker is doing."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpudash.instrument import reporter
from gpudash.instrument.device import DeviceMemory
from gpudash.protocol.commands import AnyCommand, Change, Memory, Pause, Plan, Profile, Resume, Stop
from gpudash.protocol.envelope import Event
from gpudash.protocol.inspections import Profiled
from gpudash.protocol.training import BlocksEnded, Progress, Refused
from gpudash.worker import workload_training
from gpudash.worker.__main__ import describe
from tests.answers import answered_by, answers_in, blocks, check
from tests.lives import turns
from tests.worker.in_process import ENTRY, FITS_3, SETTINGS, Run, stop_when


def profile(number: int, where: str = "trace.json") -> Profile:
    return Profile(id=number, steps=3, path=where)


LONG = blocks(1, 1, {"pipelined": "on"}, {}, min_steps=10**6)
CASES: dict[str, tuple[list[AnyCommand], dict[int, type[Event] | str | None]]] = {
    "changes": (
        [Change(id=1, settings={"batch_size": "3"}), Change(id=2, settings={"batch_size": "0"})],
        {1: "changed", 2: Refused},
    ),
    "a change to what is": ([Change(id=1, settings={"batch_size": "2"})], {1: Refused}),
    "pausing twice": ([Pause(id=1), Pause(id=2)], {1: "paused", 2: "paused"}),
    "going on twice": (
        [Resume(id=1), Pause(id=2), Resume(id=3), Resume(id=4)],
        {1: "resumed", 2: "paused", 3: "resumed", 4: "resumed"},
    ),
    "under pause": (
        [Pause(id=1), Change(id=2, settings={"batch_size": "3"}), Change(id=3, settings={"x": ""})],
        {1: "paused", 2: "changed", 3: Refused},
    ),
    "blocks": ([blocks(1, 1, {"pipelined": "on"}, {})], {1: BlocksEnded}),
    "other blocks of the run": ([LONG, blocks(2, 1)], {1: BlocksEnded, 2: BlocksEnded}),
    "another run": ([LONG, blocks(2, 2, {})], {1: BlocksEnded, 2: BlocksEnded}),
    "a run that has ended": ([LONG, blocks(2, 1), blocks(3, 1, {})], dict.fromkeys((1, 2, 3))),
    "nothing to end": ([blocks(1, 1)], {1: BlocksEnded}),
    "a change in blocks": (
        [LONG, Change(id=2, settings={"batch_size": "3"})],
        {1: BlocksEnded, 2: "changed"},
    ),
    "a refusal in blocks": (
        [LONG, Change(id=2, settings={"batch_size": "0"}), blocks(3, 1)],
        {1: BlocksEnded, 2: Refused, 3: BlocksEnded},
    ),
    "a pause in blocks": (
        [LONG, Pause(id=2), Resume(id=3), Pause(id=4), blocks(5, 1), Resume(id=6)],
        dict.fromkeys(range(1, 7)),
    ),
    "who owns memory, on a CPU": ([Memory(id=1)], {1: Refused}),
    "out of memory": ([Change(id=1, settings={"batch_size": "4"})], {1: "changed"}),
    "out of memory in blocks": ([blocks(1, 1, {"batch_size": "4"}, {})], {1: BlocksEnded}),
    "profiles": ([profile(1), profile(2)], {1: Profiled, 2: Profiled}),
    "a profile in blocks": (
        [LONG, profile(2), blocks(3, 1)],
        {1: BlocksEnded, 2: Refused, 3: BlocksEnded},
    ),
    "a profile under pause": ([Pause(id=1), profile(2)], {1: "paused", 2: Refused}),
    "a profile that cannot be written": ([profile(1, "/none/trace.json")], {1: Refused}),
    "out of memory in a profile": (
        [Change(id=1, settings={"batch_size": "4"}), profile(2)],
        {1: "changed", 2: None},
    ),
    "a stop in blocks": ([LONG, Pause(id=2), Stop(id=3)], dict.fromkeys((1, 2, 3))),
    "stopping twice": ([Stop(id=1), Stop(id=2), Pause(id=3)], dict.fromkeys((1, 2, 3))),
}


def stop_after(kind: str, count: int) -> Callable[[Run, Event], None]:
    return stop_when(lambda run, event: isinstance(event, Progress) and len(run.of(kind)) == count)


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("case", CASES)
def test_every_command_is_answered_once_by_its_id(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # where traces go
    commands, expected = CASES[case]
    left = [commands] if together else [[one] for one in commands]

    def react(run: Run, event: Event) -> None:
        if not isinstance(event, Progress):
            return
        if left:
            for command in left.pop(0):
                run.send(command)
        elif expected.keys() <= answers_in(run.events).keys():
            run.stop()

    run = Run(FITS_3, react).until_stopped()
    answers = answered_by(run.events)
    answers.pop(0, None)  # the stop that ends the test
    check(answers, expected)


def test_a_second_pause_changes_nothing() -> None:
    run = Run(ENTRY, stop_after("paused", 2))
    first, second = run.until_stopped(Pause(id=1), Pause(id=2)).of("paused")
    assert (first.at_s, first.after_step) == (second.at_s, second.after_step)


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
        settings = run.training.settings | {"batch_size": str(size)}
        run._loop.training.needs.note(settings, DeviceMemory(reserved_mib=mib, peak_mib=mib))
    with pytest.raises(torch.OutOfMemoryError) as raised:
        run.until_stopped()
    failed = describe(raised.value, "fake", {"batch_size": "4"}).failure
    assert failed.kind == "out_of_memory"
    assert failed.sentence == (
        "out of memory with batch_size=4; "
        "batch 12 would fit, 14 would not (from the peaks at 2 and 3)"
    )
