"""Every command of README, guide and `gpudash skill` runs, and comes to what the page says.

A page's commands run in order in one folder, over the worker's double: no torch, and blocks of a
sweep and an A/B that last a moment. The reader's `train.py` is a double too. A verb's screen opens
in a terminal, but for a workload once: further ones are printed. The others are called. What
several pages have runs as the last one's.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from gpudash.cli import ab_changes, sweep_grid
from gpudash.cli.main import main, parse
from gpudash.cli.verbs import load
from gpudash.compare import experiment, meter
from gpudash.compare.rounds import FEWEST_ROUNDS
from tests import worker_double
from tests.cli.conftest import ended, shows
from tests.waiting import free_port
from workloads import CATALOGUE

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "gpudash" / "cli" / "skill.md"
PAGES = [SKILL, ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
"""Its language, none for commands, and its text."""
NAME = re.compile(r"# (\S+\.py)\n")
"""The first line of a file on a page."""
FOOTER, FOUND = "quit", "num_workers"
"""What a screen shows once it stands, and one over a script once the training is found."""
SCREENS = {"": FOOTER, "train": FOOTER, "replay": FOOTER, "run": FOUND}
"""Verbs that open the dashboard …"""
WITHOUT_SCREEN = ("record", "jsonl", "once", "watch")
"""… unless one of these options is given: then it is run to its end."""
SHORT, LONG = "2", "1000"
"""Epochs of the reader's training, if its command does not say how many."""
TRAIN = """
import os, sys
from functools import partialmethod
from tests.run.scripted_training import Worker, main
Worker.__init__ = partialmethod(Worker.__init__, lambda _: 10.5)  # ms, about as it is
given = [word for word in sys.argv[1:] if word.isdecimal()]
epochs = int((*given, os.environ["EPOCHS"])[0])
sys.argv[1:] = ["--steps", str(50 * epochs), "--step-s", "0.01"]
try:
    main()
except KeyboardInterrupt:
    pass
"""

TORCH = """
import sys
from types import ModuleType, SimpleNamespace
nn = sys.modules["torch.nn"] = ModuleType("torch.nn")
nn.functional = None
utils = SimpleNamespace(data=SimpleNamespace(Dataset=object))
"""
"""What the pages' workloads need of torch to be imported: these train nothing either."""


def commands(page: Path) -> list[str]:
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    lines = "".join(text for language, text in blocks if not language).splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.startswith("gpudash")]


def write_files(page: Path, folder: Path) -> None:
    """Write the page's Python files, each of which begins with its name."""
    for _, text in FENCE.findall(page.read_text(encoding="utf-8")):
        if named := NAME.match(text):
            (folder / named[1]).write_text(text, encoding="utf-8")


def make_repository(folder: Path) -> None:
    """Make the folder a repository with a branch `main`."""
    who = ("-c", "user.name=reader", "-c", "user.email=reader@example.org")
    for words in (("init", "-b", "main"), ("add", "--all"), ("commit", "-m", "first")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def folder(
    called_with_double: None, tmp_path: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The working folder. What is called here sees what a process does."""
    (short_path / "torch.py").write_text(TORCH, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    monkeypatch.setenv("PYTHONPATH", str(short_path), prepend=os.pathsep)
    monkeypatch.setenv("DOUBLE_STEP_S", "0.005")
    for module, name in (
        (experiment, "BLOCK_S"),
        (experiment, "RUN_S"),
        (meter, "BLOCK_S"),
        (sweep_grid, "MIN_S"),
    ):
        monkeypatch.setattr(module, name, 0.03)  # so many ahead that a busy machine misses none
    _, budget, *_ = load("tune").options[1].options
    monkeypatch.setitem(budget.how, "default", 2.0)
    monkeypatch.setattr(ab_changes, "MOST_ROUNDS", 1)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = dict(CATALOGUE)
    yield tmp_path
    CATALOGUE.clear()
    CATALOGUE.update(before)


def run_in_terminal(words: list[str], folder: Path, screen: str) -> tuple[int | None, str]:
    """Show the screen until it has this text, and leave; return exit code and what is printed."""
    program, *arguments = worker_double.gpudash(*words)
    terminal = pexpect.spawn(
        program,
        arguments,
        cwd=str(folder),
        env=worker_double.environment(TERM="xterm-256color", EPOCHS=LONG),
        dimensions=(40, 120),
        timeout=120,
    )
    shows(terminal, screen).send("q")
    if screen == FOUND:
        shows(terminal, "gpudash attach shows it again").send("s")
    return ended(terminal).exitstatus, (terminal.before or b"").decode()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_the_page_runs(
    page: Path, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(page, folder)
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    if "--versions" in page.read_text(encoding="utf-8"):
        make_repository(folder)
        with (folder / "train.py").open("a") as file:
            file.write("# changed since\n")
    if page.stem == "gate":
        monkeypatch.setattr(ab_changes, "MOST_ROUNDS", FEWEST_ROUNDS)
    later = {line for other in PAGES[PAGES.index(page) + 1 :] for line in commands(other)}
    for line in commands(page):
        if line in later:
            continue
        words = shlex.split(line.replace(":9742", f":{free_port()}"))[1:]
        verb, arguments = parse(words)
        quietly = any(getattr(arguments, option, None) for option in WITHOUT_SCREEN)
        if verb.name == "" and words and not quietly:
            words, quietly = [*words, "--once", "--steps", "20"], True
        if verb.name in SCREENS and not quietly:
            code, said = run_in_terminal(words, folder, SCREENS[verb.name])
        else:
            monkeypatch.setenv("EPOCHS", SHORT if quietly else LONG)
            code, said = main(words), "".join(capfd.readouterr())
        assert code == 0, f"{line}\n{said}"


def test_the_pages_have_commands() -> None:
    assert sum(map(len, map(commands, PAGES))) > 10


def test_a_program_is_told_in_few_words_how_it_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill"]) == 0
    said = capsys.readouterr().out
    assert said == SKILL.read_text(encoding="utf-8")
    assert len(said.split()) <= 600


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700


def test_the_pages_that_are_written_by_hand_stay_short() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 22_000
