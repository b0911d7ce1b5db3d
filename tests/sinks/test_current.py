"""Messages and rows become current values: sums that only grow, and gauges that get old."""

import pytest

from gpudash.protocol.answer import AnswerShown
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.rank_steps import RankSteps
from gpudash.sinks.current import FRESH_S, Current, subjects
from tests.lives import said
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, started
from tests.sinks.exporting import BEGAN_UTC, ORIGIN, answer, reading, row, told


def values(current: Current, at_s: float | None = None) -> dict[str, float]:
    """Current values by name and labels, as `name{phase=forward}`."""
    found = {}
    for of, points in current.families(current.at_s if at_s is None else at_s):
        for point in points:
            labels = ",".join(f"{name}={value}" for name, value in point.labels)
            found[f"{of.sample}{{{labels}}}" if labels else of.sample] = point.value
    return found


def folded(*items: object) -> Current:
    current = Current(ORIGIN)
    for item in items:
        current.take(item)
    return current


GPU = "{hw.id=GPU-1111,hw.name=GPU 0,hw.type=gpu}"
LAST_STEP, LIMIT = "gpudash_last_step_timestamp_seconds", "gpudash_limit_info"
TRACED = row(1, step=7, steps=2, samples=16, train_s=0.0, timed=0, finished_s=None, values={})
BARE = row(0, samples=None, values={}, gpus=(GpuInterval(index=0, uuid="GPU-1111"),))
NO_STEP = {"steps": 0, "finished_s": None}
UNKNOWN = said(AnswerShown(at_s=BEGAN_S + 1, answer=None), source="session")
SINCE = said(gpu(BEGAN_S + 0.6, power_w=120.0), source="telemetry", at_s=BEGAN_S + 0.6)
LATER_S = BEGAN_S + 60
LATER = (
    said(gpu(LATER_S, power_w=120.0, energy_j=9e9), source="telemetry", at_s=LATER_S),
    said(host(LATER_S, cpu_pct=100.0), rank=1, source="telemetry", at_s=LATER_S),
)
EIGHT = tuple(
    GpuInterval(index=n, uuid=f"GPU-{n}", values={"power_w": 300.0 + n}) for n in range(8)
)
TWO = row(0).ranks[0], RankSteps(rank=1, step=5, steps=5, samples=24)


@pytest.mark.parametrize(
    ("what", "items", "shown", "hidden"),
    [
        *[("what is counted grows from row to row", [row(number) for number in range(rows)],
           {"gpudash_steps_total": 5 * rows, "gpudash_samples_total{rank=0}": 40 * rows,
            f"hw_energy_joules_total{GPU}": 150 * rows, "gpudash_train_seconds_total": 0.5 * rows,
            "gpudash_step_seconds_total{rank=0}": 0.5 * rows}, "no") for rows in (1, 4)],
        ("steps without a time, as of a profile, are counted, also where nothing trains",
         [row(0), TRACED],
         {"gpudash_steps_total": 7, "gpudash_untimed_steps_total": 2,
          "gpudash_samples_total{rank=0}": 56, "gpudash_step_seconds_total{rank=0}": 0.5}, "no"),
        ("the time of a phase is that of all steps, also of a workload's own", [row(0), row(1)],
         {"gpudash_phase_seconds_total{phase=forward,rank=0}": 0.4,
          "gpudash_phase_seconds_total{phase=encode,rank=0}": 0.2,
          "gpudash_data_seconds_total{rank=0}": 0.01}, "no"),
        ("values are in base units", [row(0)],
         {f"hw_gpu_memory_usage_bytes{GPU}": 2**30, f"hw_gpu_utilization_ratio{GPU}": 0.8,
          "gpudash_step_p50_seconds{rank=0}": 0.1, "gpudash_batch_size": 8}, "no"),
        ("what was not measured is absent and never 0", [BARE], {"gpudash_steps_total": 5},
         ("hw_", "gpudash_samples", "gpudash_p")),
        ("the last step is stamped with when it finished, not with the row's end",
         [row(0, steps=2, finished_s=BEGAN_S + 0.2), row(1, **NO_STEP)],
         {LAST_STEP: BEGAN_UTC.timestamp() + 0.2}, "no"),
        ("without a step there is no last one", [row(0, **NO_STEP)], {}, LAST_STEP),
        ("there is one limit and one state, the newest",
         [answer(), answer("copy", "copy-bound"), *told()[:1]],
         {f"{LIMIT}{{title=copy-bound,limit=copy}}": 1,
          "gpudash_training_info{workload=encdec,state=training}": 1}, f"{LIMIT}{{title=input"),
        ("after a change there is no limit until it is known again", [answer(), UNKNOWN], {},
         LIMIT),
        ("readings go on where a hang completes no row", [row(0), *LATER],
         {f"hw_power_watts{GPU}": 120, "gpudash_cpu_ratio{rank=1}": 1,
          f"hw_energy_joules_total{GPU}": 150, "gpudash_steps_total": 5},
         f"hw_temperature_celsius{GPU}"),
        ("a row that comes late does not replace what was read since", [SINCE, row(0)],
         {f"hw_power_watts{GPU}": 120}, "no"),
        ("the next one does", [SINCE, row(0), row(1)], {f"hw_power_watts{GPU}": 300}, "no"),
        ("each setting is a lever with its value alone",
         [row(0), row(1, settings={"batch_size": "8", "pipelined": "on"})],
         {"gpudash_lever_info{lever=pipelined,value=on}": 1,
          "gpudash_lever_info{lever=batch_size,value=8}": 1},
         "gpudash_lever_info{lever=pipelined,value=off}"),
        ("GPUs are told apart by their id", [row(0, gpus=EIGHT)],
         {f"hw_power_watts{GPU}".replace("1111", str(n)).replace(" 0", f" {n}"): 300 + n
          for n in range(8)}, "no"),
        ("the name of a GPU comes from its first reading", [reading()],
         {"gpudash_gpu_info{hw.id=GPU-1111,hw.type=gpu,hw.model=NVIDIA H200}": 1}, "hw"),
        ("messages of other ranks and single steps change nothing",
         [said(started(BEGAN_S), rank=1), said(Trainer().step())], {}, ""),
        ("each rank has its own, and the job's steps count once",
         [row(0, ranks=TWO, world_size=2)],
         {"gpudash_steps_total": 5, "gpudash_samples_total{rank=0}": 40,
          "gpudash_samples_total{rank=1}": 24}, "no"),
    ],
)  # fmt: skip
def test_the_current_values(
    what: str, items: list[object], shown: dict[str, float], hidden: str | tuple[str, ...]
) -> None:
    found = values(folded(*items))
    assert {name: found.get(name) for name in shown} == pytest.approx(shown, abs=0), what
    assert not [name for name in found if name.startswith(hidden)], what


def test_a_gauge_gets_old_and_a_counter_does_not() -> None:
    current = folded(row(0), row(1, gpus=()))
    assert [name for name in values(current) if name.startswith("hw_power")]
    later = values(current, current.at_s + FRESH_S + 1)
    assert not [name for name in later if name.startswith(("hw_power", "gpudash_step_p50"))]
    assert {"gpudash_steps_total", "gpudash_last_step_timestamp_seconds"} <= set(later)
    assert [name for name in later if name.startswith("hw_energy")]


def test_a_rows_numbers_are_those_of_the_table_without_labels_and_texts() -> None:
    numbers = {
        name: value
        for subject in subjects(row(0, transform_ms={"crop": 0.5}), ORIGIN)
        for _, name, value in subject.numbers()
    }
    assert numbers["power_w"] == 300.0
    assert numbers["samples_per_s"] == 80.0
    assert numbers["transform_ms crop"] == 0.5
    assert not {"gpu_index", "rank", "throttle", "time_s", "levers"} & set(numbers)
