"""A workload is found in a file, as Python would run that file; what is wrong is one line."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpudash.worker.__main__ import describe
from tests.workloads.own_files import HEAD, LINEAR, LINES, PARTS
from tests.workloads.trainings import CPU
from workloads import CATALOGUE
from workloads.levers import LeverError
from workloads.own.loading import find, located
from workloads.own.names import defines_workload, parts
from workloads.training import Training


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("beside", "later", "package_of_mine", "gpudash_mine"):
        sys.modules.pop(name, None)


IMPORT = "from gpudash import workload\n"


def write(text: str, name: str = "mine.py") -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)


def why_not(reference: str = "mine.py") -> str:
    with pytest.raises(LeverError) as refused:
        find(reference)
    message = str(refused.value)
    assert "\n" not in message
    return message


def train_a_step(settings: dict[str, str]) -> None:
    with closing(Training(find("mine.py"), settings, CPU)) as training:
        training.step()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("mine.py", ("mine.py", None)),
        ("a/b.py:c", ("a/b.py", "c")),
        ("mine.py:", ("mine.py", "")),
        ("a.py:b.py:c", ("a.py", "b.py:c")),
        ("mine", None),
        (".py", None),
        ("mi\nne.py", None),
    ],
)
def test_a_name_is_a_file_and_what_in_it(name: str, found: object) -> None:
    assert parts(name) == found


@pytest.mark.parametrize("reference", ["mine.py", "mine.py:linear", "./mine.py"])
def test_the_only_workload_of_a_file_needs_no_name(reference: str) -> None:
    write(LINEAR)
    entry = find(reference)
    assert (entry.name, entry.summary) == (reference, "Fit a sum.")
    assert [lever.name for lever in entry.levers][:6] == [
        *("pipelined", "batch_size", "bias", "depth", "width", "kind")
    ]


def test_of_several_workloads_one_has_to_be_named() -> None:
    write(f"{LINEAR}\n@workload\ndef other(values, device): ...\n")
    assert why_not() == "mine.py has several workloads; valid: mine.py:linear, mine.py:other"
    assert find("mine.py:other").name == "mine.py:other"
    assert why_not("mine.py:othr") == (
        "unknown workload 'mine.py:othr'; valid: mine.py:linear, mine.py:other; "
        "did you mean mine.py:other?"
    )


def test_a_file_imports_what_lies_beside_it_now_and_later() -> None:
    write("VALUE = 3\n", "sub/beside.py")
    write("LATER = 4\n", "sub/later.py")
    body = "import beside\ndef late():\n    import later\n    return later.LATER\n"
    write(f"{body}\n{LINEAR}", "sub/mine.py")
    find("sub/mine.py")
    module = sys.modules["gpudash_mine"]
    assert (module.beside.VALUE, module.late()) == (3, 4)
    assert module.__file__ == str(Path("sub/mine.py").absolute())


@pytest.mark.parametrize("change", ["sys.path.pop(0)", "sys.path = sys.path[1:]"])
def test_a_file_may_leave_the_path_as_it_likes(change: str, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    write(f"import sys\n{change}\n{LINEAR}")
    assert find("mine.py").name == "mine.py"


def test_a_folder_named_as_our_package_is_not_taken_for_it() -> None:
    write("raise RuntimeError\n", "workloads/__init__.py")
    write("raise RuntimeError\n", "workloads/batches.py")
    write(LINEAR)
    find("mine.py").build()


def test_finding_it_leaves_folder_and_catalogue_as_they_are(folder: Path) -> None:
    write(LINEAR)
    find("mine.py")
    assert "mine.py" not in CATALOGUE
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1\n", "mine.py has no workload; put @workload(), from gpudash, above a function"),
        ("def f(:\n", "mine.py:1: SyntaxError: invalid syntax"),
        (f"{IMPORT}\nnot_here\n", "mine.py:3: NameError: name 'not_here' is not defined"),
        (f"{IMPORT}import not_installed_here\n", "mine.py:2: ModuleNotFoundError: No module named"),
        (f"{IMPORT}import sys\nsys.exit(3)\n", "mine.py:3: SystemExit: 3"),
        (f"{IMPORT}raise ValueError('first\\nsecond')\n", "mine.py:2: ValueError: first"),
        ("x = '\udcff'\n", "mine.py"),
        (f"{HEAD}@workload(rate=0.5)\ndef f(v, d): ...\n", f"mine.py:{LINES + 1}: lever rate: 0.5"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(text: str, why: str) -> None:
    Path("mine.py").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert why_not().startswith(why)


@pytest.mark.parametrize(
    "text",
    [
        "from gpudash import workload as w\n@w\ndef f(v, d): ...\n",
        "import gpudash\n@gpudash.workload(width=(1, 2))\ndef f(v, d): ...\n",
        "import gpudash as g\nf = g.workload(lambda v, d: ...)\n",
        "try:\n    from gpudash import *\nfinally:\n    f = workload(print)\n",
        "import workloads.own\nf = workloads.own.workload(print)\n",
    ],
)
def test_a_file_whose_text_names_gpudashs_workload_defines_one(text: str) -> None:
    assert defines_workload(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"# no workload\nfrom gpudash import step\n",
        b"args = parse()\nrun(args.workload, gpudash.workload)\n",
        b"import gpudash\nwith gpudash.step():\n    workload()\n",
        b"from mine import workload\n@workload\ndef f(): ...\n",
        b"from gpudash import workload\ndef f(:\n",
        b"from gpudash import workload\n\xff\n",
        b"from gpudash import workload\n\0",
    ],
)
def test_any_other_file_is_a_script(text: bytes) -> None:
    assert not defines_workload(text)


def test_a_script_is_not_run_to_find_that_it_has_no_workload() -> None:
    write("from pathlib import Path\nPath('trained').touch()\n")
    assert "; a plain script: gpudash run mine.py, so too ab, why" in why_not()
    assert not Path("trained").exists()


def test_a_workload_that_is_named_may_come_from_another_file() -> None:
    write(LINEAR, "beside.py")
    write("from beside import linear\n")
    assert find("mine.py:linear").name == "mine.py:linear"


def test_a_file_that_is_not_there_is_told_with_the_nearest_one() -> None:
    write(LINEAR)
    assert why_not("mime.py") == "mime.py: No such file or directory; did you mean mine.py?"
    Path("folder.py").mkdir()
    assert why_not("folder.py") == "folder.py: Is a directory"
    assert why_not("sub/mine.py") == "sub/mine.py: No such file or directory"


def test_a_name_that_is_nothing_is_told_with_what_there_is() -> None:
    assert why_not("encdek").endswith("did you mean encdec?")


FAILING = {
    "building": (PARTS, "    nowhere\n"),
    "the loss": ("mse)", "lambda model, batch: nowhere)"),
    "the data": ("        x = torch", "        nowhere\n        x = torch"),
}


@pytest.mark.parametrize("where", FAILING)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_error_while_it_trains_is_located(where: str, workers: str) -> None:
    text = LINEAR.replace("mse\n", "(mse)\n").replace(*FAILING[where])
    write(text)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "nowhere" in one)
    with pytest.raises(Exception, match="nowhere") as failed:
        train_a_step({"num_workers": workers})
    name = "NameError: name 'nowhere' is not defined"
    assert located(failed.value, "mine.py") == f"mine.py:{line}: {name}"
    told = describe(failed.value, "mine.py:linear", {}).failure
    assert (told.kind, told.sentence) == ("error", f"mine.py:{line}: {name}")
    assert describe(failed.value, "encdec", {}).failure.sentence == f"encdec failed: {name}"


def test_an_error_of_another_file_has_no_line_here() -> None:
    assert located(ValueError("x"), "mine.py") is None


# ── installed ones ──────────────────────────────────────────────────────────────────────


@pytest.fixture
def package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with two workloads, one of them broken."""
    points = ("installed = package_of_mine:linear", "broken = package_of_mine:mse")
    lines = (
        "[gpudash.workloads]",
        *points,
        "gone = package_of_mine:gone",
        "end = ending_of_mine:a",
    )
    write("\n".join(lines), "mine-1.dist-info/entry_points.txt")
    write("Metadata-Version: 2.1\nName: mine\nVersion: 1\n", "mine-1.dist-info/METADATA")
    write(LINEAR, "package_of_mine.py")
    write("raise SystemExit(3)\n", "ending_of_mine.py")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("package")
def test_a_package_offers_workloads_by_name() -> None:
    entry = find("installed")
    assert (entry.name, entry.source) == ("installed", "package_of_mine:linear")


@pytest.mark.usefixtures("package")
def test_what_a_package_offers_in_vain_is_told() -> None:
    assert why_not("broken") == "workload broken: package_of_mine:mse has no @workload() above it"
    assert why_not("gone").startswith("workload gone, package_of_mine:gone: AttributeError: ")
    assert why_not("end") == "workload end, ending_of_mine:a: SystemExit: 3"
    assert why_not("instaled").endswith("did you mean installed?")
