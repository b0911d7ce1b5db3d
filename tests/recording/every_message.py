"""A recording that has each kind of message, and a CSV and a provenance beside it."""

from pathlib import Path

from msgspec.structs import replace

from gpudash.protocol import commands, inspections, session, training
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.readings import EnergyTick, GpuMissing, Job, OtherJobs
from gpudash.views.time_breakdown import TimeBreakdown
from tests.diagnosis.trainings import answered
from tests.lives import changed, paused
from tests.recording.record import record, sent
from tests.recording.test_csv_format import script
from tests.recording.test_log import ORIGIN
from tests.scripted_run import BEGAN_S, Trainer, gpu, host
from tests.tui import scenes

AT_S = BEGAN_S + 0.25
PROFILED = inspections.Profiled(
    at_s=AT_S,
    path="gone.json",
    first_step=3,
    steps=3,
    steps_ms=30.0,
    took_ms=20.0,
    untraced_step_ms=9.0,
    syncs=(
        inspections.SyncCall(
            at_ns=1_790_000_000_000_000_000,
            thread=1,
            file="t.py",
            line=3,
            function="f",
            what="item",
        ),
    ),
    peak=inspections.Peak(matmul_tflops={"bf16": 500.0}, memory_gb_s=3000.0),
    pinning=inspections.Pinning(pin_ms=1.0, thread_pin_ms=1.0, copy_ms=1.0),
    flops=inspections.Flops(step_gflop=100.0, covered_pct=99.0, phases_gflop={"forward": 30.0}),
    weights=inspections.Weights(mib=100.0, state_mib=200.0),
)
SLOPES = (
    session.Slope(part="loader", slope=0.9, low=0.8, high=1.0, modelled=(0.5, 1.0)),
    session.Slope(part="host", why_not="its steps are short"),
)
LEVER = training.Lever(
    name="num_workers",
    kind="count",
    default="2",
    minimum=0,
    maximum=8,
    summary="loader workers",
    source="DataLoader",
    helps=(("next", "more workers"),),
)
BLOCK = commands.Block(number=1, changes={"pipelined": "on"}, min_steps=5, min_s=1.0)
STRAGGLER = session.Straggler(
    rank=1, phase="forward", excess_ms=3.0, slower_pct=10.0, others_wait_ms=2.0
)


def messages() -> list:
    """One of each kind, and those of a run around them."""
    run = Trainer(BEGAN_S)
    begun = run.start()
    return [
        training.Hello(can=("levers", "pause"), pid=42),
        commands.Plan(workload="encdec", settings={"batch_size": "8"}, steps=100),
        begun,
        *(run.step(10.0) for _ in range(20)),
        gpu(AT_S, power_w=300.0, throttle="none", mem_used_mib=1024.0),
        host(AT_S, 150.0, core_wait_pct=3.0),
        changed(AT_S, changes={"pipelined": "on"}, settings={"pipelined": "on"}).after(begun),
        paused(AT_S).after(begun),
        training.Offered(found="AdamW, root GPT", levers=(LEVER,)),
        training.Printed(lines=("a", "b"), replaces=1),
        training.Status(text="it compiles"),
        training.Timed(at_s=AT_S, block=1, steps=3, samples=24, seconds=0.1),
        training.Refused(kind="bad_setting", changes={"batch_size": "0"}, reason="it is 0"),
        training.TooLate(answers=(3,)),
        training.BlocksEnded(at_s=AT_S, run=1, why="it was asked to"),
        AnswerShown(at_s=AT_S, answer=answered(scenes.running()).answer),
        scenes.compared(9),
        scenes.compared(scenes.PAIRS),
        session.Notice(text="gpudash is here"),
        session.NewRow(),
        session.Playback(name="run.jsonl"),
        session.StragglerShown(straggler=STRAGGLER),
        session.SlowingShown(delay_ms=3.0, rounds=3, expected_s=20.0, slopes=SLOPES),
        commands.Blocks(id=3, run=1, blocks=(BLOCK,)),
        commands.Change(id=4, settings={"pipelined": "on"}),
        commands.Pause(id=5),
        commands.Resume(id=6),
        commands.Profile(id=7, steps=3, path="t.json"),
        commands.Memory(id=8),
        commands.Rehearse(id=9),
        commands.Stacks(id=10),
        commands.Stop(id=11),
        PROFILED,
        inspections.MemoryOwners(
            at_s=AT_S,
            peak_mib=1000.0,
            owners=(
                inspections.Owner(
                    file="t.py", line=3, function="f", use="weights", mib=500.0, count=3
                ),
            ),
        ),
        inspections.Rehearsed(
            at_s=AT_S,
            timings=(
                inspections.Timing(lever="precision", value="bf16", before_ms=3.0, after_ms=2.0),
            ),
        ),
        inspections.CodeLines(
            at_s=AT_S,
            looks=20,
            lines=(inspections.CodeLine(file="t.py", line=3, function="f", count=9),),
        ),
        inspections.Stack(at_s=AT_S, text="f t.py:3", joined=(inspections.Joined(group="0"),)),
        GpuMissing(why="its driver is old", values={"power_w": "not supported"}),
        OtherJobs(at_s=AT_S, used_cores=3.0, cores=8, busiest=(Job(pid=3, name="x", cores=2.0),)),
        EnergyTick(at_s=AT_S, uuid="GPU-1111", energy_j=3.0, within_s=0.01),
    ]


def recorded(folder: Path, *, every_step: bool = False) -> Path:
    """Return the log of a run with each kind of message."""
    items, ended_s = script()
    said = sent([*messages(), *items], AT_S)
    account = TimeBreakdown(wall_s=9.0, phases_s=9.0)
    origin = replace(ORIGIN, every_step=every_step)
    return record(folder / "run.csv", said, ended_s, origin, account=account)
