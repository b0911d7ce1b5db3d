"""Drives `nvml_shim.c`: the real bindings over a driver library whose answers a test sets."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml_shim.c")
FIRST, SECOND, SLICE = "GPU-1111", "GPU-2222", "MIG-3333"


def build(folder: Path, *, without: tuple[str, ...] = ()) -> Path:
    """Compile the library, as it would be without these functions, and return its path."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for the driver library")
    exports = folder / "exports"
    hidden = f"local: {'; '.join(without)};" if without else ""
    exports.write_text(f"{{ global: *; {hidden} }};")
    library = folder / "libnvidia-ml.so.1"
    options = ("-shared", "-fPIC", "-O1", f"-Wl,--version-script={exports}")
    subprocess.run([compiler, *options, "-o", library, SOURCE], check=True)
    return library


class Driver:
    """The stand-in's answers, changeable at any time, and its log of calls."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.says("gpus 2", f"uuid.0 {FIRST}", "name.0 Hopper One")
        self.says(f"uuid.1 {SECOND}", "name.1 Hopper Two", f"mig.uuid {SLICE}", "mig.board 1")

    def says(self, *lines: str) -> None:
        with self.file.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def asked(self, function: str) -> int:
        """How often this function, or this `field.N`, has been called."""
        return sum(line.split()[0] == function for line in self._log())

    def asked_of(self, device: int) -> set[str]:
        """The functions called for this device."""
        return {name for name, of in map(str.split, self._log()) if of == str(device)}

    def environment(self, library: Path) -> dict[str, str]:
        """For a process that is to find the stand-in as the system's own library."""
        found_there = {"NVML_SHIM": str(self.file), "LD_LIBRARY_PATH": str(library.parent)}
        return os.environ | found_there

    def _log(self) -> list[str]:
        log = Path(f"{self.file}.calls")
        return log.read_text().splitlines() if log.exists() else []
