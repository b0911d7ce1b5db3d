"""The sync window without a GPU: doubles warn as torch does, from inside C functions."""

import sys
import threading
import warnings
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from gpudash.instrument import callsite, syncs
from gpudash.instrument.syncs import (
    COPYING,
    OFF,
    PROTOTYPE,
    SYNC,
    WAITING,
    WARN,
    SyncWindow,
    waits_for_memory,
)

TEXT = f"{SYNC} (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:195.)"
wait = partial(warnings.warn, TEXT)
"""A C function, like torch's operators: it has no Python frame."""
ERROR = 2


TENSOR = SimpleNamespace(item=wait, nonzero=wait)


@pytest.fixture
def debug_mode(monkeypatch):
    """Replace torch's sync debug mode, as if there were a GPU."""
    mode = SimpleNamespace(now=OFF)

    def set_mode(new):
        warnings.warn(f"{PROTOTYPE} and …", stacklevel=1)
        mode.now = new

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode.now)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    monkeypatch.setattr(torch._C, "_cuda_synchronize", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_emptyCache", lambda: None)
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())
    return mode


def looking():
    """Return a window that has begun."""
    window = SyncWindow()
    window.start()
    return window


@pytest.fixture
def window(debug_mode):
    window = looking()
    yield window
    window.stop()


def here(offset=0):
    return sys._getframe(1).f_lineno + offset


def lines(calls):
    return [call.line for call in calls]


def in_torch(source, **names):
    """Run source as if it were in a file of torch's, and return its names."""
    exec(compile(source, f"{callsite.TORCH}_tensor_str.py", "exec"), names)
    return SimpleNamespace(**names)


# ---- what is seen


def test_a_warning_of_torchs_becomes_a_sync_call_with_its_line(window):
    TENSOR.item()
    (call,) = window.stop()
    assert (call.file, call.line, call.what) == (__file__, here(-2), "item")
    assert call.function == "test_a_warning_of_torchs_becomes_a_sync_call_with_its_line"
    assert call.thread == threading.get_native_id()


def test_calls_are_in_the_order_of_time(window):
    for wait in (TENSOR.item, TENSOR.item, TENSOR.nonzero):
        wait()
    calls = window.stop()
    assert lines(calls) == [here(-2)] * 3  # each counts, also from one line
    assert calls[0].at_ns <= calls[1].at_ns <= calls[2].at_ns


def test_a_wait_inside_torch_has_the_nearest_line_outside(window):
    torch_file = in_torch(
        "def _str_intern(): wait()\ndef _str(): _str_intern()\n_str_of = _str", wait=wait
    )
    torch_file._str_of()
    (call,) = window.stop()
    assert (call.file, call.line) == (__file__, here(-2))
    assert call.what == "_str_of"  # as the line says


def test_frames_of_gpudash_are_skipped_and_its_own_waits_not_recorded(window, monkeypatch):
    monkeypatch.setattr(callsite, "OURS", "/site-packages/gpudash/")
    ours = {"wait": wait}
    exec(compile("def step(): wait()", "/site-packages/gpudash/script/patches.py", "exec"), ours)
    ours["step"]()
    line = here(-1)
    monkeypatch.setattr(callsite, "OURS", __file__)
    torch.cuda.synchronize()
    assert lines(window.stop()) == [line]


def test_a_wait_on_another_thread_has_that_threads_id(window):
    thread = threading.Thread(target=TENSOR.item)
    thread.start()
    thread.join()
    assert [call.thread for call in window.stop()] == [thread.native_id]


@pytest.mark.parametrize("name", ["synchronize", "empty_cache"])
def test_waits_for_the_whole_device_are_seen_with_their_begin_though_torch_does_not_warn(
    window, name
):
    getattr(torch.cuda, name)()
    (call,) = window.stop()
    assert (call.file, call.line, call.what) == (__file__, here(-2), name)
    assert 0 < call.began_ns <= call.at_ns


@pytest.mark.parametrize("kind", [torch.Event, torch.Stream])
def test_waits_by_the_accelerators_types_are_seen_and_the_types_restored(debug_mode, kind):
    """They are C types, which refuse changes."""
    before = kind.synchronize
    syncs._set(kind, "synchronize", lambda _self: None)
    try:
        double = kind.synchronize
        window = looking()
        kind.synchronize(None)
        (call,) = window.stop()
        assert kind.synchronize is double
    finally:
        syncs._set(kind, "synchronize", before)
    assert kind.synchronize is before
    assert (call.file, call.line, call.what) == (__file__, here(-6), "synchronize")


@pytest.mark.parametrize(
    "copy",
    [lambda t: t.to(torch.float64), lambda t: t.copy_(torch.ones(2)), lambda t: t.to("cpu")],
)
def test_a_copy_that_waits_for_memory_is_seen_though_torch_does_not_warn(window, monkeypatch, copy):
    monkeypatch.setattr(syncs, "waits_for_memory", lambda _target, _tensors: True)
    copy(torch.zeros(2))
    (call,) = window.stop()
    assert (call.file, call.line) == (__file__, copy.__code__.co_firstlineno)
    assert call.what in ("to", "copy_")


class OnDevice(torch.Tensor):
    is_cuda = True


@pytest.mark.parametrize("is_pinned", [True, False])
def test_only_copies_from_pageable_memory_wait(monkeypatch, is_pinned):
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _self: is_pinned)
    here_, there = torch.zeros(2), torch.zeros(2).as_subclass(OnDevice)
    assert waits_for_memory(there, (here_, "cuda")) is not is_pinned
    assert waits_for_memory(there, (there, here_)) is not is_pinned
    assert not waits_for_memory(here_, (there, "cpu"))
    assert not waits_for_memory(there, (there, there))


def test_a_wait_that_torch_warns_of_and_a_hook_sees_counts_once(debug_mode, monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_synchronize", wait)
    window = looking()
    torch.cuda.synchronize()
    assert lines(window.stop()) == [here(-1)]


def test_a_call_that_fails_fails_as_before(debug_mode, monkeypatch):
    fails = Mock(side_effect=RuntimeError("CUDA error"))
    monkeypatch.setattr(torch._C, "_cuda_synchronize", fails)
    window = looking()
    with pytest.raises(RuntimeError, match="CUDA error"):
        torch.cuda.synchronize()
    assert len(window.stop()) == 1


# ---- what the line calls


def test_an_index_and_a_condition_are_named(window):
    tensor = in_torch(
        "class Tensor:\n"
        "    def __getitem__(self, index): wait()\n"
        "    def __setitem__(self, index, value): wait()\n"
        "    def __bool__(self): wait(); return True\n",
        wait=wait,
    ).Tensor()
    _ = tensor[0]
    tensor[0] = 1
    if tensor:
        pass
    bool(
        tensor,
    )
    assert [call.what for call in window.stop()] == ["index", "index", "bool", "bool"]


def test_without_source_the_function_in_torch_is_named(window):
    script = {"torch": in_torch("def unique(): wait()", wait=wait)}
    exec(compile("torch.unique()", "/nowhere/train.py", "exec"), script)
    exec(compile("wait()", "/nowhere/train.py", "exec"), {"wait": wait})
    calls = window.stop()
    assert [(call.file, call.what) for call in calls] == [
        ("/nowhere/train.py", "unique"),
        ("/nowhere/train.py", ""),
    ]


# ---- what the script notices: nothing


def test_the_script_sees_no_warning_of_torchs_and_all_others(debug_mode):
    window = SyncWindow()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        window.start()
        TENSOR.item()
        warnings.warn("the script's own", stacklevel=1)
        calls = window.stop()
    assert [str(one.message) for one in seen] == ["the script's own"]
    assert len(calls) == 1


@pytest.mark.parametrize("action", ["error", "ignore", "default", "once"])
def test_filters_that_the_script_adds_meanwhile_neither_raise_nor_hide(window, action):
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        TENSOR.item()
        warnings.filterwarnings(action, category=UserWarning)
        TENSOR.item()
    assert len(window.stop()) == 2


def test_afterwards_everything_is_as_it_was(debug_mode):
    filters = [*warnings.filters]
    functions = [getattr(owner, name) for owner, name in (*WAITING, *COPYING)]
    showing, adding = warnings.showwarning, warnings._add_filter
    window = looking()
    assert debug_mode.now == WARN
    window.stop()
    assert debug_mode.now == OFF
    assert warnings.filters == filters
    assert [getattr(owner, name) for owner, name in (*WAITING, *COPYING)] == functions
    assert (warnings.showwarning, warnings._add_filter) == (showing, adding)
    assert window.stop() == ()


def test_a_filter_list_kept_by_the_script_restores_nothing_of_ours(debug_mode):
    window = SyncWindow()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        window.start()
        kept = [*warnings.filters]
        window.stop()
        warnings.filters = kept
        TENSOR.item()
    assert len(seen) == 1


def test_functions_that_the_script_replaces_meanwhile_stay(debug_mode, monkeypatch):
    window = looking()
    monkeypatch.setattr(torch._C, "_cuda_synchronize", partial(torch._C._cuda_synchronize))
    theirs = torch._C._cuda_synchronize
    window.stop()
    assert torch._C._cuda_synchronize is theirs
    torch.cuda.synchronize()
    assert window.stop() == ()


@pytest.mark.parametrize("mode", [WARN, ERROR])
def test_a_debug_mode_of_the_scripts_own_stays(debug_mode, mode):
    debug_mode.now = mode
    window = looking()
    assert debug_mode.now == mode
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        TENSOR.item()
    assert len(seen) == 1  # the script asked for it
    debug_mode.now = ERROR  # the script sets another one
    assert lines(window.stop()) == [here(-3)]
    assert debug_mode.now == ERROR


def test_without_cuda_nothing_is_patched(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    filters, waiting = [*warnings.filters], torch._C._cuda_synchronize
    window = looking()
    assert (warnings.filters, torch._C._cuda_synchronize) == (filters, waiting)
    assert window.stop() == ()
