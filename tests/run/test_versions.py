"""Two versions of the user's repository: each runs its own code; nothing of the user's moves."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from gpudash import rendezvous
from gpudash.errors import UsageError
from gpudash.run.guarded import Guarded
from gpudash.run.versions import Version, WorkingTrees, check_locks
from tests.waiting import done

TRAIN = "import pkg, tool; open('of', 'w').write(f'{pkg.WHICH} {tool.WHICH}')\n"
PACKAGE, MODULE = "src/pkg/__init__.py", "tools/tool.py"
IGNORED = "*.so\n/data/\n__pycache__/\nlocal.py\n"
SETTINGS = """
[core]
hooksPath = {hooks}
[commit]
gpgSign = true
[gpg]
program = false
[user]
useConfigOnly = true
[filter "lfs"]
clean = false
smudge = cat
required = true
"""
ORDINARY = ("core.hooksPath=/", "commit.gpgSign=false", "user.name=x", "user.email=x")


def git(where, *words):
    settings = [word for one in (*ORDINARY, "protocol.file.allow=always") for word in ("-c", one)]
    ended = done("git", *settings, *words, cwd=where)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def commit(root, files=None):
    write(root, files or {})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")


def repository(path):
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A repository whose last two commits have a package that says of which it is."""
    root = repository(tmp_path_factory.mktemp("made") / "project")
    commit(root, {".gitignore": IGNORED, ".gitattributes": "*.pt filter=lfs\n"})
    commit(root, {PACKAGE: "WHICH = 'old'", MODULE: "WHICH = 1", "scripts/train.py": TRAIN})
    git(root, "tag", "v1")
    commit(root, {PACKAGE: "WHICH = 'new'", MODULE: "WHICH = 2"})
    return root


@pytest.fixture
def root(made, short_path, monkeypatch, temporary):
    """We are in a copy of it, and Git has a user's settings."""
    write(short_path, {"hooks/post-checkout": "#!/bin/sh\nexit 1\n"})
    (short_path / "hooks" / "post-checkout").chmod(0o755)
    write(short_path, {"config": SETTINGS.format(hooks=short_path / "hooks")})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(short_path / "config"))
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    root = Path(shutil.copytree(made, short_path / "home" / "project"))
    monkeypatch.chdir(root)
    return root


def said(version, *words):
    """Return what a command in a version says of which it has imported."""
    held = Guarded(version.command(words), rendezvous.begin())
    assert held.wait() == 0
    held.close()
    return (version.folder / "of").read_text()


def contents(folder):
    return {
        path: (path.lstat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in folder.rglob("*")
    }


# ── what a version imports ──────────────────────────────────────────────────────────────

FINDER = """
import importlib.util, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        file = {{"pkg": "{package}", "tool": "{module}"}}.get(name)
        return file and importlib.util.spec_from_file_location(name, file)
sys.meta_path.append(Finder)
"""


@pytest.fixture(params=["on its path", "by a finder"])
def installed(request, root, monkeypatch):
    """The Pythons find the package in the user's tree, as one that is installed for editing."""
    if request.param == "on its path":
        monkeypatch.setenv("PYTHONPATH", f"{root / 'src'}:{root / 'tools'}")
    else:
        finder = FINDER.format(package=root / PACKAGE, module=root / MODULE)
        write(root.parent / "site", {"sitecustomize.py": finder})
        monkeypatch.setenv("PYTHONPATH", str(root.parent / "site"))


def test_each_imports_its_own_package_and_nothing_of_the_users_moves(root, installed, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # what is started here would keep some
    before = contents(root.parent)
    with WorkingTrees(("v1", "main")) as trees:
        a, b = trees.versions
        assert [said(a, "scripts/train.py"), said(b, "scripts/train.py")] == ["old 1", "new 2"]
        assert said(a, str(root / "scripts" / "train.py")) == "old 1"
        assert [a.commit, b.commit] == git(root, "rev-parse", "v1", "main").split()
    assert contents(root.parent) == before


def test_a_package_that_only_the_users_tree_would_have_is_refused(root, installed):
    git(root, "mv", "src/pkg", "pkg")
    commit(root)
    git(root, "checkout", "-q", "v1")
    with pytest.raises(
        UsageError, match=f"main: .* imports pkg from {root}/src/pkg instead of from that"
    ):
        WorkingTrees(("v1", "main"))


# ── the tree as it is ───────────────────────────────────────────────────────────────────


def test_the_tree_as_it_is_has_all_that_git_does_not_ignore(root):
    write(root, {"scripts/train.py": "edited", "new.py": "untracked", "data/x": "ignored"})
    write(root, {"staged.so": "", "large.pt": ""})
    git(root, "add", "-f", "staged.so")
    (root / PACKAGE).unlink()
    with WorkingTrees((".", ".")) as trees:
        tree = trees.versions[0].tree
        assert (tree / "scripts/train.py").read_text() == "edited"
        assert git(tree, "ls-files").split() == [
            *(".gitattributes", ".gitignore", "large.pt", "new.py", "scripts/train.py"),
            *("staged.so", MODULE),
        ]
        assert trees.versions[0].commit == trees.versions[1].commit
        assert git(tree, "rev-parse", "HEAD~") == git(root, "rev-parse", "HEAD")
    assert git(root, "diff", "--cached", "--name-only") == "staged.so"


def test_one_without_a_change_is_the_commit_it_is_of(root):
    with WorkingTrees((".", "HEAD")) as trees:
        assert trees.versions[0].commit == trees.versions[1].commit


def test_one_before_the_first_commit_can_be_taken(root, monkeypatch):
    write(repository(root / "other"), {"x.py": ""})
    monkeypatch.chdir(root / "other")
    with WorkingTrees((".", ".")) as trees:
        assert (trees.versions[0].tree / "x.py").exists()


def test_data_that_git_does_not_ignore_are_no_code(root):
    with (root / "data.bin").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(UsageError, match=r"2.0 GiB of files .*; valid: data named in .gitignore"):
        WorkingTrees(("main", "."))


# ── what is around it ───────────────────────────────────────────────────────────────────


def test_what_a_training_finds_in_the_users_tree_and_beside_it_it_finds_there(root):
    write(root, {"data/big": "x", "src/pkg/c.so": "x", "src/pkg/__pycache__/c.pyc": "x"})
    write(root.parent, {"datasets/y": "y"})
    with WorkingTrees(("v1", "main")) as trees:
        tree = trees.versions[0].tree
        assert (tree / "data/big").resolve() == root / "data/big"
        assert (tree / "src/pkg/c.so").read_text() == "x"
        assert not (tree / "src/pkg/__pycache__").exists()
        assert (tree / ".." / "datasets/y").read_text() == "y"
        assert git(tree, "describe", "--tags", "--dirty") == "v1"
        assert git(tree, "status", "--porcelain") == ""
    assert (root / "data/big").exists()


def test_data_of_which_a_version_tracks_a_part_are_there_whole(root):
    write(root, {"data/part": "tracked", "data/rest": "ignored"})
    git(root, "add", "-f", "data/part")
    commit(root)
    git(root, "tag", "tracks")
    git(root, "rm", "-q", "--cached", "data/part")
    commit(root)
    write(root, {"data/part": "of today"})
    with WorkingTrees(("tracks", "main")) as trees:
        data = [version.tree / "data" for version in trees.versions]
        assert [(one / "part").read_text() for one in data] == ["tracked", "of today"]
        assert [(one / "rest").read_text() for one in data] == ["ignored", "ignored"]


def test_a_submodule_is_as_the_version_names_it(root):
    library = repository(root.parent / "library")
    commit(library, {"code.py": "first"})
    git(root, "submodule", "--quiet", "add", str(library), "lib")
    git(root, "submodule", "--quiet", "add", str(library), "absent")
    commit(root)
    git(root, "tag", "first")
    commit(root / "lib", {"code.py": "second"})
    commit(root)
    git(root, "submodule", "--quiet", "deinit", "-f", "absent")
    with WorkingTrees(("first", "main")) as trees:
        code = [(version.tree / "lib/code.py").read_text() for version in trees.versions]
        assert code == ["first", "second"]
        assert not list((trees.versions[0].tree / "absent").iterdir())
    write(root, {"lib/code.py": "edited"})
    with WorkingTrees(("main", ".")) as trees:
        assert (trees.versions[1].tree / "lib/code.py").read_text() == "edited"
        assert trees.versions[0].commit != trees.versions[1].commit


SHAPES = {
    "a worktree": ["-C project worktree add -q --detach ../other"],
    "a part of the history": [
        "clone -q --depth=1 {uri} other",
        "-C other fetch -q --depth=1 origin tag v1",
    ],
    "a part of the files": ["clone -q --filter=blob:none {uri} other"],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_repository_may_have_any_shape(root, shape, monkeypatch):
    git(root, "config", "uploadpack.allowFilter", "true")
    for words in SHAPES[shape]:
        git(root.parent, *words.format(uri=root.as_uri()).split())
    monkeypatch.chdir(root.parent / "other")
    with WorkingTrees(("v1", "HEAD")) as trees:
        code = [(one.tree / PACKAGE).read_text() for one in trees.versions]
        assert code == ["WHICH = 'old'", "WHICH = 'new'"]
        assert all(git(one.tree, "log") for one in trees.versions)


# ── refusals ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mian", "version mian: no commit of .*; did you mean main?"),
        ("a branch", "version a branch: no commit of "),
        ("", "version : no commit of "),
        ("--git-dir", "version --git-dir: no commit of "),
        ("main:src", "version main:src: no commit of "),
    ],
)
def test_a_name_that_is_no_commit_is_refused(root, name, why):
    with pytest.raises(UsageError, match=why):
        WorkingTrees((name, "main"))


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("none", "not a git repository.*; valid: a folder in a working tree"),
        ("bare", "must be run in a work tree; valid: a folder in a working tree"),
        ("project/data", "version v1: that version has no folder data/"),
    ],
)
def test_a_folder_that_no_version_has_is_refused(root, folder, why, monkeypatch):
    git(root.parent, "init", "-q", "--bare", "bare")
    write(root.parent, {"none/x": "", "project/data/x": ""})
    monkeypatch.chdir(root.parent / folder)
    with pytest.raises(UsageError, match=why):
        WorkingTrees(("v1", "main"))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("trian.py", r"^v1: no such file: trian.py$"),
        ("local.py", r"^v1: local.py is in no version, as Git ignores it; "),
    ],
)
def test_a_script_that_a_version_has_not_is_refused(root, script, why):
    commit(root, {"trian.py": "", "local.py": ""})
    with WorkingTrees(("v1", "main")) as trees, pytest.raises(UsageError, match=why):
        trees.versions[0].command([script])


def version(root, files):
    """A version in this folder, of whose `scripts` somebody is in."""
    write(root, files)
    return Version(root.name, "", root, root / "scripts", (), root)


def test_versions_that_need_different_packages_need_two_pythons(tmp_path):
    needed = {"requirements.txt": "torch==2", "docs/requirements.txt": "sphinx"}
    versions = version(tmp_path / "v1", {}), version(tmp_path / "main", needed)
    check_locks(*versions, ("python", "python3"))
    with pytest.raises(UsageError, match=r": requirements.txt: .*; valid: --python-a "):
        check_locks(*versions, ("python", None))
    check_locks(*2 * versions[:1], (None, None))


@pytest.mark.parametrize(
    ("project", "differs"),
    [
        ("[project]\ndependencies = ['torch==2']", True),
        ("[project.optional-dependencies]\nfast = ['flash']", True),
        ("[dependency-groups]\ndev = ['pytest']", True),
        ("[project]\nname = 'another'\nversion = '2'", False),
    ],
)
def test_what_pyproject_depends_on_counts_and_nothing_else_of_it(tmp_path, project, differs):
    versions = (
        version(tmp_path / "without", {"pyproject.toml": "[project]\nname = 'one'"}),
        version(tmp_path / "main", {"pyproject.toml": project}),
    )
    refused = pytest.raises(UsageError, match=r": dependencies in pyproject.toml: not the same")
    with refused if differs else nullcontext():
        check_locks(*versions, (None, None))


# ── the end ─────────────────────────────────────────────────────────────────────────────

HELD = """
from gpudash.run.versions import WorkingTrees
trees = WorkingTrees(("v1", "main"))
print(trees.versions[0].tree, flush=True)
input()
"""


def test_nothing_stays_also_of_a_killed_gpudash(root, short_path):
    where = {"TMPDIR": str(short_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", HELD],
        env=os.environ | where,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as held:
        tree = Path(held.stdout.readline().strip())
        with WorkingTrees(("v1", "main")) as trees:
            assert tree.exists()
        assert not trees.versions[0].tree.exists()
        held.send_signal(signal.SIGKILL)
        held.wait()
    WorkingTrees(("v1", "main")).close()
    assert not tree.exists()
