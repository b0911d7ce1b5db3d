"""What is trained on, as a recording describes it: the device, and what software drives it."""

import platform
import re
from contextlib import suppress
from pathlib import Path

import torch

from gpudash.protocol import Device

DRIVER = Path("/proc/driver/nvidia/version")
"""Where NVIDIA's kernel module says its version."""


def describe_device(device: torch.device) -> Device:
    """Return the device as torch knows it; a GPU's UUID in NVML's form."""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        name = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
        return Device(kind="cpu", name=name)
    properties = torch.cuda.get_device_properties(device)
    return Device(
        kind="cuda",
        name=properties.name,
        uuid=nvml_uuid(properties.name, properties.uuid),
        mem_total_mib=properties.total_memory / 2**20,
    )


def nvml_uuid(name: str, uuid: object) -> str:
    """Return NVML's form of torch's `uuid`, by torch's name: an instance of a GPU has one too."""
    return f"{'MIG' if 'MIG' in name else 'GPU'}-{uuid}"


def versions() -> dict[str, str]:
    """Return what a figure depends on, for the provenance of a recording."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # in torch
    if cudnn:
        found["cudnn"] = str(cudnn)
    with suppress(OSError):  # without a driver there is no such file
        found |= driver_version(DRIVER.read_text())
    return found


def driver_version(text: str) -> dict[str, str]:
    """Return the driver's version, as NVML tells it, of what its kernel module says."""
    found = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return {"driver": found[1]} if found else {}
