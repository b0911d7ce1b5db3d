"""Take commits of the user's Git repository, and its tree as it is, elsewhere: nothing in it moves.

A tree that is checked out is a repository of its own, which borrows the objects of the user's.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpudash.errors import UsageError
from gpudash.format import memory, plain
from workloads.nearest import did_you_mean

AS_IS = "."
"""The name of the user's tree as it is."""
MOST_MIB = 1024.0
"""Of files that Git neither tracks nor ignores: more is no code, and would be copied."""
NEWEST = 20
"""Commits that a completion offers by their hash."""
ELSEWHERE = ("DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "COMMON_DIR", "PREFIX")
"""Variables that take Git elsewhere than into the folder that it is told, without `GIT_`."""
QUIETLY = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false")
RAW = ("filter.lfs.clean=", "filter.lfs.process=", "filter.lfs.required=false")
"""For what is added: Git LFS would keep it in the user's repository."""
NOBODY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "gpudash"), ("EMAIL", "gpudash"), ("DATE", "@0 +0000"))
}
"""So that equal trees are equal commits."""


class UserRepository:
    """The repository that the current folder is in."""

    def __init__(self, scratch: Path) -> None:
        """Keep what is new in a scratch directory. Raises UsageError."""
        self.root = root_of(Path.cwd())
        self.within = git(Path.cwd(), "rev-parse", "--show-prefix")
        """The current folder, from the root."""
        self._store = scratch / "objects"  # of trees as they are
        self._store.mkdir()

    def commit(self, name: str) -> str:
        """Return the hash of what a name says. Raises UsageError."""
        if name == AS_IS:
            return self._as_is(self.root)
        if commit := _hash(self.root, f"{_hash(self.root, name)}^{{commit}}"):
            return commit
        names = git(self.root, "for-each-ref", "--format=%(refname:short)").splitlines()
        valid = f"valid: a commit, tag or branch, or {AS_IS}{did_you_mean(name, names)}"
        raise UsageError(plain(f"version {name}: no commit of {self.root}; {valid}"))

    def check_out(self, commit: str, tree: Path) -> None:
        self._check_out(self.root, commit, tree)

    def _as_is(self, root: Path) -> str:
        """Return a commit of a tree, with those of its submodules, that only the store has."""
        untracked = listed(root, "--others", "--exclude-standard")
        mib = sum((root / path).lstat().st_size for path in untracked) / 2**20
        if mib > MOST_MIB:
            files = f"{memory(mib)} of files that Git neither tracks nor ignores"
            valid = "valid: data named in .gitignore"
            raise UsageError(plain(f"version {AS_IS}: {root} has {files}; {valid}"))
        index = self._store / f"index-{os.urandom(8).hex()}"
        with suppress(FileNotFoundError):  # nothing was ever added
            shutil.copy2(_inside(root, "index"), index)
        how = {
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": str(self._store),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(_inside(root, "objects")),
        }
        git(root, "add", "--all", **how)
        for path in submodules(root, root, **how):
            entry = f"160000,{self._as_is(root / path)},{path}"
            git(root, "update-index", "--cacheinfo", entry, **how)
        tree, head = git(root, "write-tree", **how), _hash(root, "HEAD")
        if head and _hash(root, "HEAD^{tree}") == tree:
            return head
        parent = ("-p", head) if head else ()
        return git(root, "commit-tree", tree, *parent, "-m", "As it is", **how, **NOBODY)

    def _check_out(self, root: Path, commit: str, tree: Path) -> None:
        """Take branches, tags, filters and remotes too: scripts ask Git for them."""
        made = tree / ".git"
        git(self._store, "init", "--quiet", "--template=", str(tree))
        git(tree, "config", "include.path", str(_inside(root, "config")))
        refs = git(root, "for-each-ref", "--format=%(objectname) %(refname)")
        for name, text in {
            "objects/info/alternates": f"{_inside(root, 'objects')}\n{self._store}\n",
            "info/exclude": "*\n",  # whatever is put there
            "packed-refs": f"{refs}\n" * bool(refs),
        }.items():
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_text(text, encoding="utf-8", errors="surrogateescape")
        with suppress(FileNotFoundError):  # its history is whole
            shutil.copyfile(_inside(root, "shallow"), made / "shallow")
        try:
            git(tree, "checkout", "--quiet", "--detach", commit)
        except UsageError as error:
            raise UsageError(plain(f"{error}; valid: a commit that {root} has whole")) from error
        for path, named in submodules(tree, root).items():
            self._check_out(root / path, named, tree / path)


def root_of(folder: Path) -> Path:
    """Raise UsageError if it is in no working tree of Git's."""
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel"))
    except (UsageError, OSError) as error:
        raise UsageError(f"{error}; valid: a folder in a working tree of Git's") from error


def submodules(tree: Path, root: Path, **how: str) -> dict[str, str]:
    """Return the commit by path of those that the user's tree has at the same place."""
    staged = (entry.partition("\t") for entry in listed(tree, "--stage", **how))
    return {
        path: about.split()[1]
        for about, _, path in staged
        if about.startswith("160000 ") and (root / path / ".git").exists()
    }


def nested(tree: Path, root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a tree and the user's, and those of their submodules."""
    yield tree, root
    for path in submodules(tree, root):
        yield from nested(tree / path, root / path)


def listed(tree: Path, *words: str, **how: str) -> list[str]:
    return git(tree, "ls-files", "-z", *words, **how).split("\0")[:-1]


def _hash(root: Path, name: str) -> str:
    """Return an empty text if the name says nothing."""
    with suppress(UsageError):
        return git(root, "rev-parse", "--verify", "--quiet", name)
    return ""


def _inside(root: Path, name: str) -> Path:
    """Return where a repository has a file of its own, which worktrees may share."""
    return (root / git(root, "rev-parse", "--git-path", name)).resolve()


def versions(where: Path) -> list[tuple[str, str]]:
    """Return names and newest commits, each with what it says. Raises UsageError."""
    how = "%(refname:short)\t%(subject)"
    named = git(where, "for-each-ref", "--sort=-creatordate", f"--format={how}")
    newest = git(where, "log", f"-{NEWEST}", "--format=%h%x09%s")
    each = (line.partition("\t") for line in f"{named}\n{newest}".splitlines())
    return [(AS_IS, "the tree as it is"), *((name, told) for name, _, told in each if name)]


def git(where: Path, *words: str, **how: str) -> str:
    """Return what Git prints. Raises UsageError with its first complaint, or OSError."""
    settings = [word for one in (*QUIETLY, *RAW * bool(how)) for word in ("-c", one)]
    elsewhere = {f"GIT_{name}" for name in ELSEWHERE}
    own = {name: value for name, value in os.environ.items() if name not in elsewhere}
    done = subprocess.run(
        ["git", *settings, *words],  # noqa: S607  # the user's own
        cwd=where,
        env=own | how,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if done.returncode:
        lines = done.stderr.splitlines()
        why = next((line for line in lines if not line.startswith(("hint:", "warning:"))), "")
        raise UsageError(plain(f"git {words[0]} in {where}: {why}"))
    return done.stdout.removesuffix("\n")
