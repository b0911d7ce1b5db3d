"""One GPU, two libraries: what NVML calls the one that torch trains on. Imports neither."""


def nvml_uuid(name: str, uuid: object) -> str:
    """Return NVML's form of torch's `uuid`, by torch's name: an instance of a GPU has one too."""
    return f"{'MIG' if 'MIG' in name else 'GPU'}-{uuid}"
