"""gpudash in an environment of its own, without torch: what works, what is refused in a line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from tests.packaging import base_environment
from tests.packaging.test_built import built  # noqa: F401  # a fixture
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "tests" / "run" / "scripted_training.py"
HEAVY = ("torch", "torchvision", "scipy", "PIL")


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    (wheel,) = built.glob("*.whl")
    return base_environment.make(tmp_path_factory.mktemp("tool"), wheel)


@pytest.fixture
def environment(short_path: Path) -> dict[str, str]:
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | {"GPUDASH_RUN_DIR": str(short_path), "TERM": "xterm-256color"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of another machine, which had all."""
    path = tmp_path_factory.mktemp("recorded") / "run.csv"
    words = ["run", "--record", str(path), str(TRAINING), "--steps", "200", "--step-s", "0.01"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "gpudash", *words], check=True, env=environment)
    return path


@pytest.fixture
def gpudash(programs: Path, environment: dict[str, str], tmp_path: Path):
    def call(*words: str, **options) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / "gpudash", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            **options,
        )

    return call


def test_nothing_heavy_is_there(programs: Path, environment) -> None:
    code = f"import importlib.util as u; print([u.find_spec(name) for name in {HEAVY}])"
    found = subprocess.check_output([programs / "python", "-c", code], env=environment, text=True)
    assert found.strip() == str([None] * len(HEAVY))


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["list"],
        ["list", "jpeg_input", "--json"],
        ["show", "precision=bf16"],
        ["info"],
        ["doctor"],
        ["schema", "ab"],
        ["completion", "bash"],
        ["help", "run"],
        ["sweep", "encdec", "--vary", "batch_size=2,4", "--dry-run"],
    ],
)
def test_what_trains_nothing_works(gpudash, words: list[str]) -> None:
    done = gpudash(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["encdec", "--record", "x.csv"],
        ["ab", "encdec", "--lever", "compile=off,on"],
        ["sweep", "encdec", "--vary", "batch_size=2,4"],
        ["train", "encdec", "--once"],
        ["profile", "encdec"],
        ["why", "encdec"],
    ],
)
def test_what_trains_a_workload_is_refused_in_a_line(gpudash, words: list[str]) -> None:
    done = gpudash(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'gpudash[workloads]'" in done.stderr


def test_a_workload_of_the_users_own_names_the_line_that_fails(gpudash, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import torch\nfrom gpudash import workload\n")
    done = gpudash("train", "mine.py", "--once")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "mine.py:1: ModuleNotFoundError: No module named 'torch'" in done.stderr


def test_gpudash_alone_says_in_one_screen_what_can_be_done(gpudash) -> None:
    done = gpudash()
    assert (done.returncode, done.stderr) == (2, "")
    assert "gpudash run train.py" in done.stdout
    assert len(done.stdout.splitlines()) <= 24


@pytest.mark.parametrize("is_activated", [False, True])
def test_a_script_runs_by_the_shells_python_or_that_of_an_activated_environment(
    gpudash, environment, tmp_path: Path, *, is_activated: bool
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/echo")
    environment |= (
        {"VIRTUAL_ENV": str(tmp_path)}
        if is_activated
        else {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"}
    )
    (tmp_path / "train.py").touch()
    done = gpudash("run", "--watch", "train.py", "--lr", "1")
    assert (done.returncode, done.stdout) == (0, "train.py --lr 1\n")


def test_a_recording_is_reported_exported_compared_and_replayed(
    gpudash, programs: Path, environment, recorded: Path, tmp_path: Path
) -> None:
    log, again = str(recorded.with_suffix(".jsonl")), str(tmp_path / "again.csv")
    for words in (["report", str(recorded), "-o", "run.html"], ["export", log, "-o", again]):
        done = gpudash(*words)
        assert done.returncode == 0, done.stderr
    compared = gpudash("compare", str(recorded), again)
    assert compared.returncode == 0, compared.stderr
    screen = pexpect.spawn(
        str(programs / "gpudash"),
        ["replay", str(recorded)],
        env=environment,
        dimensions=(40, 120),
        timeout=PATIENCE_S,
    )
    screen.expect("quit")
    screen.send("q")
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == 0


def test_a_training_in_another_environment_is_attached_to(
    gpudash, programs: Path, environment, tmp_path: Path
) -> None:
    """The dashboard over a script that `gpudash run` of another environment has started."""
    (tmp_path / "train.py").write_text("import time; time.sleep(60)")
    job = subprocess.Popen(
        [programs / "python", "-m", "gpudash", "run", "train.py"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    with job:
        assert b"no terminal here" in job.stderr.readline()
        until(lambda: list(Path(environment["GPUDASH_RUN_DIR"]).glob("*/run.json")))
        screen = pexpect.spawn(
            str(programs / "gpudash"),
            ["attach"],
            env=environment,
            dimensions=(40, 120),
            timeout=PATIENCE_S,
        )
        screen.expect("train.py runs; torch is not imported so far")
        screen.close(force=True)
        job.terminate()
        assert job.wait(PATIENCE_S) == 143


def test_doctor_says_that_torch_is_the_scripts(gpudash) -> None:
    checks = json.loads(gpudash("doctor", "--json").stdout)["checks"]
    (torch,) = (check for check in checks if check["name"] == "torch")
    assert torch["ok"] is None
    assert re.search("not in gpudash's own environment", torch["detail"])
