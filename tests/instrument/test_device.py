import pytest

from gpudash.instrument.device import nvml_uuid

UUID = "5fcb9b1c-0c2e-4d6f-9a1b-0d5c3b2a1f00"


@pytest.mark.parametrize(
    ("name", "prefix"), [("NVIDIA H200", "GPU"), ("NVIDIA H200 MIG 1g.18gb", "MIG")]
)
def test_a_gpu_and_an_instance_of_one_are_found_by_their_uuid_in_nvml(name: str, prefix: str):
    assert nvml_uuid(name, UUID) == f"{prefix}-{UUID}"
