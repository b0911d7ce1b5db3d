"""Every metric has a name and a unit for other programs, by one rule."""

import re

import pytest

from gpudash.metrics import METRICS
from gpudash.sinks import exported
from gpudash.sinks.exported import BESIDE, PHASES, UNITS

NAMED = {name: exported.of(name) for name in METRICS}
SERIES = {name: one for name, one in NAMED.items() if one.name}
PROMISED = {
    "steps": "gpudash_steps_total",
    "steps_per_s": "gpudash_steps_total",
    "samples_per_s": "gpudash_samples_total",
    "tokens_per_s": "gpudash_tokens_total",
    "forward_ms": "gpudash_phase_seconds_total",
    "encode_ms": "gpudash_phase_seconds_total",
    "data_ms": "gpudash_data_seconds_total",
    "power_w": "hw_power_watts",
    "energy_j": "hw_energy_joules_total",
    "temperature_c": "hw_temperature_celsius",
    "gpu_util_pct": "hw_gpu_utilization_ratio",
    "mem_used_mib": "hw_gpu_memory_usage_bytes",
    "mem_total_mib": "hw_gpu_memory_limit_bytes",
    "sm_active_pct": "gpudash_sm_active_ratio",
    "sm_occupancy_pct": "gpudash_sm_occupancy_ratio",
    "tensor_active_pct": "gpudash_pipe_tensor_active_ratio",
    "dram_active_pct": "gpudash_dram_active_ratio",
    "pcie_rx_mib_s": "gpudash_pcie_rx_bytes_per_second",
    "levers": "gpudash_lever_info",
    "train_s": "gpudash_train_seconds_total",
    "step_ms": "gpudash_step_seconds_total",
    "step_ms_p50": "gpudash_step_p50_seconds",
    "step": "gpudash_step_number",
    "segment": "gpudash_segment",
    "loss": "gpudash_loss",
}
"""Dashboards and alerts are written with these."""


def test_every_metric_has_a_name_or_is_a_label_or_the_time_of_others() -> None:
    for name, one in NAMED.items():
        assert bool(one.name) != bool(one.beside), name
        assert one.help, name
    beside = {name: one.beside for name, one in NAMED.items() if one.beside}
    assert beside == {
        "wall_time_utc": "@",
        "workload": "workload",
        "gpu_index": "hw.name",
        "gpu_uuid": "hw.id",
        "rank": "rank",
    }


@pytest.mark.parametrize(("name", "sample"), PROMISED.items())
def test_the_names_are_those_promised(name: str, sample: str) -> None:
    assert exported.of(name).sample == sample


def test_what_is_exported_beside_the_table_is_that_promised() -> None:
    assert [one.sample for one in BESIDE] == [
        "gpudash_last_step_timestamp_seconds",
        "gpudash_limit_info",
        "gpudash_training_info",
        "gpudash_gpu_info",
    ]


def test_no_two_metrics_have_one_name_but_phases_and_the_steps_with_their_rate() -> None:
    names = [one.name for name, one in SERIES.items() if METRICS[name].kind != "phase"]
    names += [one.name for one in BESIDE]
    assert {name for name in names if names.count(name) > 1} == {"gpudash.steps"}


def test_names_and_units_are_valid_in_both_worlds() -> None:
    for one in (*SERIES.values(), *BESIDE):
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", one.name)
        assert re.fullmatch(r"[a-z][a-z0-9_]*", one.sample)
        assert one.sample.removesuffix("_total").endswith(one.unit.word)
    assert {metric.unit for metric in METRICS.values()} == set(UNITS)


def test_a_phase_that_a_workload_names_itself_is_one_of_the_phases() -> None:
    assert exported.of("encode_ms") == PHASES._replace(labels=(("phase", "encode"),))
