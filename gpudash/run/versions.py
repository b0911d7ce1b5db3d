"""The working trees of two versions of the user's repository, each complete enough to train in.

What Git ignores in the user's tree (data, compiled extensions) is linked into them, and so is what
lies beside that tree. What a Python would import from the user's tree it finds in theirs.
"""

import json
import os
import re
import subprocess
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

from gpudash.errors import UsageError
from gpudash.format import plain
from gpudash.run.child import Scratch
from gpudash.run.user_command import UserCommand, interpreter, understand
from gpudash.run.user_repository import UserRepository, listed, nested

IGNORED = ("--others", "--ignored", "--exclude-standard", "--directory")
LOCKS = (
    *("requirements*.txt", "requirements/*.txt", "*.lock", "Pipfile.lock", "pylock*.toml"),
    *("conda-lock.y*ml", "environment*.y*ml"),
)
"""Files that say which packages a version needs."""
IMPORTS = """
import importlib.util, json, site, sys, sysconfig
sys.path[:] = [entry for entry in sys.path if entry]
def places(name):
    try:
        spec = importlib.util.find_spec(name)
        return list(spec.submodule_search_locations or [spec.origin] * spec.has_location)
    except Exception:
        return []
own = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
found = {name: places(name) for name in json.load(sys.stdin)}
print()
print(json.dumps([own + [site.getusersitepackages()], sys.path, found]))
"""
"""Asks a Python what is its own, where it searches, and where it finds modules."""


class Version(NamedTuple):
    """A version of the user's repository, as it can be run."""

    name: str
    """As asked: a commit, tag or branch, or `.` for the tree as it is."""
    commit: str
    """Its hash. Of the tree as it is, that of a commit of all that Git does not ignore."""
    tree: Path
    """The root of its working tree."""
    folder: Path
    """The folder in it that corresponds to the current one: commands start there."""
    python_path: tuple[str, ...]
    """What its Pythons search first, in place of the same folders of the user's tree."""
    root: Path
    """The root of the user's tree."""

    def command(self, words: Sequence[str], python: str | None = None) -> UserCommand:
        """Return the command in this version, also where words name the user's tree in full."""
        theirs = re.compile(rf"(^|=){re.escape(str(self.root))}(?=/|$)")
        here = [theirs.sub(lambda found: f"{found[1]}{self.tree}", word) for word in words]
        try:
            understood = understand(here, python, self.folder)
        except UsageError as error:
            raise UsageError(f"{plain(self.name)}: {error}") from error
        for word in (word for word in here if word.endswith(".py")):
            place = (self.folder / word).resolve()  # from where Python would import
            if place.is_relative_to(self.root) and not place.is_relative_to(self.tree):
                what = f"{self.name}: {word} is in no version, as Git ignores it"
                raise UsageError(plain(f"{what}; valid: a script that Git tracks"))
        return understood._replace(python_path=self.python_path)


class WorkingTrees:
    """The trees of two versions, until `close`."""

    def __init__(
        self, names: tuple[str, str], pythons: tuple[str | None, str | None] = (None, None)
    ) -> None:
        """`pythons` are the interpreters of the two, as `understand` takes them.

        Raises UsageError.
        """
        with ExitStack() as on_failure:
            try:
                self._scratch = Scratch()
                on_failure.callback(self.close)
                self._folder = Path(self._scratch.name).resolve()
                self._repository = UserRepository(self._folder)
                first, second = map(self._version, names, "ab", pythons)
            except OSError as error:
                raise UsageError(plain(f"versions {','.join(names)}: {error}")) from error
            on_failure.pop_all()
        self.versions: tuple[Version, Version] = first, second

    def close(self) -> None:
        self._scratch.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _version(self, name: str, side: str, python: str | None) -> Version:
        root, within = self._repository.root, self._repository.within
        commit = self._repository.commit(name)
        tree = self._folder / side / root.name
        folder = tree / within
        self._repository.check_out(commit, tree)
        if not folder.is_dir():
            raise UsageError(plain(f"version {name}: that version has no folder {within}"))
        modules = set[str]()
        for of_version, theirs in nested(tree, root):
            modules |= _modules(of_version)
            for ignored in listed(theirs, *IGNORED):
                _link(theirs / ignored, of_version / ignored)
        with suppress(PermissionError):
            for beside in root.parent.iterdir():  # commands name it by `..`
                if beside != root:
                    _link(beside, tree.parent / beside.name)
        python = interpreter(python, f"--python-{side}")
        path, lost = self._python_path(folder, tree, modules, python)
        if lost:
            what = f"version {name}: {python} imports {lost} instead of from that version"
            valid = "valid: --python-a and --python-b with an environment for each"
            raise UsageError(plain(f"{what}; {valid}"))
        return Version(name, commit, tree, folder, path, root)

    def _python_path(
        self, folder: Path, tree: Path, modules: Collection[str], python: str
    ) -> tuple[tuple[str, ...], str]:
        """Return what a Python has to search first, and what it finds in the user's tree still.

        It finds what is installed there for editing, and what PYTHONPATH names.
        """
        entries, found = self._imports(python, folder, modules, ())
        entries += [place.parent for places in found.values() for place in places]
        root = self._repository.root
        path = tuple(dict.fromkeys(str(tree / entry.relative_to(root)) for entry in entries))
        left = self._imports(python, folder, modules, path)[1] if path else {}
        # a script's neighbours may have the name of a module there; a package's is its own
        still = ((name, place) for name in left for place in left[name] if place.is_dir())
        lost = (f"{name} from {place}" for name, place in still)
        return path, next(lost, "")

    def _imports(
        self, python: str, folder: Path, modules: Collection[str], first: Sequence[str]
    ) -> tuple[list[Path], dict[str, list[Path]]]:
        """Return what a Python finds in the user's tree: entries of its path, and modules."""
        before = os.environ.get("PYTHONPATH")
        asked = subprocess.run(
            [python, "-B", "-c", IMPORTS],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([*first, *filter(None, [before])])},
            input=json.dumps([*modules]),
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode:
            why = asked.stderr.strip().rpartition("\n")[2]
            raise UsageError(plain(f"{python} does not say from where it imports: {why}"))
        own, entries, found = json.loads(asked.stdout.rpartition("\n\n")[2])
        not_theirs = [self._folder, *(Path(place).resolve() for place in own)]

        def theirs(places: list[str]) -> list[Path]:
            resolved = (Path(place).resolve() for place in places)
            return [
                place
                for place in resolved
                if place.is_relative_to(self._repository.root)
                and not any(map(place.is_relative_to, not_theirs))
            ]

        return theirs(entries), {name: theirs(places) for name, places in found.items()}


def check_locks(a: Version, b: Version, pythons: tuple[str | None, str | None]) -> None:
    """Raise UsageError if the versions need different packages and share a Python."""
    one, other = _locks(a), _locks(b)
    differing = [name for name in sorted(one | other) if one.get(name) != other.get(name)]
    if differing and None in pythons:
        what = f"versions {a.name},{b.name}: {', '.join(differing)}"
        valid = "valid: --python-a PYTHON --python-b PYTHON"
        raise UsageError(plain(f"{what}: not the same packages, so each needs its own; {valid}"))


def _locks(version: Version) -> dict[str, object]:
    """Return the locks of the folder and those above it, and what projects there depend on."""
    here, found = version.folder.relative_to(version.tree), dict[str, object]()
    for folder in (version.tree / one for one in (here, *here.parents)):
        locks = (path for pattern in LOCKS for path in folder.glob(pattern) if path.is_file())
        found |= {str(path.relative_to(version.tree)): path.read_bytes() for path in locks}
        project = folder / "pyproject.toml"
        if project.is_file() and (needed := _dependencies(project.read_bytes())):
            found[f"dependencies in {project.relative_to(version.tree)}"] = needed
    return found


def _dependencies(text: bytes) -> object:
    """Return what a project says of them, if anything; the text if it is no project's."""
    import tomllib  # noqa: PLC0415  # most comparisons are of no versions

    try:
        told = tomllib.loads(text.decode())
        project = dict(told.get("project", {}))
    except (ValueError, TypeError, RecursionError):
        return text
    each = (project.get("dependencies"), project.get("optional-dependencies"))
    return [one for one in (*each, told.get("dependency-groups")) if one]


def _modules(tree: Path) -> set[str]:
    """Return the names of a tree's modules and packages that are in no package."""
    files = [Path(path) for path in listed(tree, "*.py")]
    packages = {file.parent for file in files if file.name == "__init__.py"} - {Path()}
    modules = packages | {file.with_suffix("") for file in files}
    return {one.name for one in modules if one.parent not in packages and one.name.isidentifier()}


def _link(source: Path, target: Path) -> None:
    """Link what the target has not. Bytecode is of one version."""
    if source.name == "__pycache__" or source.suffix == ".pyc":
        return
    if not target.exists() and not target.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    elif source.is_dir() and target.is_dir() and not source.samefile(target):
        for entry in source.iterdir():
            _link(entry, target / entry.name)
