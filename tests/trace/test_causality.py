import pytest

from tests.trace.made import call, event, launched, operator, trace_of

FIRST, LAST = operator("first", 0, 1), operator("last", 999, 1)


def kept(tmp_path, *events, **also):
    trace = trace_of(tmp_path, FIRST, *events, LAST, **also)
    return [trace.names[i] for i in trace.events.name[trace.events.are("kernel")]], trace.dropped


def test_a_kernel_before_its_launch_is_left_out(tmp_path):
    early = launched(50, 5, call_ts=100, name="early")
    fine = launched(120, 5, call_ts=110, name="fine")
    assert kept(tmp_path, early, fine) == (["fine"], 1)


def test_a_kernel_may_begin_while_its_launch_returns(tmp_path):
    assert kept(tmp_path, launched(101, 5, call_ts=100, call_dur=9)) == (["k"], 0)


def test_a_negative_length_is_left_out(tmp_path):
    assert kept(tmp_path, launched(120, -5, call_ts=110), operator("a", 5, -1)) == ([], 2)


@pytest.mark.parametrize("ts", [-50, 5000])
def test_a_kernel_outside_of_the_recording_is_left_out(ts, tmp_path):
    end = {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 2000}
    assert kept(tmp_path, event("kernel", "stray", ts, 5, (0, 7)), end) == ([], 1)


def test_a_kernel_within_an_earlier_one_of_its_stream_is_left_out(tmp_path):
    outer = launched(100, 50, call_ts=10, name="outer")
    within = launched(110, 5, call_ts=20, name="within")
    beside = launched(110, 5, call_ts=30, name="beside", stream=20)
    assert kept(tmp_path, outer, within, beside) == (["outer", "beside"], 1)


def test_a_kernel_may_begin_while_the_one_before_it_drains(tmp_path):
    events = [launched(100, 50, call_ts=10), launched(147, 50, call_ts=20)]
    assert kept(tmp_path, *events)[1] == 0


def test_branches_of_a_replayed_graph_may_run_side_by_side(tmp_path):
    events = [
        call("cudaGraphLaunch", 50, 5, correlation=5_000),
        event("kernel", "long", 100, 50, (0, 7), correlation=5_000),
        event("kernel", "short", 110, 5, (0, 7), correlation=5_000),
    ]
    assert kept(tmp_path, *events) == (["long", "short"], 0)


def test_launches_stay_with_their_kernels_when_others_are_left_out(tmp_path):
    early = launched(50, 5, call_ts=100, name="early")
    fine = launched(120, 5, call_ts=110, name="fine")
    trace = trace_of(tmp_path, FIRST, early, fine, LAST)
    (kernel,) = trace.events.are("kernel").nonzero()[0]
    assert trace.events.begin_us[trace.events.launch[kernel]] == 110


def test_time_begins_with_the_first_event_that_is_kept(tmp_path):
    stray = event("kernel", "stray", -1e6, 5, (0, 7))
    trace = trace_of(tmp_path, stray, FIRST, LAST, baseTimeNanoseconds=5_000)
    assert trace.events.begin_us.tolist() == [0, 999]
    assert trace.began_ns == 5_000
