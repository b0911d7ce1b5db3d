"""Every command gets one answer with its id, whatever a workload or a script is doing."""

import pytest

from gpudash.protocol.commands import (
    AnyCommand,
    Change,
    Memory,
    Pause,
    Profile,
    Rehearse,
    Resume,
    Stop,
)
from gpudash.protocol.envelope import Event
from gpudash.protocol.inspections import Profiled, Rehearsed
from gpudash.protocol.records import Settings
from gpudash.protocol.training import BlocksEnded, Progress, Refused
from tests.answers import answered_by, blocks, check
from tests.script.toy_script import Dashboard, answered, path, script
from tests.worker.in_process import FITS_3, Run

pytestmark = pytest.mark.usefixtures("known_peak")
Cases = dict[str, tuple[list[AnyCommand], dict[int, type[Event] | str | None]]]


def profile(number: int, where: str = "trace.json") -> Profile:
    return Profile(id=number, steps=3, path=where)


def cases(as_it_is: Settings, moved: Settings, other: Settings, wrong: Settings) -> Cases:
    """What both answer alike. The settings: in force, two changes, and one that is refused."""
    long = blocks(1, 1, moved, {}, min_steps=10**6)
    return {
        "changes": (
            [Change(id=1, settings=other), Change(id=2, settings=wrong)],
            {1: "changed", 2: Refused},
        ),
        "a change to what is": ([Change(id=1, settings=as_it_is)], {1: Refused}),
        "pausing twice": (
            [Pause(id=1), Pause(id=2), Resume(id=3)],
            {1: "paused", 2: "paused", 3: "resumed"},
        ),
        "going on twice": (
            [Resume(id=1), Pause(id=2), Resume(id=3), Resume(id=4)],
            {1: "resumed", 2: "paused", 3: "resumed", 4: "resumed"},
        ),
        "under pause": (
            [
                Pause(id=1),
                Change(id=2, settings=other),
                Change(id=3, settings={"x": ""}),
                Resume(id=4),
            ],
            {1: "paused", 2: "changed", 3: Refused, 4: "resumed"},
        ),
        "blocks": ([blocks(1, 1, moved, {})], {1: BlocksEnded}),
        "other blocks of the run": ([long, blocks(2, 1)], {1: BlocksEnded, 2: BlocksEnded}),
        "another run": ([long, blocks(2, 2, {})], {1: BlocksEnded, 2: BlocksEnded}),
        "a run that has ended": ([long, blocks(2, 1), blocks(3, 1, {})], dict.fromkeys((1, 2, 3))),
        "nothing to end": ([blocks(1, 1)], {1: BlocksEnded}),
        "a change in blocks": (
            [long, Change(id=2, settings=other)],
            {1: BlocksEnded, 2: "changed"},
        ),
        "a refusal in blocks": (
            [long, Change(id=2, settings=wrong), blocks(3, 1)],
            {1: BlocksEnded, 2: Refused, 3: BlocksEnded},
        ),
        "a pause in blocks": (
            [long, Pause(id=2), Resume(id=3), Pause(id=4), blocks(5, 1), Resume(id=6)],
            dict.fromkeys(range(1, 7)),
        ),
        "who owns memory, on a CPU": ([Memory(id=1)], {1: Refused}),
        "profiles": ([profile(1), profile(2)], {1: Profiled, 2: Profiled}),
        "a profile in blocks": (
            [long, profile(2), blocks(3, 1)],
            {1: BlocksEnded, 2: Refused, 3: BlocksEnded},
        ),
        "a profile under pause": (
            [Pause(id=1), profile(2), Resume(id=3)],
            {1: "paused", 2: Refused, 3: "resumed"},
        ),
        "a profile that cannot be written": ([profile(1, "/none/trace.json")], {1: Refused}),
    }


OF_A_WORKLOAD = cases(
    {"batch_size": "2"}, {"pipelined": "on"}, {"batch_size": "3"}, {"batch_size": "0"}
) | {
    "out of memory": ([Change(id=1, settings={"batch_size": "4"})], {1: "changed"}),
    "out of memory in blocks": ([blocks(1, 1, {"batch_size": "4"}, {})], {1: BlocksEnded}),
    "out of memory in a profile": (
        [Change(id=1, settings={"batch_size": "4"}), profile(2)],
        {1: "changed", 2: None},
    ),
    "a stop in blocks": (
        [blocks(1, 1, {"pipelined": "on"}, min_steps=10**6), Pause(id=2), Stop(id=3)],
        dict.fromkeys((1, 2, 3)),
    ),
    "stopping twice": ([Stop(id=1), Stop(id=2), Pause(id=3)], dict.fromkeys((1, 2, 3))),
}
LONG = blocks(1, 1, {"precision": "bf16"}, {}, min_steps=10**6)
OF_A_SCRIPT = cases(
    {"precision": "fp32"}, {"precision": "bf16"}, {"precision": "tf32"}, {"precision": "unknown"}
) | {
    "what does not work": ([Change(id=1, settings={"precision": "impossible"})], {1: Refused}),
    "a rehearsal": (
        [Change(id=1, settings={"compile": "on"}), Change(id=2, settings={"compile": "off"})],
        {1: "changed", 2: "changed"},
    ),
    "a rehearsal under pause": (
        [Pause(id=1), Change(id=2, settings={"compile": "on"}), Resume(id=3)],
        {1: "paused", 2: "changed", 3: "resumed"},
    ),
    "a pause during a rehearsal": (
        [Change(id=1, settings={"compile": "on"}), Pause(id=2), Resume(id=3), Resume(id=4)],
        {1: "changed", 2: "paused", 3: "resumed", 4: "resumed"},
    ),
    "blocks that are rehearsed": (
        [blocks(1, 1, {"compile": "on"}, {}, {"compile": "on"})],
        {1: BlocksEnded},
    ),
    "blocks that cannot be": (
        [blocks(1, 1, {"precision": "impossible"}, {"precision": "unknown"}, {})],
        {1: BlocksEnded},
    ),
    "a rehearsal in blocks": (
        [LONG, Change(id=2, settings={"compile": "on"}), blocks(3, 2, {})],
        {1: BlocksEnded, 2: "changed", 3: BlocksEnded},
    ),
    "a change in blocks that does not work": (
        [LONG, Change(id=2, settings={"precision": "impossible"}), blocks(3, 1)],
        {1: BlocksEnded, 2: Refused, 3: BlocksEnded},
    ),
    "another run back to what needs a rehearsal": (
        [
            Change(id=1, settings={"compile": "on"}),
            blocks(2, 1, {"compile": "off"}, min_steps=10**6),
            blocks(3, 2, {}),
        ],
        {1: "changed", 2: BlocksEnded, 3: BlocksEnded},
    ),
    "a profile during a rehearsal": (
        [Change(id=1, settings={"compile": "on"}), profile(2)],
        {1: "changed", 2: Profiled},
    ),
    "a change in a profile": (
        [profile(1), Change(id=2, settings={"precision": "bf16"}), Pause(id=3), Resume(id=4)],
        {1: Profiled, 2: "changed", 3: "paused", 4: "resumed"},
    ),
    "levers timed on a batch": ([Rehearse(id=1), blocks(2, 1)], {1: Rehearsed, 2: BlocksEnded}),
    "levers timed beside an A/B": ([blocks(1, 1), Rehearse(id=2)], {1: BlocksEnded, 2: Rehearsed}),
    "a stop": ([Stop(id=1), blocks(2, 1)], {1: Refused, 2: BlocksEnded}),
}


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("case", OF_A_WORKLOAD)
def test_of_a_workload(case: str, tmp_path, monkeypatch, *, together: bool) -> None:
    monkeypatch.chdir(tmp_path)  # where traces go
    commands, expected = OF_A_WORKLOAD[case]
    left = [commands] if together else [[one] for one in commands]

    def react(run: Run, event: Event) -> None:
        if not isinstance(event, Progress):
            return
        if left:
            for command in left.pop(0):
                run.send(command)
        elif expected.keys() <= answered_by(run.events).keys():
            run.stop()

    answers = answered_by(Run(FITS_3, react).until_stopped().events)
    answers.pop(0, None)  # the stop that ends the test
    check(answers, expected)


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("case", OF_A_SCRIPT)
def test_of_a_script(case: str, tmp_path, monkeypatch, *, together: bool) -> None:
    monkeypatch.chdir(tmp_path)
    commands, expected = OF_A_SCRIPT[case]
    left = [commands] if together else [[one] for one in commands]

    def react(dashboard: Dashboard, event: Event) -> None:
        if isinstance(event, Progress) and left:
            dashboard.send(*left.pop(0))

    with script(tmp_path) as training:
        dashboard = Dashboard(path(tmp_path), react)
        training.until(lambda: not left and expected.keys() <= answered(dashboard).keys())
        training.goes_on()
        check(answered(dashboard), expected)
        assert not training.root.keeps_calls
        assert training.root.newest is None
