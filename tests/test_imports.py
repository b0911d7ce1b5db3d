"""Boundaries between the parts, as tests: what each process loads, and what it must not."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests import warm

HEAVY = ("torch", "torchvision", "scipy", "PIL")


def run_anew(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)


def loaded_by(
    code: str, run: Callable[..., subprocess.CompletedProcess[str]] = run_anew
) -> set[str]:
    program = f"import sys\nshown, sys.stdout = sys.stdout, sys.stderr\n{code}\n"
    program += "print(*sys.modules, file=shown)"
    return {name.partition(".")[0] for name in run("-c", program).stdout.split()}


@pytest.mark.parametrize(
    "code",
    [
        "import gpudash.cli.main, gpudash.cli.headless, gpudash.cli.doctor",
        "import gpudash.run.session, gpudash.tui.app, workloads; from gpudash import workload",
        "import gpudash.run.workload_process, workloads.own.loading",
        "from gpudash.cli.main import main; main(['list'])",
        "from gpudash.cli.main import main; main(['info'])",
        "sys.argv[1:] = ['--set', 'batch_size=0']; from workloads.__main__ import main; main()",
    ],
)
def test_the_dashboard_process_never_loads_torch(code: str) -> None:
    assert not loaded_by(code) & set(HEAVY)


def test_importing_gpudash_loads_nothing_but_itself() -> None:
    assert loaded_by("import gpudash") - loaded_by("import typing") == {"gpudash"}


def test_workloads_never_load_gpudash() -> None:
    code = "import workloads.bare_run, workloads.encdec, workloads.__main__, workloads.own.checks"
    loaded = loaded_by(code, warm.python)  # which has torch, and nothing of gpudash
    assert "torch" in loaded
    assert "gpudash" not in loaded


@pytest.mark.parametrize(
    ("verb", "heavy"), [("list", {"textual", "psutil", "pynvml", "rich"}), ("info", {"textual"})]
)
def test_a_verb_that_only_prints_loads_no_screen(verb: str, heavy: set[str]) -> None:
    assert not loaded_by(f"from gpudash.cli.main import main; main(['{verb}'])") & heavy


def test_a_headless_run_loads_no_screen() -> None:
    assert not loaded_by("import gpudash.cli.headless") & {"textual", "rich"}


def test_what_is_known_of_a_profile_loads_no_numpy() -> None:
    assert "numpy" not in loaded_by("import gpudash.trace.summary, gpudash.trace.text")


@pytest.mark.parametrize(
    "code",
    [
        "import gpudash.tui.bars, gpudash.tui.control, gpudash.tui.inbox",
        "import gpudash.report.page, gpudash.present.card, gpudash.present.ledger",
    ],
)
def test_what_is_shown_is_known_without_a_widget(code: str) -> None:
    assert "textual" not in loaded_by(code)


def test_the_dashboard_leaves_out_what_libraries_bring_along_and_it_never_uses():
    loaded = loaded_by("import gpudash.run.session, gpudash.tui.app")
    assert "textual" in loaded
    assert not loaded & {"ssl", "PIL", "unittest", "multiprocessing", "numpy"}


def test_what_was_left_out_can_be_imported_later():
    assert {"ssl", "unittest"} <= loaded_by("import gpudash.tui.app, ssl, unittest")
