"""The line of a script at which a loader or an optimizer is made, with a lever's value on it."""

import sys

import pytest

from gpudash.present.own_line import OwnLine, own_line, own_patch

FOUND = "AdamW, root GPT, 1 backward pass a step, DataLoader with 0 workers"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Write a script, perhaps with modules beside it; return what asks for a lever's line."""
    monkeypatch.chdir(tmp_path)

    def write(text, lever="num_workers", value="4", *, command=("python", "train.py"), **modules):
        (tmp_path / "train.py").write_text(text, encoding="utf-8")
        for name, inside in modules.items():
            (tmp_path / f"{name}.py").write_text(inside, encoding="utf-8")
        return own_line(command, FOUND, lever, value)

    return write


@pytest.mark.parametrize(
    ("call", "lever", "value", "after"),
    [
        ("DataLoader(data)", "num_workers", "4", "DataLoader(data, num_workers=4)"),
        ("DataLoader(data, )", "pin_memory", "on", "DataLoader(data, pin_memory=True)"),
        ("DataLoader(pin_memory=True)", "pin_memory", "off", "DataLoader(pin_memory=False)"),
        ("utils.data.DataLoader(d, num_workers=n - 1, shuffle=True)", "num_workers", "8",
         "utils.data.DataLoader(d, num_workers=8, shuffle=True)"),
        ("DataLoader(f('größe'), 2)", "prefetch_factor", "4",
         "DataLoader(f('größe'), 2, prefetch_factor=4)"),
        ("AdamW(model.parameters(), lr=1e-3)", "fused_optimizer", "fused",
         "AdamW(model.parameters(), lr=1e-3, fused=True)"),
        ("torch.optim.AdamW(p, foreach=True)", "fused_optimizer", "single",
         "torch.optim.AdamW(p, foreach=False)"),
        ("DataLoader(**options, num_workers=0)", "num_workers", "2",
         "DataLoader(**options, num_workers=2)"),
    ],
)  # fmt: skip
def test_the_value_stands_on_the_line(script, call, lever, value, after):
    line = script(f"import torch\n\nmade = {call}  # ours\n", lever, value)
    assert line == OwnLine("train.py:3", f"made = {call}  # ours", f"made = {after}  # ours")


def test_a_call_over_several_lines_is_shown_as_one(script):
    line = script("loader = DataLoader(\n    data,\n    batch_size=16,\n)\n")
    assert line.before == "loader = DataLoader(data, batch_size=16)"
    assert line.after == "loader = DataLoader(data, batch_size=16, num_workers=4)"


def test_it_may_be_in_a_module_that_the_script_imports_and_under_another_name(script):
    text = (
        "from torch.utils.data import DataLoader as Loader\n\ndef load():\n    return Loader(1)\n"
    )
    assert script("from feeds import load\n", feeds=text).where == "feeds.py:4"
    line = script("import other\n", other="from . import feeds\n", feeds=text)
    assert line.where == "feeds.py:4"


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node=2 train.py",
        "python -m train",
        "python -m torch.distributed.run train.py",
    ],
)
def test_the_script_is_found_in_its_command(script, command):
    words = tuple(command.split())
    assert script("x = DataLoader(1)\n", command=words).where == "train.py:1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "train = DataLoader(a)\ntest = DataLoader(b)\n",  # which of them?
        "loader = DataLoader(data, **options)\n",  # num_workers may be in there
        "loader = DataLoader(*everything)\n",
        "loader = DataLoader(data, 16, True, None, None, 2)\n",
        "loader = DataLoader(\n    data,  # with a comment\n)\n",
        "def broken(:\n",
        "\0",
        "import train\n",
        f"x = {'(' * 500}1{')' * 500}\n",
    ],
)
def test_a_line_that_is_not_certain_is_not_shown(script, text):
    assert script(text) is None


@pytest.mark.parametrize(
    ("lever", "value"), [("compile", "on"), ("precision", "bf16"), ("fused_optimizer", "script")]
)
def test_other_levers_have_no_line_of_their_own(script, lever, value):
    assert script("loader = DataLoader(1)\nAdamW(2)\n", lever, value) is None


@pytest.mark.parametrize("command", [(), ("train.py",), (sys.executable, "-m", "gone"), ("-m",)])
def test_without_the_script_there_is_no_line(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert own_line(command, FOUND, "num_workers", "4") is None


# ── as a patch ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ["", "\n", "\nprint(1)\n"])
@pytest.mark.parametrize(
    ("call", "what", "after"),
    [
        ("DataLoader(data)", ("num_workers", "4"), "DataLoader(data, num_workers=4)"),
        ("SGD(p, lr=1)", ("fused_optimizer", "fused"), "SGD(p, lr=1, fused=True)"),
        ("DataLoader(\n    1,\n)", ("pin_memory", "on"), "DataLoader(\n    1, pin_memory=True)"),
    ],
)  # fmt: skip
def test_a_patch_that_the_tool_applies_writes_the_value_into_the_script(
    tmp_path, monkeypatch, call, what, after, end
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(f"import torch\nmade = {call}{end}", encoding="utf-8")
    patch = own_patch("train.py", *what)
    path.write_text(applied(patch, path.read_text(encoding="utf-8")), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == f"import torch\nmade = {after}{end}"


def applied(patch, text):
    """Apply a unified diff of one hunk that begins at the file's first line."""
    head, _, hunk = patch.partition("@@\n")
    assert head.startswith("--- a/train.py\n+++ b/train.py\n@@ -1")
    old, new = "", ""
    for line in hunk.replace("\n\\ No newline at end of file", "\0").splitlines(keepends=True):
        kept = line[1:].replace("\0\n", "")
        old += kept if line[0] in " -" else ""
        new += kept if line[0] in " +" else ""
    assert text.startswith(old)
    return new + text[len(old) :]


@pytest.mark.parametrize("what", [("num_workers", "many"), ("precision", "bf16"), ("seed", "1")])
def test_a_lever_without_a_line_of_its_own_has_no_patch(script, what):
    script("DataLoader(1)\n")
    assert own_patch("train.py", *what) is None
