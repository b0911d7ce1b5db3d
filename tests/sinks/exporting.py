"""A recording for exporters: of an H200, with an answer and a lever change; and rows made up."""

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from gpudash.cli.main import main
from gpudash.protocol.answer import Answer, AnswerShown
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Progress
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from tests.lives import Narrator, changed, said
from tests.recording.record import record
from tests.recording.test_csv_format import interval
from tests.scripted_run import BEGAN_S, gpu, started, step

BEGAN_UTC = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORIGIN = Origin(began_s=BEGAN_S, began_utc=BEGAN_UTC, interval_s=0.5, command=(), machine="node7")
H200 = Path(__file__).parents[1] / "diagnosis" / "recordings" / "compute_levers_active.jsonl.gz"
STEPS, STEP_MS = 5, 100.0
"""Of each row."""
OF_GPU = {
    "power_w": 300.0,
    "energy_j": 150.0,
    "gpu_util_pct": 80.0,
    "mem_used_mib": 1024.0,
    "mem_total_mib": 4096.0,
    "tensor_active_pct": 25.0,
    "temperature_c": 45.0,
    "throttle": "power",
}
OF_STEPS = {"forward_ms": 40.0, "encode_ms": 20.0, "data_ms": 1.0, "step_ms_p50": STEP_MS}


def origin(began_s: float = BEGAN_S) -> Origin:
    return Origin(began_s=began_s, began_utc=BEGAN_UTC, interval_s=0.5, command=())


def row(number: int, began_s: float = BEGAN_S, **more: object) -> Interval:
    """The row of this number: half a second each, of five steps with eight samples."""
    from_s = began_s + number / 2
    known = {
        "began_s": from_s,
        "ended_s": from_s + 0.5,
        "step": (number + 1) * STEPS,
        "samples": 8 * STEPS,
        "values": OF_STEPS,
        "gpus": (GpuInterval(index=0, uuid="GPU-1111", values=OF_GPU),),
    }
    return interval(**known | more)


def answer(limit: str = "data", title: str = "input-bound", at_s: float = BEGAN_S) -> Envelope:
    return said(
        AnswerShown(at_s=at_s, answer=Answer(limit=limit, title=title, evidence=("waits",))),
        source="session",
        at_s=at_s,
    )


def reading() -> Envelope:
    return said(gpu(BEGAN_S, energy_j=0.0), source="telemetry", at_s=BEGAN_S)


def told() -> list[Envelope | Interval]:
    """A run: it starts, gets an answer, and changes a lever after two of four rows."""
    narrator = Narrator()
    first = narrator.tell(started(BEGAN_S))
    change = narrator.tell(changed(BEGAN_S + 1, changes={"precision": "bf16"}))
    begun, turned = said(first, at_s=BEGAN_S), said(change, at_s=BEGAN_S + 1)
    return [begun, reading(), row(0), answer(), row(1), turned, row(2), row(3)]


def recorded(folder: Path) -> Path:
    """Return the log of such a run."""
    messages: list[Envelope] = []
    for item in told():
        messages += reported(item) if isinstance(item, Interval) else [item]
    return record(folder / "run.csv", messages, BEGAN_S + 2, ORIGIN)


def reported(interval: Interval) -> Iterator[Envelope]:
    """Yield a report and a reading that make such a row."""
    at_s, rows = interval.ended_s, interval.step // STEPS
    times = {name: ms for name, ms in OF_STEPS.items() if name != "step_ms_p50"}
    steps = step(interval.step, at_s, STEP_MS)
    steps = replace(steps, count=STEPS, samples=8 * STEPS, values=times)
    report = Progress(
        until_s=at_s, steps=(steps,), total_steps=interval.step, total_samples=8 * interval.step
    )
    yield said(report, seq=rows, at_s=at_s)
    yield said(gpu(at_s, **OF_GPU | {"energy_j": 150.0 * rows}), source="telemetry", at_s=at_s)


def h200(folder: Path) -> Path:
    """Return the log of a training on an H200."""
    path = folder / "h200.jsonl"
    path.write_bytes(gzip.decompress(H200.read_bytes()))
    return path


def exported(log: Path, *destinations: str) -> None:
    words = [word for one in destinations for word in ("--to", one)]
    assert main(["export", str(log), *words]) == 0
