import pytest

from tests.trace.made import call, event, launched, operator, trace_of

FIRST, LAST = operator("first", 0, 1), operator("last", 999, 1)


def kept(tmp_path, *events, **also):
    trace = trace_of(tmp_path, FIRST, *events, LAST, **also)
    return [trace.names[i] for i in trace.events.name[trace.events.are("kernel")]], trace.dropped


@pytest.mark.parametrize("ts", [-50, 5000])
def test_a_kernel_outside_of_the_recording_is_left_out(ts, tmp_path):
    end = {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 2000}
    assert kept(tmp_path, event("kernel", "stray", ts, 5, (0, 7)), end) == ([], 1)


KEPT = {
    "a kernel before its launch is left out": (
        [launched(50, 5, call_ts=100, name="early"), launched(120, 5, call_ts=110, name="fine")],
        ["fine"],
        1,
    ),
    "a kernel may begin while its launch returns": (
        [launched(101, 5, call_ts=100, call_dur=9)],
        ["k"],
        0,
    ),
    "a negative length is left out": (
        [launched(120, -5, call_ts=110), operator("a", 5, -1)],
        [],
        2,
    ),
    "a kernel within an earlier one of its stream is left out": (
        [
            launched(100, 50, call_ts=10, name="outer"),
            launched(110, 5, call_ts=20, name="within"),
            launched(110, 5, call_ts=30, name="beside", stream=20),
        ],
        ["outer", "beside"],
        1,
    ),
    "a kernel may begin while the one before it drains": (
        [launched(100, 50, call_ts=10), launched(147, 50, call_ts=20)],
        ["k", "k"],
        0,
    ),
    "branches of a replayed graph may run side by side": (
        [
            call("cudaGraphLaunch", 50, 5, correlation=5_000),
            event("kernel", "long", 100, 50, (0, 7), correlation=5_000),
            event("kernel", "short", 110, 5, (0, 7), correlation=5_000),
        ],
        ["long", "short"],
        0,
    ),
}


@pytest.mark.parametrize(("events", "names", "dropped"), KEPT.values(), ids=KEPT)
def test_what_contradicts_itself_is_left_out(tmp_path, events, names, dropped):
    assert kept(tmp_path, *events) == (names, dropped)


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
