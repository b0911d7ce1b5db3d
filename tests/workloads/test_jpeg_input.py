"""Every stage of the input makes the same samples; only the time and the place differ."""

from io import BytesIO
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from PIL import Image
from torch.utils.data import default_collate

from tests.workloads.trainings import (
    COUNT,
    CPU,
    CUDA,
    DEVICES,
    Make,
    assert_same,
    train,
    weights,
)
from workloads import CATALOGUE, jpeg_files, jpeg_input
from workloads.jpeg_files import JpegFiles
from workloads.jpeg_input import PATIENCE, JpegCrops, JpegInput
from workloads.jpeg_stages import STAGES, Stage
from workloads.levers import LeverError, resolve
from workloads.workload import unmarked

MAKES = ("jpeg_input", {"batch_size": "3"})

SOURCE = ["baseline", "dilation", "crop_first", "batched_colour"]
OURS = ["on_device", "tensor_decode", "region_decode"]
ENTRY = CATALOGUE["jpeg_input"]
# torchvision 0.29 says that torchcodec will take over; 0.26 works without a word
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, written: JpegFiles) -> None:
    monkeypatch.setenv("GPUDASH_DATA", str(written.directory.parent))
    monkeypatch.setattr(jpeg_input, "FILES", COUNT)


@pytest.fixture
def copies(written: JpegFiles, tmp_path: Path) -> list[Path]:
    """Files that a test may spoil."""
    paths = [tmp_path / path.name for path in written.paths]
    for path, original in zip(paths, written.paths, strict=True):
        path.symlink_to(original)
    return paths


def stage(name: str) -> Stage:
    if name == "region_decode":
        pytest.importorskip("nvidia.nvimgcodec")
    return STAGES[name]


def spoil(path: Path, content: bytes | None) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)


# The samples.


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*SOURCE[1:], *OURS])
def test_every_stage_makes_the_baselines_samples(
    make: Make, written: JpegFiles, name: str, device: torch.device
) -> None:
    baseline = default_collate([JpegCrops(written.paths, STAGES["baseline"], 7)[i] for i in (4, 9)])
    made = JpegCrops(written.paths, stage(name), 7).__getitems__([4, 9])
    pixels, labels = make(device, input=name)._workload.prepare(
        default_collate(made)[:-1], mark=unmarked
    )
    assert (pixels.shape, pixels.dtype) == ((2, 3, 256, 256), torch.float32)
    assert labels.tolist() == [4, 9]
    # both decoders are libjpeg-turbo with its defaults: not one level differs
    tolerance = 0 if device.type == "cpu" else 1e-6
    torch.testing.assert_close(pixels.cpu(), baseline[0], rtol=0, atol=tolerance)


def test_a_baseline_sample_is_the_sources(written: JpegFiles) -> None:
    made = JpegCrops(written.paths, STAGES["baseline"], 0)[0][0]
    luma, blue, red = made
    hidden = blue == 128 / 255
    assert 0 <= luma.min() <= luma.max() <= 1.001
    assert luma[hidden].min() == 0  # black hides
    share = ((luma == 0) & (blue == 128 / 255) & (red == 128 / 255)).float().mean()
    assert 0.7 < share < 0.83  # 1 − 0.75⁵ = 0.76 of the pixels lie on the mask or beside it


def test_a_sample_is_the_same_every_time_and_no_two_are_alike(written: JpegFiles) -> None:
    crops, again = (JpegCrops(written.paths, STAGES["on_device"], 3) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(crops[5][:3], again[5][:3], strict=True))
    other_seed = JpegCrops(written.paths, STAGES["on_device"], 4)
    for other in (crops[5 + COUNT], other_seed[5]):  # of the same file
        assert not torch.equal(other[0], crops[5][0])
        assert other[2] != crops[5][2]


@pytest.mark.parametrize("name", [*SOURCE, *OURS])
def test_every_transform_is_timed(written: JpegFiles, name: str) -> None:
    crops = JpegCrops(written.paths, stage(name), 0)
    measured = torch.stack([sample[-1] for sample in crops.__getitems__([0, 1])])
    assert (measured.shape, measured.dtype) == ((2, len(crops.transforms) + 1), torch.float32)
    assert (measured[:, :-1] > 0).all()
    assert not measured[:, -1].any()
    assert crops.transforms[:2] == ("read", "decode")


# What cannot be read.


def jpeg(mode: str, size: tuple[int, int]) -> bytes:
    file = BytesIO()
    Image.new(mode, size).save(file, "JPEG")
    return file.getvalue()


BAD: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "not a JPEG": b"GIF89a" * 1000,
    "cut off": jpeg("RGB", (800, 533))[:2000],
    "too small": jpeg("RGB", (90, 100)),
    "grey": jpeg("L", (800, 533)),
}


@pytest.mark.parametrize("name", ["baseline", "batched_colour", "tensor_decode", "region_decode"])
@pytest.mark.parametrize("bad", ["missing", "empty", "not a JPEG"])
def test_an_unreadable_file_is_passed_over_and_counted(
    copies: list[Path], name: str, bad: str
) -> None:
    for path in copies[2:4]:
        spoil(path, BAD[bad])
    crops = JpegCrops(copies, stage(name), 0)
    made = crops.__getitems__([1, 2, 3, 4])
    assert [int(sample[-1][-1]) for sample in made] == [0, 2, 1, 0]
    assert [int(sample[1]) for sample in made] == [1, 4, 4, 4]
    assert torch.equal(made[1][0], made[3][0])


@pytest.mark.parametrize("name", ["baseline", "crop_first", "tensor_decode"])
@pytest.mark.parametrize("bad", ["cut off", "too small", "grey"])
def test_what_is_no_such_photograph_ends_no_run(copies: list[Path], name: str, bad: str) -> None:
    spoil(copies[2], BAD[bad])
    sample = JpegCrops(copies, stage(name), 0)[2]
    assert sample[0].shape == (3, 256, 256)  # passed over, or read as what it can pass for


def test_too_many_in_a_row_are_one_error_that_names_the_file(copies: list[Path]) -> None:
    for path in copies[: PATIENCE - 1]:
        spoil(path, b"")
    crops = JpegCrops(copies, STAGES["dilation"], 0)
    assert crops[0][-1][-1] == PATIENCE - 1
    spoil(copies[PATIENCE - 1], b"")
    with pytest.raises(RuntimeError, match="16 unreadable JPEG files in a row") as caught:
        crops[0]
    assert str(copies[PATIENCE - 1]) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_report_names_the_transforms_and_counts_the_skipped_though_the_loader_is_replaced(
    make: Make, copies: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(copies[1], b"")
    monkeypatch.setattr(JpegFiles, "paths", copies)
    training = make(input="crop_first", num_workers="1")
    train(training, 1)
    report = training.input_report()
    assert list(report.transform_ms) == [
        *("read", "decode", "crop", "to_tensor", "mask", "colour", "scale")
    ]
    assert all(ms > 0 for ms in report.transform_ms.values())
    assert report.skipped == 1
    training = make(input="crop_first", num_workers="1")
    train(training, 1)
    training.change({"batch_size": "3"})
    assert [training.input_report().skipped for _ in range(2)] == [1, 0]  # told once


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_measurements_that_nobody_asks_for_hold_no_file_open(
    make: Make, copies: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in shared memory, whose descriptor stays open as long as a tensor lies in it."""
    monkeypatch.setattr(JpegFiles, "paths", copies)
    training = make(input="crop_first", num_workers="1")
    train(training, 2)
    before = open_files()
    train(training, 10)
    assert open_files() < before + 5


# The training.


@pytest.mark.parametrize("data", ["loader", "cached", "resident"])
def test_every_stage_trains_the_same_weights(make: Make, data: str) -> None:
    baseline = make(data=data)
    losses = train(baseline, 5)
    for name in ("batched_colour", "tensor_decode"):
        training = make(data=data, input=name)
        assert_same(CPU, train(training, 5), losses)
        assert_same(CPU, weights(training), weights(baseline))


@pytest.mark.parametrize("workers", ["0", "1"])
def test_another_stage_goes_on_in_the_data_with_the_weights(make: Make, workers: str) -> None:
    baseline, switched = make(), make(num_workers=workers)
    losses = train(switched, 1)
    for name in ("on_device", "batched_colour"):
        kept = weights(switched)
        switched.change({"input": name})
        assert_same(CPU, weights(switched), kept)
        losses += train(switched, 1)
    assert_same(CPU, losses, train(baseline, 3))


def test_the_full_model_is_the_sources(make: Make) -> None:
    training = make(model_scale="full", batch_size="1")
    convolutions = [m for m in training._workload.model if isinstance(m, torch.nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [30] * 9 + [10]
    assert {m.kernel_size for m in convolutions} == {(3, 3)}
    assert training._workload.model(torch.zeros(2, 3, 256, 256)).shape == (2, 10)


def test_floats_weigh_four_times_what_bytes_do() -> None:
    def batch_bytes(name: str, device: torch.device) -> tuple[int, int]:
        chosen = resolve(ENTRY.levers, {"input": name, "model_scale": "small"})
        values = {lever.name: lever.parse(chosen[lever.name]) for lever in ENTRY.levers}
        return JpegInput.host_bytes(values, device)

    floats, _ = batch_bytes("baseline", CUDA)
    assert floats == 256 * 3 * 256 * 256 * 4
    assert batch_bytes("on_device", CUDA) == (floats // 4, 0)
    assert batch_bytes("on_device", CPU)[1] > batch_bytes("baseline", CPU)[1] > 0


def test_files_are_written_once_and_announced(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPUDASH_DATA", str(tmp_path))
    monkeypatch.setattr(jpeg_files, "DISTINCT", 2)
    make()
    place = tmp_path / f"jpeg-800x533-{COUNT}-v1"
    assert capsys.readouterr().err == f"writing {COUNT} JPEG files (1 MiB) to {place}, once\n"
    make(seed="1", model_scale="full")
    assert capsys.readouterr().err == ""


def test_a_stage_without_its_library_is_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jpeg_input, "nvimgcodec", Mock(side_effect=ImportError))
    training = make()
    with pytest.raises(LeverError, match="needs nvidia-nvimgcodec-cu13.*valid here: baseline"):
        training.check({"input": "region_decode"})
