"""What each of several ranks reports about its waits for the others."""

from statistics import median

import pytest

from tests.script import ranks

OTHERS = [rank for rank in range(ranks.RANKS) if rank != ranks.SLOW]
DIFFERS = 3
"""A delay is more than this many times as long as the same phase on other ranks."""


@pytest.fixture(scope="module")
def results(results_of):
    """Return by shape the results of each rank."""
    each = results_of("ranks")
    return {shape: [rank[shape] for rank in each] for shape in ranks.SHAPES}


def usual(rank, phase):
    """Return the median of a phase over the steps with a measurement; 0 without one."""
    if phase == "data":
        return median(rank["data_ms"])
    return median([one[phase] for one in rank["phases_ms"] if phase in one] or [0.0])


def waits_ms(rank):
    """How long it waits for the others, over all steps."""
    return sum(one.get("communication", 0.0) for one in rank["phases_ms"])


def own_ms(rank):
    """How long all else takes: a busy machine makes a step longer on any rank, and in any phase."""
    in_phases = sum(sum(one.values()) for one in rank["phases_ms"])
    return sum(rank["data_ms"]) + in_phases - waits_ms(rank)


@pytest.mark.parametrize("shape", ranks.SHAPES)
def test_each_step_is_counted_and_no_hook_fails(results, shape):
    for rank in results[shape]:
        assert (rank["failures"], rank["steps"]) == ([], ranks.STEPS)


@pytest.mark.parametrize(
    ("shape", "phase"),
    [
        ("slow_in_data", "data"),
        ("slow_in_forward", "forward"),
        ("slow_in_backward", "backward"),
        ("slow_in_optimizer", "optimizer"),
        ("no_sync", "your_code"),
        ("sharded", "backward"),
    ],
)
def test_a_delay_shows_in_its_phase_on_the_slow_rank_and_as_communication_on_the_others(
    results, shape, phase
):
    late = results[shape][ranks.SLOW]
    assert usual(late, phase) > 1e3 * ranks.DELAY_S
    for other in (results[shape][rank] for rank in OTHERS):
        assert usual(late, phase) > DIFFERS * usual(other, phase)
        assert waits_ms(other) - waits_ms(late) > (own_ms(late) - own_ms(other)) / 2


def test_a_delay_in_the_backward_pass_shows_in_one_of_its_parts_which_are_the_same_on_all_ranks(
    results,
):
    passes = [
        [one["backward"] for one in rank["parts_ms"] if "backward" in one]
        for rank in results["slow_in_backward"]
    ]
    assert {len(parts) for each in passes for parts in each} == {4}
    usual_ms = [[median(part) for part in zip(*each, strict=True)] for each in passes]
    late_ms = usual_ms.pop(ranks.SLOW)
    longer_ms = [late - max(others) for late, *others in zip(late_ms, *usual_ms, strict=True)]
    assert max(longer_ms) > 1e3 * ranks.DELAY_S / 2
    assert sorted(longer_ms)[-2] < 1e3 * ranks.DELAY_S / 4


def test_backward_passes_within_no_sync_do_not_communicate(results):
    (mib,), (sent_mib,) = (
        {rank["collectives"][0][0] for rank in results[shape]}
        for shape in ("no_sync", "sends_each_pass")
    )
    assert sent_mib == pytest.approx(2 * mib)


def test_the_bytes_and_the_duration_of_ddps_all_reduce_are_reported(results):
    bytes_sent = 4 * sum(one.numel() for one in ranks.Net().parameters())
    for rank in results["slow_in_forward"]:
        ((mib, bus_mib, taken_ms, _exposed_ms),) = rank["collectives"]
        assert mib == pytest.approx(bytes_sent / 2**20)
        assert bus_mib == pytest.approx(2 * (ranks.RANKS - 1) / ranks.RANKS * mib)
        assert taken_ms > 0


@pytest.mark.parametrize("shape", ["branches", "frozen", "groups", "buffers", "compiled"])
def test_communication_is_measured_whichever_gradient_is_the_last(results, shape):
    for rank in results[shape]:
        measured = [one for one in rank["phases_ms"] if "communication" in one]
        assert (
            len(measured) >= len(rank["phases_ms"]) - 3
        )  # at first another last gradient is known
        assert usual(rank, "communication") > 0


def test_collectives_called_by_the_script_are_reported_as_unmeasured(results):
    for rank in results["unwrapped"]:
        assert rank["found"].endswith(
            "exposed communication cannot be measured: "
            "neither DistributedDataParallel nor fully_shard is seen"
        )
        assert usual(rank, "communication") == 0


def test_nothing_is_reported_as_unmeasured_if_everything_is_measured(results):
    for shape in ("slow_in_data", "sharded", "no_sync"):
        assert not any("measured" in rank["found"] for rank in results[shape])


@pytest.mark.parametrize("shape", ["sharded", "gathered"])
def test_a_sharded_model_is_found_whether_its_modules_hold_shards_or_whole_parameters(
    results, shape
):
    for rank in results[shape]:
        assert "root FSDPNet" in rank["found"]


def test_nothing_is_compiled_again(results):
    for rank in results["compiled"]:
        assert (
            len({*rank["compiled"][1:]}) == 1
        )  # the second step is compiled again without hooks too


@pytest.mark.parametrize("shape", ["left_alone", "fails_in_backward"])
def test_nothing_of_ours_is_on_the_model_between_passes(results, shape):
    for rank in results[shape]:
        assert rank["traces"] == []
    assert results["fails_in_backward"][0]["error"] == "the script's own"
