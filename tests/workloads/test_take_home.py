"""The lines that are shown for a lever do in a plain script what the lever does here.

What is run is the text that is shown, character by character.
"""

import gc
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor
from torch.utils.data import Subset, default_collate
from torchvision.transforms import v2

from gpudash.process_levers import OF_PROCESS
from tests.workloads.trainings import (
    CPU,
    CUDA,
    assert_same,
    needs_cuda,
    processes,
    train,
)
from workloads import CATALOGUE, augmentations, jpeg_stages, masked_loss, take_home
from workloads.batches import CACHED_BATCHES
from workloads.compute_options import EAGER_BEFORE_CAPTURE
from workloads.jpeg_files import JpegFiles
from workloads.levers import Lever
from workloads.standard_levers import PROCESSES
from workloads.take_home import recipe, recipes
from workloads.training import Training

ENTRY = CATALOGUE["masked_loss"]
SHARED = {lever.name: lever for lever in PROCESSES}
LEVERS = {
    lever.name: lever for entry in CATALOGUE.values() for lever in entry.of_processes().levers
}
VALUES = [(name, value) for name, lever in LEVERS.items() for value in lever.values]
FORMS = {
    "script": {"fused": None, "foreach": None},
    "fused": {"fused": True, "foreach": None},
    "foreach": {"fused": None, "foreach": True},
    "single": {"fused": None, "foreach": False},
}
IN_A_SCRIPT = [
    *product(["precision"], ["script", "cudnn_tf32"]),
    *product(["fused_optimizer"], FORMS),
    *product(["grad_sync"], ["each", "last"]),
    *product(["affinity"], ["own", "near"]),
    *((lever.name, value) for lever in OF_PROCESS for value in lever.values),
]
"""Values that levers have in a script of the user's."""
STEPS = 6
"""More than data=cached replays, and more than are run eagerly before a graph is recorded."""
NUMBERS = {
    "bucket_cap_mb": "4",
    "batch_size": "3",
    "num_workers": "2",
    "prefetch_factor": "3",
    "seed": "7",
}
OWN_CODE = {*take_home.BEFORE, *SHARED, "model_scale"}
"""Levers whose recipes are no training loop, or are none, or are one of several processes."""
LOOPS = [
    (name, value)
    for name, lever in LEVERS.items()
    if name not in OWN_CODE
    for value in lever.values or (NUMBERS[name],)
]
CUDA_ALONE = {("cuda_graph", "on"), ("precision", "tf32"), ("backward_thread", "autograd")}
LONGEST = 72
"""With the mark before it, a line fits a dialog on 80 columns."""
SMALL = {"model_scale": "small", "batch_size": "2", "num_workers": "0", "loss": "minmax"}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*pin_memory.*:UserWarning",
    "ignore:This DataLoader will create 4 worker processes:UserWarning",
    "ignore:The image decoding:DeprecationWarning",
)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Recipes change what is global in a process."""
    convolutions = torch.backends.cudnn.conv
    before = convolutions.fp32_precision
    stream = torch.cuda.current_stream() if torch.cuda.is_available() else None
    yield
    convolutions.fp32_precision = before
    if stream is not None:
        torch.cuda.set_stream(stream)


def shown(name: str, value: str) -> str:
    """Return the code shown for the value, or the plain loop where nothing is to be written."""
    return recipe(name, value).code or take_home._script(take_home.PLAIN)[1]


def run(name: str, value: str, device: torch.device = CPU, **yours: Any) -> dict[str, Any]:
    """Run what is shown for the value; return everything it has defined."""
    seed = NUMBERS["seed"] if name == "seed" else "0"
    size = int(value) if name == "batch_size" else int(SMALL["batch_size"])
    samples = masked_loss.RandomLabels(masked_loss.SCALES["small"].image_size, int(seed))
    names = {
        "dataset": Subset(samples, range(STEPS * size)),
        "batch_size": size,
        "build_model": lambda: masked_loss.build_model(masked_loss.SCALES["small"]),
        "criterion": masked_loss.MINMAX,
        "device": device,
    }
    names |= yours
    torch.manual_seed(0)
    exec(compile(shown(name, value), f"{name}={value}", "exec"), names)
    return names


def trained_here(name: str, value: str, device: torch.device = CPU) -> list[Tensor]:
    """Return the losses of the workload itself with this lever."""
    on_device = dict(ENTRY.on_cpu) if device == CPU else {}
    with closing(Training(ENTRY, on_device | SMALL | {name: value}, device)) as training:
        return train(training, STEPS)


@pytest.fixture
def streams_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for CUDA's streams: all is done in the order that the host asks for it."""
    for name in ("Stream", "stream", "set_stream"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())


# ── every lever has one ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lever", LEVERS.values(), ids=lambda lever: lever.name)
def test_every_value_has_lines_or_a_reason_why_there_are_none(lever: Lever) -> None:
    for value, one in recipes(lever.name, lever.values).items():
        assert one.note.endswith("."), value
        assert one.code or "nothing to write" in one.note or lever.name == "model_scale"
        assert max(map(len, one.code.splitlines()), default=0) <= LONGEST


def test_no_script_is_left_over() -> None:
    values = (*VALUES, *IN_A_SCRIPT, *product(LEVERS, [take_home.ANY]))
    asked = {take_home._name(*one) for one in values}
    there = {
        path.relative_to(take_home.SCRIPTS).with_suffix("").as_posix()
        for path in take_home.SCRIPTS.rglob("*.py")
    }
    assert there - {take_home.PLAIN} == asked & there


def test_a_number_stands_in_the_lines() -> None:
    assert "num_workers=N)" in recipe("num_workers").code
    assert "num_workers=16)" in recipe("num_workers", "16").code


def test_the_lines_are_marked_against_the_plain_loop() -> None:
    marked = recipe("precision", "bf16").marked
    assert [line for line in marked if not line.startswith(" ")] == [
        "-    loss = criterion(model(images), targets)",
        "+    with torch.autocast(device.type, dtype=torch.bfloat16):",
        "+        loss = criterion(model(images), targets)",
    ]


@pytest.mark.parametrize(("name", "value"), [*VALUES, *IN_A_SCRIPT, *NUMBERS.items()])
def test_without_what_is_removed_the_marked_lines_are_the_code(name: str, value: str) -> None:
    one = recipe(name, value)
    assert "".join(f"{line[1:]}\n" for line in one.marked if line[0] != "-") == one.code


# ── the loops ───────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("streams_that_wait")
@pytest.mark.parametrize(
    ("name", "value"), [one for one in LOOPS if one not in CUDA_ALONE and one[0] != "compile"]
)
def test_the_losses_are_those_of_the_lever(name: str, value: str) -> None:
    assert_same(CPU, run(name, value)["losses"], trained_here(name, value))


@needs_cuda
@pytest.mark.parametrize(("name", "value"), LOOPS)
def test_the_losses_are_those_of_the_lever_on_a_gpu(name: str, value: str) -> None:
    losses = [loss.cpu() for loss in run(name, value, CUDA)["losses"]]
    assert_same(CUDA, losses, trained_here(name, value, CUDA))


@pytest.fixture
def process_as_before() -> Iterator[None]:
    threshold, threads = gc.get_threshold(), torch.get_num_threads()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("process_as_before")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gc", "frozen"),
        ("gc", "rare"),
        ("threads", "1"),
        ("precision", "tf32"),
        ("backward_thread", "autograd"),
    ],
)
def test_the_process_and_what_only_a_gpu_notices_change_no_loss(name: str, value: str) -> None:
    assert_same(CPU, run(name, value)["losses"], trained_here("pipelined", "off"))


def test_the_loader_is_asked_for_what_the_levers_say() -> None:
    assert run("batch_size", "3")["loader"].batch_size == 3
    assert run("num_workers", "2")["loader"].num_workers == 2
    assert run("prefetch_factor", "3")["loader"].prefetch_factor == 3
    assert run("pin_memory", "on")["loader"].pin_memory


@pytest.mark.parametrize("value", ["cached", "resident"])
def test_a_few_batches_are_replayed(value: str) -> None:
    done = run("data", value)
    assert len(done["batches"]) == CACHED_BATCHES
    assert len(done["losses"]) == STEPS


@pytest.mark.parametrize(("value", "kept"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_convolutions_keep_so_many_bits(value: str, kept: str) -> None:
    run("precision", value)
    assert torch.backends.cudnn.conv.fp32_precision == kept


def test_bf16_computes_in_bfloat16_and_keeps_the_weights() -> None:
    computed_in = set()

    def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
        computed_in.add(outputs.dtype)
        return masked_loss.MINMAX(outputs, targets)

    done = run("precision", "bf16", criterion=criterion)
    assert computed_in == {torch.bfloat16}
    assert {p.dtype for p in done["model"].parameters()} == {torch.float32}


def test_images_and_weights_are_in_channels_last_order() -> None:
    done = run("channels_last", "on")
    for tensor in (done["images"], *(p for p in done["model"].parameters() if p.dim() == 4)):
        assert tensor.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("value", "flags"), [("on", FORMS["fused"]), *FORMS.items()])
def test_the_optimizer_has_the_form(value: str, flags: dict[str, bool | None]) -> None:
    group = run("fused_optimizer", value)["optimizer"].param_groups[0]
    assert {name: group[name] for name in flags} == flags


def test_the_backward_pass_stays_on_the_callers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, backward = set(), Tensor.backward

    def spy(loss: Tensor) -> None:
        allowed.add(torch._C._is_multithreading_enabled())
        backward(loss)

    monkeypatch.setattr(Tensor, "backward", spy)
    run("backward_thread", "caller")
    assert allowed == {False}


def test_the_model_is_compiled_with_options_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_, known = torch.compile, torch._inductor.list_options()

    def without_inductor(model: torch.nn.Module, *, dynamic: bool, options: dict[str, Any]) -> Any:
        assert set(options) <= set(known)
        return compile_(model, dynamic=dynamic, backend="eager")  # inductor takes seconds

    monkeypatch.setattr(torch, "compile", without_inductor)
    done = run("compile", "on")
    assert isinstance(done["model"], torch._dynamo.OptimizedModule)
    assert_same(CPU, done["losses"], run("compile", "off")["losses"])


def test_a_graph_is_recorded_after_as_many_eager_steps_as_here() -> None:
    assert f"len(losses) < {EAGER_BEFORE_CAPTURE}:" in shown("cuda_graph", "on")


# ── what is no loop ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", LEVERS["loss"].values)
@pytest.mark.parametrize("labels", [(-1, 10), (-1, 0), (9, 10), (3, 4), (0, 3)])
def test_each_form_of_the_loss_is_the_workloads(value: str, labels: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(*labels, (2, 8, 8), generator=generator)
    found = []
    for criterion in (run("loss", value)["criterion"], masked_loss.LOSSES[value]):
        logits = torch.randn(2, 10, 8, 8, generator=generator.manual_seed(1), requires_grad=True)
        loss = criterion(logits, target)
        loss.backward()
        found.append([loss.detach(), logits.grad])
    assert_same(CPU, *found)


@pytest.mark.parametrize("value", LEVERS["rotation"].values)
def test_each_rotation_is_the_workloads(value: str) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(4, 3, 64, 64, generator=generator)
    angles = torch.empty(4, dtype=torch.float64).uniform_(-45, 45, generator=generator)
    expected = augmentations.rotate_each(images, angles.tolist())
    assert_same(CPU, [run("rotation", value)["rotate"](images, angles)], [expected])


def test_augmenting_in_the_workers_or_on_the_device_trains_on_the_same() -> None:
    augment = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Resize([16, 16])])
    dataset = [(torch.full((3, 8, 8), i, dtype=torch.uint8), torch.tensor(i)) for i in range(6)]
    done = {
        value: run(
            "augment_on",
            value,
            dataset=dataset,
            augment=augment,
            build_model=lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 10)),
            criterion=torch.nn.CrossEntropyLoss(),
        )
        for value in LEVERS["augment_on"].values
    }
    assert next(iter(done["cpu"]["loader"]))[0].dtype == torch.float32
    assert next(iter(done["batched"]["loader"]))[0].dtype == torch.uint8
    assert_same(CPU, done["cpu"]["losses"], done["batched"]["losses"])


@pytest.mark.parametrize("value", LEVERS["input"].values)
def test_each_way_to_make_a_sample_makes_the_workloads(value: str, written: JpegFiles) -> None:
    if value == "region_decode":
        pytest.importorskip("nvidia.nvimgcodec")
    made = run("input", value)
    keys = torch.tensor([3, 123_456_789])
    samples = []
    for path, key in zip(written.paths, keys, strict=False):
        top, left = jpeg_stages.corner(key)
        samples.append(made["load"](str(path), top, left, jpeg_stages.random_mask(key)))
    batch = made.get("collate", default_collate)(samples)
    batch = made["finish"](*batch) if "finish" in made else batch
    steps = jpeg_stages.STAGES["baseline"].sample
    expected = [
        jpeg_stages.run(steps, path, key)[0] for path, key in zip(written.paths, keys, strict=False)
    ]
    torch.testing.assert_close(batch, torch.stack(expected), rtol=0, atol=1e-5)


# ── over several processes ──────────────────────────────────────────────────────────────


def losses_of_one_rank(name: str, value: str, store: str) -> list[Tensor]:
    """Return what the lines train, as the only process of a group."""
    torch.set_num_threads(1)  # the parent's threads were not forked
    join = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda: join(
        "gloo", f"file://{store}", rank=0, world_size=1
    )
    return run(name, value)["losses"]


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, lever in SHARED.items() for value in lever.values or ("4",)],
)
def test_the_lines_of_averaging_train_as_one_process_does(
    name: str, value: str, tmp_path: Path
) -> None:
    with processes().Pool(1) as pool:
        arguments = (name, value, str(tmp_path / "store"))
        losses = pool.apply_async(losses_of_one_rank, arguments).get(timeout=120)
    close = 1e-3 if name == "gradient_compression" else 1e-6
    torch.testing.assert_close(losses, trained_here("seed", "0"), rtol=close, atol=close)
