"""Describes the training device and its software for a recording."""

import platform
import re
from contextlib import suppress
from pathlib import Path

import torch

from gpudash.protocol import Device

DRIVER = Path("/proc/driver/nvidia/version")
"""The version file of NVIDIA's kernel module."""


def describe_device(device: torch.device) -> Device:
    """Return the device as torch describes it; a GPU's UUID is in NVML's form."""
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
    """Return torch's `uuid` in NVML's form; `name` shows whether it is a MIG instance."""
    return f"{'MIG' if 'MIG' in name else 'GPU'}-{uuid}"


def versions() -> dict[str, str]:
    """Return the versions of Python, torch, CUDA, cuDNN and driver, as far as present."""
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
    """Return the driver's version, in NVML's form, from the text of its version file."""
    found = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return {"driver": found[1]} if found else {}
