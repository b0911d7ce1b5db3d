"""Presets of `gpudash sweep --preset NAME`. The first column is an experiment's baseline."""

from typing import NamedTuple, TypeAlias

from gpudash.compare.lengths import MIN_STEPS, ROUNDS

Settings: TypeAlias = dict[str, str]
"""As in the protocol, which is not imported here to keep `--help` fast."""


class Preset(NamedTuple):
    """A sweep of one workload."""

    workload: str
    rows: tuple[Settings, ...]
    columns: tuple[Settings, ...]
    settings: Settings = {}  # noqa: RUF012  # never written to
    """Fixed for the whole sweep."""
    min_steps: int = MIN_STEPS
    rounds: int = ROUNDS


def _batches(*sizes: int) -> tuple[Settings, ...]:
    return tuple({"batch_size": str(size)} for size in sizes)


_AUGMENT: tuple[Settings, ...] = (
    {"augment_on": "cpu", "pipelined": "off", "rotation": "per_image", "pin_memory": "off"},
    {"augment_on": "batched", "pipelined": "off", "rotation": "per_image", "pin_memory": "off"},
    {"augment_on": "batched", "pipelined": "on", "rotation": "per_image", "pin_memory": "off"},
    {"augment_on": "batched", "pipelined": "off", "rotation": "batched", "pin_memory": "off"},
    {"augment_on": "batched", "pipelined": "on", "rotation": "batched", "pin_memory": "on"},
)
_BEST = {"num_workers": "14", "channels_last": "on", "precision": "bf16"}
_AUGMENT_BEST: tuple[Settings, ...] = (
    _AUGMENT[-1] | _BEST,
    _AUGMENT[-1] | _BEST | {"data": "cached"},  # the upper bound without a loader
)
_LOSSES: tuple[Settings, ...] = tuple(
    {"loss": loss} for loss in ("nonzero", "where", "counted", "ignore_index", "minmax")
)
_STAGES = ("baseline", "dilation", "crop_first", "batched_colour", "on_device", "tensor_decode")
_NHWC: Settings = {"precision": "tf32", "channels_last": "on"}
_BF16 = _NHWC | {"precision": "bf16"}
_GRAPH = _BF16 | {"fused_optimizer": "on", "cuda_graph": "on"}

ON_GPU = {
    "encdec": Preset(
        workload="encdec",
        settings={"data": "resident"},  # with the loader it is input-bound
        rows=_batches(4, 8, 16, 32, 64, 128),
        columns=({"pipelined": "off"}, {"pipelined": "on"}),
    ),
    "augment": Preset(
        workload="augment",
        rows=_batches(8, 16, 32, 64, 128),
        columns=(*_AUGMENT, *_AUGMENT_BEST),
        min_steps=32,  # several bursts of the loader, each of one batch per worker
    ),
    "masked_loss": Preset(
        workload="masked_loss",
        settings={"data": "resident"},
        rows=_batches(256),
        columns=(*_LOSSES, {"loss": "minmax", "channels_last": "on"}),
        min_steps=5,
    ),
    "jpeg_input": Preset(
        workload="jpeg_input",
        rows=_batches(256),
        columns=(
            {"input": "baseline", "num_workers": "4"},
            *({"input": stage, "num_workers": "8"} for stage in _STAGES),
            {"input": "tensor_decode", "num_workers": "14"},
            {"input": "tensor_decode", "pin_memory": "on", "pipelined": "on", **_BEST},
        ),
        min_steps=16,  # two bursts of the loader
    ),
    "optimizations": Preset(
        workload="encdec",
        settings={"data": "resident"},
        rows=_batches(8, 64),
        columns=(
            {"precision": "tf32", "channels_last": "off"},
            _NHWC,
            _BF16,
            _GRAPH,
            _GRAPH | {"pipelined": "on"},
            _GRAPH | {"compile": "on"},
        ),
    ),
}
"""By name, in the sources' sizes. `optimizations` adds them to the first experiment."""

ON_CPU = {
    "encdec": ON_GPU["encdec"]._replace(rows=_batches(4, 8, 16), min_steps=5),
    "augment": ON_GPU["augment"]._replace(rows=_batches(8, 32), columns=_AUGMENT, min_steps=5),
    "masked_loss": ON_GPU["masked_loss"]._replace(rows=_batches(16), columns=_LOSSES),
    "jpeg_input": ON_GPU["jpeg_input"]._replace(
        rows=_batches(32),
        columns=tuple({"input": stage} for stage in _STAGES),
        min_steps=15,  # the loader's pace is uneven where its workers have no core of their own
        rounds=8,
    ),
    "optimizations": ON_GPU["optimizations"]._replace(
        rows=_batches(8),
        columns=(
            {"channels_last": "off", "fused_optimizer": "off"},
            {"channels_last": "on", "fused_optimizer": "off"},
            {"channels_last": "on", "fused_optimizer": "on"},
        ),
        min_steps=5,
    ),
}
"""The same stages (of `optimizations`, those for a CPU), sized for ten minutes on two cores."""
