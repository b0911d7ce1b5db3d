"""The configuration: precedence, refusals with their place, and verbs that do not read it."""

import argparse
import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from gpudash.cli import config
from gpudash.cli.config import Document, line_of
from gpudash.cli.config_values import SCREEN, SHORTHANDS
from gpudash.cli.main import main, parse
from gpudash.cli.options import COMMAND_LINE, OPTIONS
from gpudash.cli.plan import make_plan
from gpudash.cli.sweep_grid import decided_by
from gpudash.cli.verbs import VERBS, load
from gpudash.compare.sweep.presets import ON_GPU
from gpudash.errors import UsageError
from tests import worker_double
from tests.cli.conftest import Refused
from workloads import CATALOGUE

GUIDE = Path(__file__).parents[2] / "docs/guide/configuration.md"
OBEYS = [name for name in ("", *VERBS) if load(name).configuration == "obeyed"]

LEVERS = {"set", "batch_size", "pipelined", "serial", "seed"}
NEVER_STANDING = {
    "": {
        "energy",
        "steps",
        "duration",
        "record",
        "live",
        "every_step",
        "force",
        "to",
        "version",
        "jsonl",
        "once",
        "quiet",
        "nproc",
    },
    "run": {
        *("energy", "python", "record", "watch", "live", "every_step", "force", "to", "quiet"),
        *("listen", "connect", "token_file"),
    },
    "attach": {"energy", "run", "listen", "token_file"},
    "profile": {"steps", "trace", "force", "read", "against", "json", "quiet", "nproc"},
    "ab": {
        *("energy", "lever", "no_instruments", "starts", "json", "exit_code", "quiet", "nproc"),
        *("card", "force", "a", "b", "versions", "python_a", "python_b", "budget", "dashboard"),
        "losses",
    },
    "gate": {
        *("base", "new", "max_slowdown", "budget", "calibrate", "python_a", "python_b"),
        *("json", "quiet", "markdown", "junit", "card", "force"),
    },
    "tune": {"energy", "only", "numerics", "fresh", "save", "json", "exit_code", "quiet", "nproc"},
    "why": {"prove", "no_profile", "with_profile", "json", "quiet", "nproc"},
    "sweep": {
        *(
            "vary",
            "preset",
            "csv",
            "resume",
            "markdown",
            "plot",
            "force",
            "json",
            "dry_run",
            "quiet",
            "nproc",
        ),
    },
    "replay": {"file"},
    "report": {"recording", "output", "text", "force"},
}
"""Options that cannot be configured: they name or overwrite files, end a run, choose what to
compare, or change an output that programs read."""
NEVER_STANDING["train"] = NEVER_STANDING[""]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, below the project's; `write_user` writes the user's file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    (folder / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(folder / "deep" / "er")
    return folder


def write_user(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "home" / "gpudash" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def asked(*words: str) -> argparse.Namespace:
    return parse(words)[1]


# ── precedence ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("present", [*product([False, True], repeat=4)])
def test_the_source_of_highest_precedence_decides(
    present: tuple[bool, ...], project: Path, tmp_path: Path
) -> None:
    flag, profile, in_project, by_user = present
    words = ["--rate", "1"] if flag else []
    words += ["--profile", "p"] if profile else []
    ours = "rate = 3\n" if in_project else "\n"
    ours += "[profiles.p]\nrate = 2\n" if profile else ""
    (project / "gpudash.toml").write_text(ours)
    theirs = write_user(tmp_path, "rate = 4\n" if by_user else "")

    by = [
        COMMAND_LINE,
        f"{project}/gpudash.toml:3",
        f"{project}/gpudash.toml:1",
        f"{theirs}:1",
    ]
    decides = [rank for rank, there in enumerate(present) if there]
    arguments = asked(*words)
    if decides:
        assert arguments.rate == decides[0] + 1
        assert arguments.set_by == {"rate": by[decides[0]]}
    else:
        assert arguments.rate == load("").parser().get_default("rate")
        assert arguments.set_by == {}


def test_a_profile_comes_before_both_files_and_the_projects_before_the_users(
    project: Path, tmp_path: Path
) -> None:
    (project / "gpudash.toml").write_text("rate = 1\ninterval = 1\n[profiles.p]\nrate = 2\n")
    write_user(tmp_path, "[profiles.p]\nrate = 3\ninterval = 3\n")
    arguments = asked("--profile", "p")
    assert (arguments.rate, arguments.interval) == (2, 3)


@pytest.mark.parametrize("name", OBEYS)
def test_every_option_can_be_configured_or_deliberately_not(name: str) -> None:
    takes = set(load(name).parser().options)
    configured = {*OPTIONS[""], *OPTIONS.get(name, ())} & takes
    assert takes == configured | (LEVERS & takes) | NEVER_STANDING[name] | {"help", "profile"}
    assert set(OPTIONS.get(name, ())) <= takes


def test_no_lever_has_a_workloads_name() -> None:
    assert not {lever.name for one in CATALOGUE.values() for lever in one.levers} & {*CATALOGUE}


def test_the_same_setting_means_the_same_in_a_file_and_on_the_command_line(project: Path) -> None:
    (project / "gpudash.toml").write_text(
        'workload = "augment"\ndevice = "cpu"\nbatch-size = 4\nascii = true\ncolor = "never"\n'
        '[ab]\nwithin = "1%"\n'
    )
    flags = ["augment", "--device", "cpu", "--batch-size", "4"]
    question = ["--lever", "seed=1,2"]
    configured, given = asked("ab", *question), asked("ab", *flags, "--within", "1%", *question)
    assert make_plan(configured) == make_plan(given)
    assert configured.within == given.within == 0.01
    assert asked().ascii is True
    assert asked().color == "never"


def test_an_option_is_taken_by_its_old_name_too(project: Path, capsys) -> None:
    question = ["--lever", "seed=1,2"]
    assert asked("ab", "--precision", "1%", *question).within == 0.01
    (project / "gpudash.toml").write_text('[ab]\nprecision = "3%"\n')
    assert asked("ab", *question).within == 0.03
    with pytest.raises(UsageError, match="--within 0% is not valid"):
        asked("ab", "--precision", "0", *question)
    main(["help", "ab"])
    assert "--precision" not in capsys.readouterr().out


# ── levers ──────────────────────────────────────────────────────────────────────────────


def test_a_workloads_table_overrides_only_the_general_one_of_the_same_file(
    project: Path, tmp_path: Path
) -> None:
    write_user(tmp_path, "[levers.encdec]\nbatch_size = 2\nseed = 5\n")
    path = project / "gpudash.toml"
    path.write_text('[levers]\nbatch_size = 4\nloss = "where"\n[levers.augment]\nbatch_size = 16\n')
    arguments = asked("encdec")
    assert make_plan(arguments).settings == {"batch_size": "4", "seed": "5"}
    assert arguments.set_by["levers.batch_size"] == f"{path}:2"
    assert make_plan(asked("augment")).settings == {"batch_size": "16"}
    assert make_plan(asked("masked_loss")).settings == {"batch_size": "4", "loss": "where"}


def test_a_flag_overrides_a_configured_lever(project: Path) -> None:
    (project / "gpudash.toml").write_text("pipelined = true\nseed = 3\n")
    arguments = asked("--serial", "--set", "batch_size=2")
    assert make_plan(arguments).settings == {"pipelined": "off", "batch_size": "2", "seed": "3"}
    assert arguments.set_by["levers.pipelined"] == COMMAND_LINE
    assert arguments.set_by["levers.seed"].endswith("gpudash.toml:2")


def test_a_compared_or_swept_lever_is_not_set_by_the_configuration(project: Path) -> None:
    (project / "gpudash.toml").write_text('[levers]\nprecision = "bf16"\nbatch_size = 2\n')
    arguments = asked("sweep", "encdec", "--vary", "precision=fp32,bf16")
    assert make_plan(arguments, decided_by(None, arguments.vary)).settings == {"batch_size": "2"}
    assert "levers.precision" not in arguments.set_by
    for preset in ON_GPU.values():
        decided = decided_by(preset, ())
        assert decided >= {*preset.settings}
        assert decided.isdisjoint(make_plan(asked(preset.workload), decided).settings)


# ── what is refused ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("rate = ", 1, "Invalid value"),
        ("\nrate = 2\nrate = 3\n", 3, "Cannot overwrite a value"),
        ("[ab\n", 1, "Expected ']'"),
        ("[ab", 1, "Expected ']'"),
        ("raet = 2", 1, "unknown key 'raet'; valid: workload, device,"),
        ("raet = 2", 1, "; did you mean rate?"),
        ("\n[profile.quick]\nrate = 2", 2, "; did you mean profiles?"),
        ("\n\nforce = true", 3, "unknown key 'force'"),
        ("precision = 'bf16'", 1, "; a lever stands in [levers]"),
        ("[levers]\nprecison = 'bf16'", 2, "; did you mean precision?"),
        ("[levers.encdec]\nloss = 'where'", 2, "unknown key 'loss'"),
        ("[levers.encdc]\nseed = 1", 1, "; did you mean encdec?"),
        ("levers = { seed = 1, precision = 'bf61' }", 1, "; did you mean bf16?"),
        ("[levers]\npipelined = 'yes'", 2, "lever pipelined: 'yes' is not valid; valid: off, on"),
        ("[levers]\nbatch_size = 2.5", 2, "'2.5' is not valid; valid: a whole number"),
        ("workload = 'encdc'", 1, "unknown workload 'encdc'"),
        ("workload = 'encdc'", 1, "; did you mean encdec?"),
        ("rate = 99", 1, "--rate 99 is not valid; valid: a number from 0.2 to 30"),
        ("rate = true", 1, "--rate true is not valid"),
        ("rate = [1]", 1, "--rate [1] is not valid"),
        ("rate.x = 1", 1, "rate is not valid; valid: a value, no table"),
        ("ab = 3", 1, "ab is not valid; valid: [ab], a table"),
        ("device = 'gpu'", 1, "device 'gpu' is not valid; valid: auto, cpu, cuda, cuda:N"),
        ("ascii = 3", 1, "ascii '3' is not valid; valid: true, false"),
        ("[ab]\npairs = 1", 2, "--pairs 1 is not valid"),
        ("[sweep]\nrounds = 1.5", 2, "--rounds 1.5 is not valid"),
        ("theme = 'nrod'", 1, "; did you mean nord?"),
        ("pane = 'logs'", 1, "valid: history, ab, ranks, profile, output, log; did you mean log?"),
        ("[keys]\npause = 'P'", 1, "; keys are fixed, and the palette has every action"),
        ("batch_size = 2\n[levers]\nbatch-size = 2", 3, "levers.batch_size is set twice"),
        ("profiles = 3", 1, "not valid; valid: [profiles.NAME], a table"),
        ("\nprofiles.p = 3", 2, "not valid; valid: [profiles.NAME], a table"),
        ("device = 'a\\nb'", 1, "device 'a"),
        ("rate = 0x" + "f" * 5000, 1, "Exceeds the limit"),
        ("rate = " + "9" * 5000, 1, "Exceeds the limit"),
        ("rate = 2\n[profiles.p]\nraet = 2", 3, "unknown key 'raet'"),
        ("[profiles.p.ab]\npairs = 1", 2, "--pairs 1 is not valid"),
    ],
)
@pytest.mark.parametrize("words", [[], ["ab", "--lever", "seed=1,2"]], ids=["dashboard", "ab"])
def test_a_mistake_in_a_file_is_one_line_with_file_line_and_valid_values(
    words: list[str], text: str, line: int, message: str, project: Path, refused: Refused
) -> None:
    path = project / "gpudash.toml"
    path.write_text(text)
    errors = refused(*words)
    assert errors.startswith(f"gpudash: {path}:{line}: ")
    assert message in errors


@pytest.mark.parametrize("content", [b"\xff", b"rate = '\x00'", b"[" * 5000])
def test_a_file_that_is_no_toml_is_one_line(
    content: bytes, project: Path, refused: Refused
) -> None:
    (project / "gpudash.toml").write_bytes(content)
    assert refused().startswith(f"gpudash: {project}/gpudash.toml:")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_one_line(project: Path, refused: Refused) -> None:
    (project / "gpudash.toml").touch(0o000)
    assert "cannot be read: Permission denied" in refused()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GPUDASH_RATE", "2", "a setting stands in gpudash.toml or on the command line"),
        ("GPUDASH_RUN_DRI", "/tmp", "; did you mean GPUDASH_RUN_DIR?"),
        ("GPUDASH_PROFILE", "quik", "GPUDASH_PROFILE: unknown profile 'quik'; valid: none"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setenv(variable, value)
    errors = refused()
    assert errors.startswith(f"gpudash: {variable}: ")
    assert message in errors


@pytest.mark.parametrize("words", [["--profile", "quik"], ["info", "--profile", "quik"]])
def test_an_unknown_profile_names_the_nearest(
    words: list[str], project: Path, refused: Refused
) -> None:
    (project / "gpudash.toml").write_text("[profiles.quick]\n[profiles.ci]\n")
    errors = refused(*words)
    assert errors == "gpudash: unknown profile 'quik'; valid: ci, quick; did you mean quick?\n"


def test_an_empty_variable_and_those_read_elsewhere_set_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("GPUDASH_RATE", "GPUDASH_PROFILE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("GPUDASH_DATA", "/data")
    assert asked().set_by == {}


# ── which files ─────────────────────────────────────────────────────────────────────────


def test_the_nearest_file_counts_gpudash_toml_before_pyproject(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.gpudash]\nrate = 1\n")
    (project / "deep" / "pyproject.toml").write_text("[project]\nname = 'gpudash'\n")  # not ours
    arguments = asked()
    assert (arguments.rate, arguments.set_by["rate"]) == (1, f"{project}/pyproject.toml:2")
    (project / "gpudash.toml").write_text("rate = 2\n")
    assert asked().rate == 2
    (project / "deep" / "er" / "gpudash.toml").write_text("interval = 3\n")
    arguments = asked()
    assert (arguments.interval, arguments.rate) == (3, 4.0)


@pytest.mark.parametrize("text", ["tool.gpudash = 3", "# tool.gpudash\ntool = 3"])
def test_a_pyproject_entry_that_is_no_table_is_one_line(text: str, project: Path) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=r"toml:\d: not valid; valid: \[tool.gpudash\], a table$"):
        asked()


def test_a_file_above_the_repository_is_not_the_projects(project: Path) -> None:
    (project / "gpudash.toml").write_text("rate = 2\n")
    (project / "deep" / ".git").touch()  # as in a worktree
    assert asked().set_by == {}
    (project / "deep" / "gpudash.toml").write_text("rate = 3\n")
    assert asked().rate == 3


def test_a_removed_working_folder_has_no_project(project: Path) -> None:
    Path.cwd().rmdir()
    assert asked().set_by == {}


@pytest.mark.parametrize(
    ("text", "way", "line"),
    [
        ("a = 1\n\nb = 2", "b", 3),
        ("[a]\nb = 1\n[c]\nb = 2", "c.b", 4),
        ("[a]\nb = 1\n[c]\nb = 2", "a.b", 2),
        ("[c] # [a]\na.b = 2", "c.a.b", 2),
        ('[ "a" . b ]\n"c" = 2', "a.b.c", 2),
        ("# b = 1\na = { b = 1 }", "a.b", 2),
        ("[a.b]\n[a]\nc = 1", "a.b", 1),
        ("x = 1", "y", 1),
    ],
)
def test_the_line_of_a_key_is_its_own_or_its_tables(text: str, way: str, line: int) -> None:
    assert line_of(text, way.split(".")) == line


# ── verbs that do not need it ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "words", [["--help"], ["-V"], ["sweep", "--help"], ["help", "ab"], ["list"], ["info"]]
)
def test_a_broken_file_does_not_stop_verbs_that_train_nothing(
    words: list[str],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (project / "gpudash.toml").write_text("rate = ")
    monkeypatch.setenv("GPUDASH_RAET", "1")
    try:
        code = main(words)
    except SystemExit as exit_:
        code = exit_.code
    assert code == 0
    assert capsys.readouterr().err == ""


def loads(words: list[str]) -> set[str]:
    code = (
        "import sys\nfrom gpudash.cli.main import main\n"
        f"try: main({words})\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return set(done.stderr.splitlines()[-1].split())


def test_help_reads_no_configuration_and_without_a_file_no_parser_is_loaded(
    project: Path, tmp_path: Path
) -> None:
    (project / "gpudash.toml").write_text("rate = 2")
    assert not loads(["--help"]) & {"tomllib", "platformdirs", "gpudash.cli.config"}
    (project / "gpudash.toml").unlink()
    (project / "pyproject.toml").write_text("[project]\nname = 'gpudash'\n")
    assert "tomllib" not in loads(["ab", "--lever", "seed=1"])


# ── the guide, and a recording ──────────────────────────────────────────────────────────


def test_the_guides_example_is_valid_and_complete() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    document = Document.of(Path("gpudash.toml"), example)
    assert list(document.profiles) == ["quick"]
    keys = {key for layer in (document.base, *document.profiles.values()) for key in layer}
    options = {f"{verb}.{name}".strip(".") for verb, names in OPTIONS.items() for name in names}
    assert options | {*SCREEN} <= keys
    tables = {"levers", *OPTIONS} - {""}
    assert {*config.shape()} == {*OPTIONS[""], *SCREEN, *SHORTHANDS, *tables}
    for name in (*tables, *SHORTHANDS):
        assert re.search(rf"\b{name}\b", example), name


def test_a_recording_names_what_set_it(project: Path) -> None:
    (project / "gpudash.toml").write_text("interval = 0.05\n[levers]\nbatch_size = 2\n")
    command = worker_double.gpudash("--record", "run.csv", "--steps", "20", "--device", "cpu")
    environment = worker_double.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("run.json").read_text())["set_by"] == {
        "interval": f"{project}/gpudash.toml:1",
        "device": COMMAND_LINE,
        "levers.batch_size": f"{project}/gpudash.toml:3",
    }


def test_a_bad_flag_is_reported_before_a_bad_file(project: Path) -> None:
    (project / "gpudash.toml").write_text("rate = ")
    with pytest.raises(UsageError, match="--rate 99 is not valid"):
        asked("--rate", "99")
