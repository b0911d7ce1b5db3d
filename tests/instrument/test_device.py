import pytest

from gpudash.instrument.device import driver_version, nvml_uuid

UUID = "5fcb9b1c-0c2e-4d6f-9a1b-0d5c3b2a1f00"


@pytest.mark.parametrize(
    ("name", "prefix"), [("NVIDIA H200", "GPU"), ("NVIDIA H200 MIG 1g.18gb", "MIG")]
)
def test_gpus_and_mig_instances_have_nvmls_uuid(name: str, prefix: str):
    assert nvml_uuid(name, UUID) == f"{prefix}-{UUID}"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC 12.3.0\n",
            {"driver": "535.104.05"},
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
            {"driver": "580.65.06"},
        ),
        ("GCC version:  gcc version 12.3.0\n", {}),
        ("", {}),
    ],
)
def test_the_drivers_version_is_read_from_its_version_file(said, found):
    assert driver_version(said) == found
