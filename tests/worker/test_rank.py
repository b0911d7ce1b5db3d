"""One of several ranks, as a process."""

import socket
import sys
from pathlib import Path

import msgspec
import pytest
from torch import distributed

from gpudash.protocol.commands import Plan
from gpudash.worker import rank


@pytest.mark.parametrize(("code", "times"), [(0, 1), (1, 0)])
def test_a_rank_leaves_the_process_group_only_after_success(
    code: int, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []
    ours, dashboard = socket.socketpair()
    plan = msgspec.json.encode(Plan(workload="encdec", settings={}, nproc=2)).decode()
    monkeypatch.setattr(sys, "argv", ["rank", str(tmp_path), plan])
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(rank, "die_with", lambda _parent: None)
    monkeypatch.setattr(rank, "keep_compiled_code", lambda _scratch: None)  # sets the environment
    monkeypatch.setattr(rank, "await_dashboard", lambda _place: ours)
    monkeypatch.setattr(rank, "work", lambda *_args: code)
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: left.append(True))
    with ours, dashboard:
        assert rank.main() == code
    assert len(left) == times
