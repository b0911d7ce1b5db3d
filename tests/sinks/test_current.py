"""Messages and rows become current values: sums that only grow, and gauges that get old."""

import pytest

from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.training import Progress
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.rank_steps import RankSteps
from gpudash.sinks.current import FRESH_S, Current, subjects
from tests.lives import said
from tests.scripted_run import BEGAN_S, gpu, host, started
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


def test_what_is_counted_grows_from_row_to_row() -> None:
    for rows in (1, 4):
        found = values(folded(*(row(number) for number in range(rows))))
        assert found["gpudash_steps_total"] == 5 * rows
        assert found["gpudash_samples_total{rank=0}"] == 40 * rows
        labels = "{hw.id=GPU-1111,hw.name=GPU 0,hw.type=gpu}"
        assert found[f"hw_energy_joules_total{labels}"] == 150 * rows
        assert found["gpudash_train_seconds_total"] == 0.5 * rows
        assert found["gpudash_step_seconds_total{rank=0}"] == pytest.approx(0.5 * rows)


def test_steps_without_a_time_are_counted_also_where_nothing_trains() -> None:
    """Such as those of a profile."""
    untimed = {"timed": 0, "finished_s": None, "values": {}}
    traced = row(1, step=7, steps=2, samples=16, train_s=0.0, **untimed)
    found = values(folded(row(0), traced))
    assert found["gpudash_steps_total"] == 7
    assert found["gpudash_untimed_steps_total"] == 2
    assert found["gpudash_samples_total{rank=0}"] == 56
    assert found["gpudash_step_seconds_total{rank=0}"] == pytest.approx(0.5)


def test_the_time_of_a_phase_is_that_of_all_steps_also_of_a_workloads_own() -> None:
    found = values(folded(row(0), row(1)))
    assert found["gpudash_phase_seconds_total{phase=forward,rank=0}"] == pytest.approx(0.4)
    assert found["gpudash_phase_seconds_total{phase=encode,rank=0}"] == pytest.approx(0.2)
    assert found["gpudash_data_seconds_total{rank=0}"] == pytest.approx(0.01)


def test_values_are_in_base_units() -> None:
    found = values(folded(row(0)))
    labels = "{hw.id=GPU-1111,hw.name=GPU 0,hw.type=gpu}"
    assert found[f"hw_gpu_memory_usage_bytes{labels}"] == 2**30
    assert found[f"hw_gpu_utilization_ratio{labels}"] == 0.8
    assert found["gpudash_step_p50_seconds{rank=0}"] == 0.1
    assert found["gpudash_batch_size"] == 8


def test_what_was_not_measured_is_absent_and_never_0() -> None:
    bare = row(0, samples=None, values={}, gpus=(GpuInterval(index=0, uuid="GPU-1111"),))
    found = values(folded(bare))
    assert not [name for name in found if name.startswith(("hw_", "gpudash_samples", "gpudash_p"))]
    assert found["gpudash_steps_total"] == 5


def test_a_gauge_gets_old_and_a_counter_does_not() -> None:
    current = folded(row(0), row(1, gpus=()))
    assert [name for name in values(current) if name.startswith("hw_power")]
    later = values(current, current.at_s + FRESH_S + 1)
    assert not [name for name in later if name.startswith(("hw_power", "gpudash_step_p50"))]
    assert {"gpudash_steps_total", "gpudash_last_step_timestamp_seconds"} <= set(later)
    assert [name for name in later if name.startswith("hw_energy")]


def test_the_last_step_is_stamped_with_when_it_finished_not_with_the_rows_end() -> None:
    half = row(0, steps=2, finished_s=BEGAN_S + 0.2)
    found = values(folded(half, row(1, steps=0, finished_s=None)))
    at_s = found["gpudash_last_step_timestamp_seconds"]
    assert at_s == pytest.approx(BEGAN_UTC.timestamp() + 0.2)


def test_without_a_step_there_is_no_last_one() -> None:
    assert "gpudash_last_step_timestamp_seconds" not in values(
        folded(row(0, steps=0, finished_s=None))
    )


def test_there_is_one_limit_and_one_state_the_newest() -> None:
    found = values(folded(answer(), answer("copy", "copy-bound"), *told()[:1]))
    assert [name for name in found if "limit" in name] == [
        "gpudash_limit_info{title=copy-bound,limit=copy}"
    ]
    assert "gpudash_training_info{workload=encdec,state=training}" in found


def test_after_a_change_there_is_no_limit_until_it_is_known_again() -> None:
    unknown = said(AnswerShown(at_s=BEGAN_S + 1, answer=None), source="session")
    assert "gpudash_limit_info" not in "".join(values(folded(answer(), unknown)))


def test_the_name_of_a_gpu_comes_from_its_first_reading() -> None:
    found = values(folded(reading()))
    assert found == {"gpudash_gpu_info{hw.id=GPU-1111,hw.type=gpu,hw.model=NVIDIA H200}": 1}


def test_readings_go_on_where_a_hang_completes_no_row() -> None:
    later_s = BEGAN_S + 60
    current = folded(
        row(0),
        said(gpu(later_s, power_w=120.0, energy_j=9e9), source="telemetry", at_s=later_s),
        said(host(later_s, cpu_pct=100.0), rank=1, source="telemetry", at_s=later_s),
    )
    found, labels = values(current), "{hw.id=GPU-1111,hw.name=GPU 0,hw.type=gpu}"
    assert found[f"hw_power_watts{labels}"] == 120
    assert found["gpudash_cpu_ratio{rank=1}"] == 1
    assert f"hw_temperature_celsius{labels}" not in found
    assert found[f"hw_energy_joules_total{labels}"] == 150
    assert found["gpudash_steps_total"] == 5


def test_a_row_that_comes_late_does_not_replace_what_was_read_since() -> None:
    since = said(gpu(BEGAN_S + 0.6, power_w=120.0), source="telemetry", at_s=BEGAN_S + 0.6)
    labels = "{hw.id=GPU-1111,hw.name=GPU 0,hw.type=gpu}"
    assert values(folded(since, row(0)))[f"hw_power_watts{labels}"] == 120
    assert values(folded(since, row(0), row(1)))[f"hw_power_watts{labels}"] == 300


def test_each_setting_is_a_lever_with_its_value_alone() -> None:
    current = folded(row(0), row(1, settings={"batch_size": "8", "pipelined": "on"}))
    found = {name for name in values(current) if "lever" in name}
    assert found == {
        "gpudash_lever_info{lever=pipelined,value=on}",
        "gpudash_lever_info{lever=batch_size,value=8}",
    }


def test_each_rank_has_its_own_and_the_jobs_steps_count_once() -> None:
    two = row(0).ranks[0], RankSteps(rank=1, step=5, steps=5, samples=24)
    found = values(folded(row(0, ranks=two, world_size=2)))
    assert found["gpudash_steps_total"] == 5
    assert found["gpudash_samples_total{rank=0}"] == 40
    assert found["gpudash_samples_total{rank=1}"] == 24


def test_messages_of_other_ranks_and_single_steps_change_nothing() -> None:
    report = Progress(until_s=BEGAN_S, steps=(), total_steps=9, total_samples=None)
    assert values(folded(said(started(BEGAN_S), rank=1), said(report))) == {}


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
