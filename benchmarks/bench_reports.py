"""What it costs to encode a training's reports: the standard library's JSON against msgspec.

python benchmarks/bench_reports.py

A report has the steps of 50 ms. Phases are in two of its steps, and once in ten reports what the
process says of itself. Each figure is the least of many turns: only interruptions add to it.
"""

from collections.abc import Callable
from time import perf_counter

import msgspec

from gpudash.instrument.reporter import REPORT_EVERY_S
from gpudash.instrument.wire import FinishedStep, StepReport, encoded
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Progress, Step

TURNS = 200
CALLS = 50
MEASURED = 2
"""Steps of a report with phases."""
RATES = (20, 60, 300, 1000)
PHASES = ("copy", "prepare", "forward", "backward", "optimizer", "overlap", "device")
MEMORY = ("mem_reserved_mib", "mem_allocated_mib", "mem_peak_mib")


def values_of(number: int) -> dict[str, float]:
    """Return the values of a step."""
    values = {"data_ms": 0.0123456789 * number, "host_ms": 2.3456789012 + number}
    if number < MEASURED:
        values |= {f"{name}_ms": 0.3456789012 * (place + 1) for place, name in enumerate(PHASES)}
    return values


def plain(count: int) -> StepReport:
    """Return a report of so many steps."""
    return StepReport(
        until_s=12345.678901234,
        steps=tuple(
            FinishedStep(
                number, 3, 12345.6 + number * 0.00333333, 3.3333333333, values_of(number), 1, 8
            )
            for number in range(count)
        ),
        total_steps=123_456,
        total_samples=987_648,
        loss=0.69314718056,
        loss_step=123_450,
        transform_ms={"decode": 1.2345678},
        instruments_ms=0.123456789,
        values=dict.fromkeys(MEMORY, 12345.678),
    )


def as_struct(report: StepReport) -> Progress:
    """Return the same as the session's record."""
    steps = tuple(Step(**step._asdict()) for step in report.steps)
    return Progress(**vars(report) | {"steps": steps})


def least_us(act: Callable[[], object]) -> float:
    """Return the least microseconds of a call."""
    found = []
    for _ in range(TURNS):
        began_s = perf_counter()
        for _ in range(CALLS):
            act()
        found.append((perf_counter() - began_s) / CALLS * 1e6)
    return min(found)


def main() -> None:
    """Print the cost by rate of steps."""
    encoder = msgspec.json.Encoder()
    per_s = 1 / REPORT_EVERY_S
    print("| steps/s | bytes a report | json, µs a report | msgspec | json, µs a step | msgspec |")
    for rate in RATES:
        report = plain(round(rate / per_s))
        record = as_struct(report)

        def with_msgspec(record: Progress = record) -> bytes:
            body = Envelope(source="training", seq=9, sent_s=12345.6, body=record)
            return encoder.encode(body)

        def with_json(report: StepReport = report) -> bytes:
            return encoded(report, 0, 9, 12345.6)

        ours, theirs = least_us(with_json), least_us(with_msgspec)
        steps, size = len(report.steps), len(with_json())
        print(
            f"| {rate} | {size} | {ours:.1f} | {theirs:.1f} "
            f"| {ours / steps:.2f} | {theirs / steps:.2f} |"
        )


if __name__ == "__main__":
    main()
