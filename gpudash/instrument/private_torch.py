"""All places of torch that hooks and levers use though torch does not promise them.

Without a place that is NEEDED nothing is measured, and one line says so. Each torch from 2.5 on has
these. A test finds each name that is used and not listed here.
"""

import sys
from functools import reduce
from typing import Any, NamedTuple

import torch

NEEDED = "nothing is measured"


class Place(NamedTuple):
    """Names of one owner, and what is done without them."""

    owner: str
    """A module, or a module's class; with `()`, an object of the class."""
    names: tuple[str, ...]
    without: str


LOADER = "torch.utils.data.dataloader"
COMPILER = "the compiler asks for our functions: a script's compiled code may not be measured"
NO_SAMPLES = "without a DataLoader no samples are known"
NO_LEVER = "the lever is refused with the error"
NO_PROFILE = "a profile is refused with the error"
NO_OWNERS = "who owns memory is refused with the error"
PLACES = (
    # ── steps and phases ──
    Place("torch.nn.Module", ("_call_impl", "_compiled_call_impl"), NEEDED),
    Place("torch.nn.Module()", ("_modules", "_parameters", "_buffers"), NEEDED),
    Place(LOADER, ("_BaseDataLoaderIter",), NEEDED),
    Place("torch._C", ("_current_graph_task_id",), NEEDED),
    Place("torch.autograd", ("backward",), NEEDED),
    Place("torch._C._autograd", ("_get_sequence_nr",), NO_SAMPLES),
    Place("torch.autograd.Node()", ("_sequence_nr",), NO_SAMPLES),
    Place("torch.jit._recursive", ("ignored_attributes",), NEEDED),
    Place("torch.compiler", ("is_dynamo_compiling",), NEEDED),
    Place("torch.Tensor()", ("_backward_hooks",), NEEDED),
    Place("torch._C._dynamo.eval_frame", ("set_code_exec_strategy",), "the older `skip_code`"),
    Place("torch._C._dynamo.eval_frame", ("skip_code",), COMPILER),
    Place("torch._C._dynamo.eval_frame", ("_FrameAction", "_FrameExecStrategy"), COMPILER),
    Place(
        "torch._dynamo.compiled_autograd",
        ("compiled_autograd_enabled",),
        "backward passes that are compiled are taken for others",
    ),
    Place(
        "torch._dynamo.eval_frame.OptimizedModule()",
        ("_orig_mod",),
        "a compiled model is one that is not",
    ),
    # ── several processes ──
    Place(
        "torch.nn.parallel.DistributedDataParallel",
        ("_get_ddp_logging_data",),
        "the collectives of a step have no size",
    ),
    Place(
        "torch.nn.parallel.DistributedDataParallel()",
        ("_comm_hooks",),
        "the collectives of a step have no size",
    ),
    Place(
        "torch.nn.parallel.DistributedDataParallel",
        ("_sync_buffers",),
        "the broadcast of buffers counts as forward pass",
    ),
    Place(
        "torch.nn.parallel.DistributedDataParallel()",
        ("_join_config", "_use_python_reducer"),
        "the lever `grad_sync` changes nothing, or is offered to compiled code",
    ),
    Place(
        "torch.nn.utils.clip_grad",
        ("_group_tensors_by_device_and_dtype",),
        "the lever `grad_sync` is refused",
    ),
    Place(
        "torch.distributed.fsdp._fully_shard._fully_shard.FSDPModule",
        ("_get_fsdp_state",),
        "a model in fully_shard is found by its gathered parameters alone",
    ),
    Place(
        "torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState",
        ("_root_post_backward_final_callback",),
        "waits for other processes count as computation",
    ),
    Place(
        "torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState()",
        ("_fsdp_param_group",),
        "the newer `_fsdp_param_groups`",
    ),
    Place(
        "torch.distributed.fsdp._fully_shard._fsdp_state.FSDPState()",
        ("_fsdp_param_groups",),
        "the older `_fsdp_param_group`",
    ),
    Place(
        "torch.distributed.fsdp._fully_shard._fsdp_param_group",
        ("FSDPParamGroup",),
        "waits for other processes count as computation",
    ),
    Place("torch.distributed.tensor.DTensor()", ("_local_tensor",), "a tensor is its own shard"),
    Place(
        "torch.distributed.distributed_c10d",
        ("_get_default_store",),
        "levers, blocks and pauses are refused with several ranks",
    ),
    # ── levers ──
    Place(LOADER, ("_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"), NEEDED),
    Place("torch.utils.data.DataLoader", ("_get_iterator",), NEEDED),
    Place("torch.utils.data.DataLoader()", ("_iterator",), NEEDED),
    Place(
        f"{LOADER}._SingleProcessDataLoaderIter()",
        ("_base_seed", "_index_sampler", "_next_data", "_num_workers", "_num_yielded"),
        NO_LEVER,
    ),
    Place(f"{LOADER}._SingleProcessDataLoaderIter()", ("_sampler_iter",), NO_LEVER),
    Place(
        f"{LOADER}._MultiProcessingDataLoaderIter()",
        ("_shutdown_workers", "_task_info", "_tasks_outstanding", "_try_get_data"),
        NO_LEVER,
    ),
    Place(
        f"{LOADER}._MultiProcessingDataLoaderIter()",
        ("_prefetch_factor", "_try_put_index"),
        NO_LEVER,
    ),
    Place(
        f"{LOADER}._MultiProcessingDataLoaderIter()",
        ("_data_queue", "_worker_result_queue", "_pin_memory"),
        NO_LEVER,
    ),
    Place(
        f"{LOADER}._MultiProcessingDataLoaderIter()",
        ("_persistent_workers", "_worker_pids_set", "_workers"),
        NO_LEVER,
    ),
    Place(
        "torch.utils.data._utils.signal_handling",
        ("_remove_worker_pids", "_set_worker_pids"),
        NEEDED,
    ),
    Place("torch._utils", ("ExceptionWrapper",), NEEDED),
    Place(
        "torch.accelerator",
        ("is_available",),
        "a GPU is one of CUDA (before torch 2.6)",
    ),
    Place("torch.optim.optimizer", ("_foreach_supported_types",), NEEDED),
    Place(
        "torch.utils._foreach_utils",
        ("_get_foreach_kernels_supported_devices",),
        NEEDED,
    ),
    Place(
        "torch.optim.SGD()",
        ("_need_device_dtype_check_for_fused", "_step_supports_amp_scaling"),
        "set all the same, and read by nobody",
    ),
    Place(
        "torch.optim.SGD()",
        ("_optimizer_state_dict_post_hooks",),
        NEEDED,
    ),
    Place("torch.nn.modules.conv", ("_ConvNd",), NEEDED),
    Place("torch.autocast()", ("_enabled",), NEEDED),
    Place(
        "torch.backends.cudnn",
        ("conv", "rnn"),
        "the older interface of TF32 alone (before torch 2.9)",
    ),
    Place("torch._dynamo", ("config",), NO_LEVER),
    Place("torch._C", ("_get_tracing_state", "_functorch"), NEEDED),
    Place("torch.utils._pytree", ("tree_leaves", "tree_map_only"), NEEDED),
    Place("torch.utils._python_dispatch", ("TorchDispatchMode",), NEEDED),
    # ── delays, profiles, memory ──
    Place(
        "torch.utils.data._utils.fetch", ("_IterableDatasetFetcher", "_MapDatasetFetcher"), NEEDED
    ),
    Place("torch.cuda", ("_sleep",), "the device cannot be slowed"),
    Place("torch.autograd.profiler", ("_is_profiler_enabled",), NEEDED),
    Place("torch.autograd.profiler.profile", ("_prepare_trace", "_start_trace"), NEEDED),
    Place("torch.autograd", ("_profiler_enabled", "_enable_record_function"), NO_PROFILE),
    Place("torch._C._profiler", ("_RecordFunctionFast",), "a profile has no modules"),
    Place("torch._C._profiler", ("_ExperimentalConfig",), NO_PROFILE),
    Place("torch._C", ("_cuda_synchronize",), "some waits for the GPU are not seen"),
    Place(
        "torch._C",
        ("_accelerator_synchronizeDevice",),
        "`torch.cuda.synchronize` alone is seen (before torch 2.6)",
    ),
    Place("torch._ops", ("OpOverload",), "flops are not counted"),
    Place("torch._ops.OpOverload()", ("_overloadpacket",), "flops are not counted"),
    Place("torch.cuda", ("MemPool", "use_mem_pool"), "a profile has no peak of the device"),
    Place("torch.cuda.memory", ("_record_memory_history", "_snapshot"), NO_OWNERS),
    Place("torch._C", ("_cuda_isHistoryEnabled",), NO_OWNERS),
    Place("torch._C", ("_cuda_attach_out_of_memory_observer",), "running out has no bytes"),
)
"""The rows. Names whose owner is not imported, or is built without CUDA, need not be there."""


def missing(place: Place) -> tuple[str, ...]:
    owner = find(place.owner)
    return () if owner is None else tuple(one for one in place.names if not hasattr(owner, one))


def check() -> None:
    """Raise NotImplementedError, with a line, if a place is missing that is NEEDED."""
    for place in PLACES:
        if place.without == NEEDED and (gone := missing(place)):
            where = f"{place.owner}.{gone[0]}"
            raise NotImplementedError(f"not with torch {torch.__version__}: it has no {where}")


def find(path: str) -> Any:
    """None if the module of the path has not been imported."""
    words = path.split(".")
    for end in range(len(words), 0, -1):
        module: Any = sys.modules.get(".".join(words[:end]))
        if module is not None:
            return reduce(lambda owner, name: getattr(owner, name, None), words[end:], module)
    return None


def has_newer_precision() -> bool:
    return hasattr(torch.backends.cudnn, "conv")


def has_accelerator() -> bool:
    newer = find("torch.accelerator")
    return bool(torch.cuda.is_available() if newer is None else newer.is_available())
