"""The report of a machine with a GPU, of one without, and of one where torch is broken."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpudash.cli import doctor
from gpudash.cli.doctor import READINGS, Check, examine, report
from gpudash.telemetry import gpm
from tests import warm
from tests.telemetry.shim import FIRST, SECOND, Driver, build

ACTIVITY = "SM, tensor and DRAM activity"
BARE = """
import sys
from gpudash.cli.main import main
from gpudash.cli import doctor
from gpudash.telemetry import gpm
gpm.SHORTEST_S = 0.001  # the stand-in's counters need no time between
doctor.ASK_TORCH = {!r}
main(["doctor", "--json"])
assert "torch" not in sys.modules
"""
SOME_TORCH = (
    'print(\'{"version": "2.11", "cuda": null, "devices": [], "instruments_us": [1.94, 5.1]}\')'
)
SLOW_HOOK = """
import time
from gpudash.script.tracker import HANDLERS
begins = HANDLERS["forward: begins"]
def slow(*words):
    until_s = time.thread_time() + 0.02
    while time.thread_time() < until_s:
        pass
    return begins(*words)
HANDLERS["forward: begins"] = slow
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def no_library(tmp_path: Path) -> dict[str, str]:
    """Environment of a process that finds no driver library, whatever this machine has."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    return os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}


def checks(environment: dict[str, str], torch: str = SOME_TORCH) -> dict[str, dict[str, object]]:
    command = [sys.executable, "-c", BARE.format(torch)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def checked(monkeypatch: pytest.MonkeyPatch, name: str, torch: str = SOME_TORCH) -> Check:
    """The check of this name, made in this process."""
    monkeypatch.setattr(doctor, "ASK_TORCH", torch)
    (check,) = (check for check in examine() if check.name == name)
    return check


def test_a_machine_with_gpus_gives_the_cost_of_every_reading_and_which_gpu_lacks_one(
    library: Path, tmp_path: Path
):
    driver = Driver(tmp_path / "gpu")
    driver.says("gpu1.nvmlDeviceGetEnforcedPowerLimit.error 3")
    found = checks(driver.environment(library))
    assert found["NVML"] == {"name": "NVML", "ok": True, "detail": "driver 580.65.06"}
    names = [found[f"GPU {index}"]["detail"] for index in (0, 1)]
    assert names == [f"Hopper One, {FIRST}", f"Hopper Two, {SECOND}"]
    lacking = found.pop("power limit")
    for name in {*READINGS} - {"power limit"}:
        assert found[name]["ok"], name
        assert str(found[name]["detail"]).endswith("µs a call on 2 of 2 GPUs")
    assert lacking["ok"] is False
    assert re.fullmatch(
        r"[\d.]+ µs a call on 1 of 2 GPUs; GPU 1: not supported by this GPU",
        str(lacking["detail"]),
    )


@pytest.mark.parametrize(
    ("text", "ok", "detail"),
    [
        (None, None, "no file"),
        ("rate = 2", True, "gpudash.toml"),
        ("raet = 2", False, "gpudash.toml:1: unknown key 'raet'"),
    ],
)
def test_the_used_configuration_or_its_error_is_reported(
    text: str | None, ok: object, detail: str, private: Path, printed, monkeypatch
):
    monkeypatch.setattr(doctor, "examine", tuple)
    if text is not None:
        (private / "gpudash.toml").write_text(text)
    (check,) = json.loads(printed("doctor", "--json"))["checks"]
    assert check | {"name": "configuration", "ok": ok} == check
    assert detail in check["detail"]


@pytest.mark.parametrize(
    ("says", "reasons"),
    [
        (
            ["nvmlGpmQueryDeviceSupport 0", "nvmlDeviceGetUtilizationRates.error 3"],
            {ACTIVITY: "needs a Hopper GPU or newer", "utilisation": "not supported by this GPU"},
        ),
        (
            ["nvmlGpmSampleGet.error 4", "nvmlDeviceGetClockInfo.error 15"],
            {ACTIVITY: "the NVIDIA driver refuses permission", "clocks": "the GPU was lost"},
        ),
        (
            ["nvmlGpmMetricsGet.error 999"],
            {ACTIVITY: "the NVIDIA driver answers “Unknown Error”"},
        ),
        (
            [f"gpm.{number} nan" for number in gpm.METRICS.values()],
            {ACTIVITY: "the NVIDIA driver gives no value"},
        ),
    ],
)
def test_a_reading_that_cannot_be_taken_says_why(
    library: Path, tmp_path: Path, says: list[str], reasons: dict[str, str]
):
    driver = Driver(tmp_path / "gpu")
    driver.says("\n".join(says))
    found = checks(driver.environment(library))
    for name, reason in reasons.items():
        assert found[name]["ok"] is False
        assert str(found[name]["detail"]).startswith(reason)
    assert found["memory"]["ok"]


def test_a_machine_without_a_gpu_says_so_and_succeeds(no_library: dict[str, str]):
    found = checks(no_library)
    assert found["NVML"]["ok"] is False
    assert "no NVIDIA driver library" in str(found["NVML"]["detail"])
    assert {found[name]["ok"] for name in READINGS} == {None}
    assert found["torch device"]["detail"] == "no CUDA device: training runs on the CPU"
    assert found["own cost"]["detail"] == "1.9 µs a step, 5.1 µs where its phases are measured"
    size, unit, *_ = str(found["own memory"]["detail"]).split()
    assert unit == "MiB"
    assert 1 < int(size) < 1000


@pytest.mark.parametrize(
    ("torch", "detail"),
    [
        ("import no_such_torch", "ModuleNotFoundError: No module named 'no_such_torch'"),
        ("import sys; sys.exit(7)", "its import ended with code 7"),
        ("import time; time.sleep(600)", "its import took longer than 1 s"),
    ],
)
def test_a_torch_that_does_not_import_is_one_line(
    monkeypatch: pytest.MonkeyPatch, torch: str, detail: str
):
    if "sleep" in torch:
        monkeypatch.setattr(doctor, "TORCH_TIMEOUT_S", 1.0)
    assert checked(monkeypatch, "torch", torch) == Check(name="torch", ok=False, detail=detail)


def test_a_users_folder_named_like_gpudashs_is_not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "__init__.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    found = checked(monkeypatch, "torch", f"import workloads.levers; {SOME_TORCH}")
    assert found == Check(name="torch", ok=True, detail="2.11, built without CUDA")


def test_torch_devices_are_named_with_their_uuid(no_library: dict[str, str]):
    says = {"version": "2.15", "cuda": "13.0", "devices": [["H200", FIRST]]}
    found = checks(no_library, f"print({json.dumps(says | {'instruments_us': [9, 21]})!r})")
    assert found["torch"]["detail"] == "2.15, built for CUDA 13.0"
    assert found["torch device"]["detail"] == f"H200, UUID {FIRST}"


def test_the_own_cost_is_that_of_a_script_with_its_hooks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # other tests may leave no room on a GPU
    said = warm.python("-c", SLOW_HOOK + doctor.ASK_TORCH).stdout
    cost = checked(monkeypatch, "own cost", f"print({said!r})")
    average_us, phases_us = (float(word) for word in cost.detail.split() if word[0].isdigit())
    assert cost.ok
    assert all(20_000 <= one_us < 25_000 for one_us in (average_us, phases_us))


def test_the_report_is_one_aligned_line_a_check_or_a_reason_why_some_cannot_be_measured():
    lines = report(
        (
            Check(name="python", ok=True, detail="3.11"),
            Check(name="NVML", ok=False, detail="not found"),
            Check(name="memory", ok=None, detail="no GPU to read"),
            Check(name="clocks", ok=None, detail="no GPU to read"),
            Check(name="power", ok=None, detail="no GPU to read"),
        )
    ).splitlines()
    assert lines == [
        "ok  python           3.11",
        "no  NVML             not found",
        "–   memory to power  no GPU to read",
    ]


@pytest.mark.parametrize(
    ("environment", "colours"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "16 million colours"),
        ({"TERM": "xterm-256color"}, "256 colours"),
        ({"TERM": "xterm"}, "16 colours"),
        ({"TERM": "xterm", "COLORTERM": "truecolor", "NO_COLOR": "1"}, "greys alone"),
    ],
)
def test_the_terminals_colours_follow_its_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colours: str
):
    for name in ("TERM", "COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert colours in doctor._terminal().detail


# ── limits of a job ─────────────────────────────────────────────────────────────────────


def test_the_limits_of_the_control_group_are_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "cores_quota", lambda: 1.5)
    monkeypatch.setattr(doctor, "usable_cores", lambda: 1)
    monkeypatch.setattr(doctor, "memory_limit_bytes", lambda: 1 << 29)
    detail = checked(monkeypatch, "machine").detail
    assert "1 of them usable here (quota of the cgroup: 1.5); " in detail
    assert detail.endswith("GiB of memory, 0.5 of them for this cgroup")


@pytest.mark.parametrize(
    ("size_mib", "ok", "advice"), [(64, False, "die of a bus error"), (4096, True, "")]
)
def test_a_small_shared_memory_is_said_with_what_makes_it_larger(
    monkeypatch: pytest.MonkeyPatch, *, size_mib: int, ok: bool, advice: str
):
    blocks = size_mib << 8
    sizes = os.statvfs_result((4096, 4096, blocks, blocks - 512, blocks - 512, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: sizes)
    check = checked(monkeypatch, "shared memory")
    assert check.ok is ok
    assert f"/dev/shm has {size_mib:,} MiB, {size_mib - 2:,} of them free" in check.detail
    assert advice in check.detail


def test_no_shared_memory_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(doctor, "SHARED", str(tmp_path / "none"))
    check = checked(monkeypatch, "shared memory")
    assert check == Check(
        name="shared memory",
        ok=False,
        detail=f"{tmp_path}/none: No such file or directory; loader workers need it",
    )


def test_in_a_job_it_says_how_to_look_in(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert "srun --overlap --jobid 77" in checked(monkeypatch, "runs").detail


def test_a_folder_that_cannot_hold_runs_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(tmp_path / "none"))
    check = checked(monkeypatch, "runs")
    assert not check.ok
    assert check.detail.startswith("GPUDASH_RUN_DIR: ")
