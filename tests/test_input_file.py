"""Whatever lies where a file is looked for, it is read with a bound, and never waited for."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudash import own_file
from gpudash.cli import tune_memory
from gpudash.cli.main import main
from gpudash.errors import UsageError
from gpudash.input_file import open_input, read_input
from gpudash.present.own_line import own_line
from gpudash.recording import provenance
from gpudash.recording.log import version_of
from gpudash.rendezvous import Rendezvous
from gpudash.run import runs
from gpudash.run.node_protocol import given_token
from gpudash.tui import preferences

pytestmark = pytest.mark.timeout(60)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room


NOT_A_FILE = {pipe: "named pipe", endless: "device", listener: "socket"}


@pytest.fixture(params=[*NOT_A_FILE, huge])
def make(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return request.param


@pytest.mark.parametrize(("make", "what"), NOT_A_FILE.items())
def test_what_is_no_file_is_refused(
    make: Callable[[Path], None], what: str, tmp_path: Path
) -> None:
    make(tmp_path / "it")
    with pytest.raises(OSError, match=f"it is a {what}; valid: a file"):
        open_input(tmp_path / "it")


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"x" * 10)
    assert read_input(tmp_path / "it", 10) == b"x" * 10
    with pytest.raises(OSError, match="it has more than 9 bytes"):
        read_input(tmp_path / "it", 9)


def test_files_of_gpudashs_own_count_as_none(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "gpudash").mkdir()
    make(tune_memory.place())
    make(preferences.place())
    assert own_file.read(tune_memory.place(), tune_memory.Findings()).findings == ()
    assert preferences.load() == preferences.Preferences()


def test_what_runs_beside_is_found_all_the_same(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "run.json")
    assert runs.read(Rendezvous(tmp_path)) is None


def test_a_provenance_a_log_and_a_script_count_as_none(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    for name in ("run.json", "run.jsonl", "train.py"):
        make(tmp_path / name)
    assert provenance.read(tmp_path / "run.json") is None
    assert version_of(tmp_path / "run.jsonl") is None
    script = str(tmp_path / "train.py")
    assert own_line(["python", script], "AdamW", "fused_optimizer", "fused") is None


@pytest.mark.parametrize(("make", "what"), NOT_A_FILE.items())
def test_a_token_is_read_from_a_file(
    make: Callable[[Path], None], what: str, tmp_path: Path
) -> None:
    make(tmp_path / "token")
    with pytest.raises(UsageError, match=f"--token-file .*: .*{what}"):
        given_token(tmp_path / "token")


def test_a_configuration_that_is_too_large_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    huge(tmp_path / "gpudash.toml")
    assert main(["ab", "encdec", "--lever", "pipelined=off,on"]) == 2
    assert "gpudash.toml: cannot be read: it has more than 16,777,216 bytes" in (
        capsys.readouterr().err
    )


def test_sweeps_of_what_is_no_file_are_one_line(
    make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.csv").write_text("")
    make(tmp_path / "sweep.json")
    words = ["sweep", "encdec", "--vary", "pipelined=off,on", "--csv", str(tmp_path / "sweep.csv")]
    assert main([*words, "--resume"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sweep.json" in line
