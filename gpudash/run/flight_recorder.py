"""Have PyTorch dump its flight recorder, and read which collectives a process has joined.

PyTorch takes requests on pipes that the user has named. gpudash itself names none: if a pipe
cannot be created, as in a folder that is gone, PyTorch aborts the training.
"""

import os
import pickle
import re
import stat
from collections import defaultdict
from contextlib import suppress
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from gpudash.input_file import open_input
from gpudash.protocol.inspections import Joined

PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Variables with the names of pipe and file, without the rank; the first set one of two counts."""
PATIENCE_S = 5.0
"""Seconds a process may take to write the file: it polls its pipe once a second."""
MOST_BYTES = 64 << 20
"""Most bytes read of the file: two thousand collectives with stacks take a few MiB."""
MOST_GROUPS = 64
MOST_CHARACTERS = 100
"""Most characters kept of a name."""
BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "Float"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat"), 8),
}
"""Bytes of an element, by PyTorch's name of its type."""


class _Collective(msgspec.Struct):
    """A collective in the dump."""

    process_group: tuple[str, str]
    collective_seq_id: int
    profiling_name: str
    state: str
    is_p2p: bool
    input_sizes: list[list[int]]
    input_dtypes: list[str]
    retired: bool = False

    @property
    def is_over(self) -> bool:
        return self.retired or self.state == "completed"

    @property
    def mib(self) -> float | None:
        """The rank's input; None if a type is unknown."""
        sizes = zip(self.input_dtypes, self.input_sizes, strict=False)
        if not all(dtype in BYTES for dtype in self.input_dtypes):
            return None
        return sum(BYTES[dtype] * prod(size) for dtype, size in sizes) / (1 << 20)


class _Group(msgspec.Struct):
    name: str
    desc: str


class _Dump(msgspec.Struct):
    entries: list[_Collective] = []
    pg_config: dict[str, _Group] = {}


class _Written:
    """The file that a process writes on request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = self._newest = _version(path)

    def joined(self) -> tuple[Joined, ...] | None:
        newest, self._newest = self._newest, _version(self._path)
        if self._newest is None or self._newest != newest or newest == self._before:
            return None
        with suppress(OSError), open_input(self._path) as file:
            return joined(file.read(MOST_BYTES))
        return None


def ask(pid: int) -> _Written | None:
    """Return None if the user has named no pipes, or the process has none open."""
    try:
        said = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        environment = dict(os.fsdecode(one).partition("=")[::2] for one in said)
        found = _pipe(pid, environment[PIPE]) if environment.get(PIPE) else None
        if found is None:
            return None
        pipe, rank = found
        folder, name = _file(environment)
        written = _Written(_beside(pid, folder, name + rank))
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b"\n")
                return written
        finally:
            os.close(fd)
    except OSError:
        pass
    return None


def joined(raw: bytes) -> tuple[Joined, ...] | None:
    """Return None if `raw` is not a complete dump."""
    try:
        dump = msgspec.convert(_Plain(BytesIO(raw)).load(), _Dump)
    except Exception:  # noqa: BLE001  # a pickle may end anywhere, in anything
        return None
    groups: dict[tuple[str, str], list[_Collective]] = defaultdict(list)
    for group in dump.pg_config.values():
        groups[group.name, group.desc] = []
    for entry in dump.entries:
        if not entry.is_p2p:
            groups[entry.process_group].append(entry)
    return tuple(_joined(*names, entries) for names, entries in list(groups.items())[:MOST_GROUPS])


def _joined(name: str, description: str, entries: list[_Collective]) -> Joined:
    newest = max((one.collective_seq_id for one in entries), default=0)
    left = [one for one in entries if not one.is_over]
    up_to_newest = Joined(
        group=name[:MOST_CHARACTERS], group_name=description[:MOST_CHARACTERS], newest=newest
    )
    if not left:
        return up_to_newest
    first = min(left, key=lambda one: one.collective_seq_id)
    return msgspec.structs.replace(
        up_to_newest,
        waits_in=first.collective_seq_id,
        collective=first.profiling_name.rpartition(":")[2][:MOST_CHARACTERS],
        mib=first.mib,
    )


class _Plain(pickle.Unpickler):
    """Unpickles containers, numbers and text only, so that no code is called."""

    def find_class(self, _module: str, _name: str, /) -> NoReturn:
        raise pickle.UnpicklingError("it holds more than plain values")

    def persistent_load(self, _pid: Any, /) -> NoReturn:
        raise pickle.UnpicklingError("it refers to something else")


def _pipe(pid: int, stem: str) -> tuple[str, str] | None:
    folder, name = os.path.split(stem)
    place = os.path.realpath(_beside(pid, folder, ""))
    pattern = re.compile(rf"{re.escape(os.path.join(place, name))}(\d+)\.pipe")  # noqa: PTH118
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found = pattern.fullmatch(os.readlink(one))  # noqa: PTH115
            if found is not None:
                return found[0], found[1]
    return None


def _file(environment: dict[str, str]) -> tuple[str, str]:
    for name in FILES:
        if said := environment.get(name):
            return os.path.split(said)
    home = environment.get("HOME", "/tmp")  # noqa: S108  # as PyTorch has it
    return f"{environment.get('XDG_CACHE_HOME', f'{home}/.cache')}/torch", "comm_lib_trace_rank_"


def _beside(pid: int, folder: str, name: str) -> Path:
    return Path(f"/proc/{pid}/cwd").readlink() / folder / name


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    is_file = stat.S_ISREG(about.st_mode)
    return (about.st_ino, about.st_mtime_ns, about.st_size) if is_file else None
