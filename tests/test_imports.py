"""Boundaries between the parts, as tests: what each process loads, and what it must not."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests import warm

BEGIN = "import sys; shown, sys.stdout = sys.stdout, sys.stderr"
HEAVY = ("torch", "torchvision", "scipy", "PIL")


def run_anew(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)


def loaded_by(
    code: str, run: Callable[..., subprocess.CompletedProcess[str]] = run_anew
) -> set[str]:
    program = f"{BEGIN}\n{code}\nprint(*sys.modules, file=shown)"
    return {name.partition(".")[0] for name in run("-c", program).stdout.split()}


VERB = "from gpudash.cli.main import main; main([{!r}])"
DRAWN = """
import asyncio
from tests.tui.driving import dashboard
from tests.tui.fake_engine import training

async def draw():
    async with dashboard(snapshot=training()) as d:
        await d.press("p", "g")

asyncio.run(draw())
"""
PROCESSES = {
    "a verb that only prints, and what is known without a screen": [
        (VERB.format("list"), "textual rich numpy psutil pynvml"),
        ("import gpudash.trace.summary, gpudash.trace.text", "textual rich numpy"),
        ("import gpudash.cli.sweep", "textual rich numpy matplotlib"),
        ("import gpudash.cli.headless", "textual rich"),
        ("import gpudash.report.page, gpudash.present.card, gpudash.present.ledger", "textual"),
        ("import gpudash.tui.bars, gpudash.tui.control, gpudash.tui.inbox", "textual"),
        (VERB.format("info"), "textual"),
        ("import gpudash.cli.doctor, workloads; from gpudash import workload", ""),
    ],
    "the dashboard, without what libraries bring along and it never uses": [
        (
            "import gpudash.tui.app",
            "ssl unittest multiprocessing numpy pynvml psutil markdown_it gpudash.run.session",
        ),
        ("import gpudash.run.session", "ssl unittest multiprocessing numpy"),
        (DRAWN, "numpy pynvml"),
        ("import ssl, unittest", ""),  # what was left out can be imported later
    ],
    "a workload's own process": [
        ("import gpudash.run.workload_process, workloads.own.loading", ""),
        (
            "sys.argv[1:] = ['--set', 'batch_size=0']; from workloads.__main__ import main; main()",
            "",
        ),
    ],
}


@pytest.mark.parametrize("stages", PROCESSES.values(), ids=PROCESSES)
def test_no_process_but_the_trainings_loads_torch_nor_what_it_has_no_use_for(stages) -> None:
    """One process does one after the other: what it may not load, nothing before has loaded."""
    code = "\n".join(f"{code}\nprint(*sys.modules, file=shown)" for code, _ in stages)
    loaded = run_anew("-c", f"{BEGIN}\n{code}").stdout.splitlines()
    for modules, (code, unused) in zip(loaded, stages, strict=True):
        assert not {*modules.split()} & {*HEAVY, *unused.split()}, code


def test_importing_gpudash_loads_nothing_but_itself() -> None:
    assert loaded_by("import gpudash") - loaded_by("import typing") == {"gpudash"}


def test_workloads_never_load_gpudash() -> None:
    code = "import workloads.bare_run, workloads.encdec, workloads.__main__, workloads.own.checks"
    loaded = loaded_by(code, warm.python)  # which has torch, and nothing of gpudash
    assert "torch" in loaded
    assert "gpudash" not in loaded
