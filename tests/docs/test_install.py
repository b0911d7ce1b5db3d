"""The lines of the pages about installing and clusters, run over stubs of what they call.

What they install is tested by tests/packaging, and what they open by tests/cli/test_clusters.py.
"""

import os
import re
import sys
from pathlib import Path

import pytest

from gpudash.cli.main import main
from tests.docs.test_commands import ROOT
from tests.waiting import done

PAGES = [ROOT / "docs" / "guide" / name for name in ("install.md", "clusters.md")]
BASH = re.compile(r"^```bash\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
GPUDASH = """
import sys
from gpudash.cli.main import parse
verb, arguments = parse(sys.argv[1:])
command = getattr(arguments, "user_command", None)
if command:  # what it would run is there
    from gpudash.run.user_command import understand
    understand(command)
"""
STUBS = {
    "gpudash": f"exec '{sys.executable}' -c '{GPUDASH}' \"$@\"",
    "uv": """
case "$1 $2" in
  "tool install") case "$3" in gpudash | "gpudash[workloads]") exit 0 ;; esac ;;
  "run train.py") exit 0 ;;
esac
exit 9""",
    "pip": '[ "$1 $2" = "install gpudash" ]',
    "conda": '[ "$1" = activate ]',
    "sbatch": 'if [ "$1" = --wrap ]; then exec sh -c "$2"; fi; exec sh "$1"',
    "srun": 'while [ "$1" != --pty ]; do shift; done; shift; exec "$@"',
    "docker": '[ "$1 $2" = "exec -it" ] && shift 3 && exec "$@"',
    "kubectl": '[ "$1 $2 $4" = "exec -it --" ] && shift 4 && exec "$@"',
    "ssh": '[ "$1" = -t ] && shift 2 && exec "$@"',
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with its environment, a job, and programs that call what they are told."""
    (tmp_path / "bin").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / "job.sh").write_text("gpudash run train.py\n")
    return tmp_path


def blocks(page: Path) -> list[str]:
    return BASH.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "block", [block for page in PAGES for block in blocks(page)], ids=lambda text: text[:40].strip()
)
def test_every_block_of_the_pages_is_valid(project: Path, block: str) -> None:
    environment = os.environ | {
        "PATH": f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(project),
    }
    ran = done("bash", "-e", "-c", block, cwd=project, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_case_has_a_block() -> None:
    assert [len(blocks(page)) for page in PAGES] == [8, 3]


def test_the_readme_begins_with_the_two_lines_and_names_both_commands_of_a_fresh_machine() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = readme.partition("```\n")[2].partition("```")[0].splitlines()
    assert [line.partition("#")[0].strip() for line in first] == [
        "uv tool install gpudash",
        "gpudash run train.py",
    ]
    assert readme.index("uv tool install") < readme.index("encdec")
    for command in ("make run", "make test"):
        assert command in readme


def test_the_environments_size_and_bounds_are_those_of_the_page() -> None:
    page = PAGES[0].read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name, bound in (("msgspec", "0.21"), ("textual", "8.2.5")):
        assert f'"{name}>={bound}' in project
        assert re.search(rf"`{name}` {re.escape(bound)}", page)


def test_doctors_lines_are_the_pages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # of torch the page says nothing
    monkeypatch.setattr("gpudash.cli.doctor.ASK_TORCH", "raise SystemExit(1)")
    assert main(["doctor"]) == 0
    for text in (capsys.readouterr().out, PAGES[1].read_text(encoding="utf-8")):
        for name in ("machine", "shared memory", "runs"):
            assert re.search(rf"^(ok|no)  {name} ", text, flags=re.MULTILINE)
