from gpudash.metrics import METRICS, has_phases, phases_ms, process_reading, since
from gpudash.protocol.training import Progress
from tests.scripted_run import gpu


def test_a_reading_of_names_that_the_table_does_not_know_is_kept():
    assert since(gpu(10.0, fan_pct=30.0), 9.9).values == {"fan_pct": 30.0}


def test_every_phase_has_a_hue_of_its_own_and_is_drawn_with_the_step():
    phases = [one for one in METRICS.values() if one.kind == "phase"]
    assert len({one.hue for one in phases}) == len(phases)
    assert {one.chart for one in phases} == {"step time"}


def test_a_rollouts_time_is_in_each_step_and_does_not_show_that_phases_were_measured():
    assert METRICS["rollout_ms"].in_steps == "each"
    assert not has_phases({"rollout_ms": 4.0, "data_ms": 1.0})
    assert has_phases({"rollout_ms": 4.0, "forward_ms": 1.0})
    assert has_phases({"of_a_workload_ms": 1.0})


def test_every_number_has_a_word_of_its_own():
    labels = [one.label for one in METRICS.values() if one.label]
    assert len(labels) == len(set(labels))


def test_device_memory_told_with_a_report_is_a_reading_of_that_moment():
    known = {"mem_reserved_mib": 30.0}
    told = Progress(until_s=3.0, steps=(), total_steps=0, total_samples=0, values=known)
    found = process_reading(told)
    assert found is not None
    assert (found.at_s, found.values) == (3.0, {"mem_reserved_mib": 30.0})


def test_a_report_without_process_reading_is_no_reading():
    assert process_reading(Progress(until_s=3.0, steps=(), total_steps=0, total_samples=0)) is None


def test_values_of_steps_are_means_as_rows_and_charts_make_them():
    assert {one.over_time for one in METRICS.values() if one.in_steps} == {"mean"}
    assert {one.kind for one in METRICS.values() if one.in_steps} == {"step", "phase"}


def test_a_phase_is_known_by_the_table_or_by_nobody_else():
    values = {"host_ms": 1.0, "overlap_ms": 2.0, "forward_ms": 3.0, "encode_ms": 4.0}
    assert phases_ms(values) == {"forward": 3.0, "encode": 4.0}


def test_every_metric_says_what_measures_it_how_uncertain_it_is_and_what_becomes_of_its_values():
    for name, one in METRICS.items():
        assert len(one.measured_by) > 3, name
        assert one.uncertainty, name
        assert one.formula, name
    assert METRICS["gpu_util_pct"].measured_by == "nvmlDeviceGetUtilizationRates"
    assert METRICS["forward_ms"].measured_by == METRICS["backward_ms"].measured_by

    assert METRICS["power_w"].uncertainty != METRICS["sm_active_pct"].uncertainty
