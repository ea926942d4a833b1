"""What became of every public name of `torch.cuda` and `torch.accelerator`: one table.

`SAME`, `DIFFERENT` and `ABSENT` decide it; a name stands in exactly one of them. The command
`python -m torch_tpu.api.from_cuda --write docs/from_cuda.md` writes the page for people, and
tests/device/test_from_cuda.py compares the table with PyTorch and with `torch.tpu`. Names are
relative to `torch.cuda`; a submodule's name that is also one of `torch.cuda` itself (`memory`,
`random`, `streams`, `graphs`, ...) has one row, the shorter, and is the same object in both places
here too. Not here: the functions themselves, which are in the files beside this one.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

SAME = frozenset(
    """
    OutOfMemoryError StreamContext can_device_access_peer current_device current_stream
    default_generators default_stream device device_of empty_cache get_device_name
    get_per_process_memory_fraction get_rng_state get_rng_state_all init initial_seed is_available
    is_bf16_supported is_initialized manual_seed manual_seed_all max_memory_allocated
    max_memory_reserved mem_get_info memory memory_allocated memory_reserved random
    reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated
    reset_peak_host_memory_stats reset_peak_memory_stats set_device set_per_process_memory_fraction
    set_rng_state set_rng_state_all set_stream stream streams synchronize

    Stream.device Stream.device_index Stream.device_type Stream.query Stream.record_event
    Stream.stream_id Stream.synchronize Stream.wait_event Stream.wait_stream
    Event.device Event.elapsed_time Event.event_id Event.query Event.synchronize Event.wait
    get_device_properties.name get_device_properties.total_memory
    """.split()
)

DIFFERENT = {
    "Event": "`torch.Event`: the first parameter is the device, and the others are given by name "
    "(`enable_timing=True`); `external=` is refused.",
    "Event.from_ipc_handle": "Raises NotImplementedError: an event belongs to its process.",
    "Event.ipc_handle": "Raises NotImplementedError: an event belongs to its process.",
    "Event.record": "Stands for all work pending on the device, of every stream. Hands over what "
    "DeferAndFuse has recorded.",
    "Stream": "`torch.Stream`, an identity: PJRT orders work by its data, so what one stream wrote "
    "another may read without waiting. `priority=`, given by name, is accepted and changes "
    "nothing.",
    "Stream.is_capturing": "Always False: there is nothing to capture into.",
    "Stream.native_handle": "The stream's number; PJRT has no handle to give.",
    "amp": "Holds what `torch.tpu` has for mixed precision; `torch.amp.autocast('tpu')` "
    "and `torch.amp.GradScaler('tpu')` are what its classes were deprecated for.",
    "device_count": "Starts the runtime, which is the first to know.",
    "get_arch_list": "The kinds of device of this process: programs are compiled when they run.",
    "get_device_capability": "A dict of what the device supports, as "
    "`torch.accelerator.get_device_capability`; TPUs have no pair of version numbers.",
    "get_device_properties": "Other fields: `name`, `kind`, `platform`, "
    "`platform_version`, `total_memory`, `id`. XLA's CPU plugin is named as no TPU.",
    "is_tf32_supported": "Always False; `torch.set_float32_matmul_precision` chooses how float32 "
    "is multiplied.",
    "host_memory_stats": "Of pinned memory; no counters of a cache.",
    "host_memory_stats_as_nested_dict": "As `host_memory_stats`.",
    "memory_snapshot": "A segment for each live array, with the line that made it while recording "
    "is on; the format of torch.cuda, so PyTorch's viewer reads it. `mempool_id=` is refused.",
    "memory_stats": "The counters the device has, under the names of torch.cuda, and "
    "`limit_bytes`. Nothing is kept after use, so reserved is allocated; no pools, no splits.",
    "memory_stats_as_nested_dict": "As `memory_stats`.",
    "memory_summary": "A shorter table, with the largest tensors.",
    "profiler": "`trace(directory)` writes a trace of the plugin's own; the switches of NVIDIA's "
    "profilers are absent.",
    "seed": "Also returns the seed.",
    "seed_all": "Also returns the seed.",
}

# Reason → names. The reasons are fixed and few; a new one needs a good one.
ABSENT = {
    "CUDA graphs and their memory pools. Programs are compiled, kept and fused here anyway; "
    "`torch.compile` makes one program of many operators.": """
    CUDAGraph MemPool graph graph_pool_handle graphs is_current_stream_capturing
    make_graphed_callables use_mem_pool
    """,
    "Control over CUDA's caching allocator. Arrays belong to the PJRT plugin, which has no cache "
    "to steer.": """
    CUDAPluggableAllocator caching_allocator_alloc caching_allocator_delete
    caching_allocator_disabled caching_allocator_enable change_current_allocator
    get_allocator_backend
    """,
    "Handles and error codes of the CUDA runtime, cuBLAS and cuSOLVER. PJRT has neither; errors "
    "are exceptions that name the operator.": """
    AcceleratorError CudaError DeferredCudaCallError check_error cudaStatus cudart
    current_blas_handle current_solver_handle
    """,
    "Raw streams, shares of a device and stream priorities. PJRT has no streams to hand over.": """
    Event.cuda_event ExternalStream GreenContext Stream.cuda_stream Stream.priority
    Stream.priority_range get_stream_from_external green_contexts
    """,
    "Readings of NVML. PJRT measures no clock, power, temperature or utilisation and lists no "
    "processes.": """
    clock_rate device_memory_used list_gpu_processes memory_usage power_draw temperature
    utilization
    """,
    "NVTX marks and the switches of NVIDIA's profilers. `torch.profiler` and its "
    "`record_function` do this on every device.": """
    nvtx nvtx.mark nvtx.range nvtx.range_end nvtx.range_pop nvtx.range_push nvtx.range_start
    profiler.profile profiler.start profiler.stop
    """,
    "NCCL, and copies among the devices of one process for `DataParallel`. Use "
    "`torch.distributed`, or `tensor.to`.": """
    comm comm.broadcast comm.broadcast_coalesced comm.gather comm.reduce_add
    comm.reduce_add_coalesced comm.scatter nccl nccl.all_gather nccl.all_reduce nccl.broadcast
    nccl.init_rank nccl.is_available nccl.reduce nccl.reduce_scatter nccl.unique_id nccl.version
    """,
    "Memory shared between processes (IPC). An array belongs to the process that made it.": """
    ipc_collect
    """,
    "Tuning and run-time compilation of CUDA kernels. XLA compiles and tunes programs.": """
    jiterator tunable tunable.enable tunable.get_filename tunable.get_max_tuning_duration
    tunable.get_max_tuning_iterations tunable.get_results tunable.get_rotating_buffer_size
    tunable.get_validators tunable.is_enabled tunable.mgpu_tune_gemm_in_file tunable.read_file
    tunable.record_untuned_enable tunable.record_untuned_is_enabled tunable.set_filename
    tunable.set_max_tuning_duration tunable.set_max_tuning_iterations
    tunable.set_numerical_check_tolerances tunable.set_rotating_buffer_size
    tunable.tune_gemm_in_file tunable.tuning_enable tunable.tuning_is_enabled
    """,
    "GPUDirect Storage.": "gds gds.GdsFile gds.gds_deregister_buffer gds.gds_register_buffer",
    "Warnings at operators that wait for the device. The place where they wait is below Python "
    "and not reported.": """
    get_sync_debug_mode set_sync_debug_mode
    """,
    "Figures of a GPU that a TPU does not have or PJRT does not tell.": """
    get_device_properties.L2_cache_size get_device_properties.clock_rate
    get_device_properties.gcnArchName get_device_properties.is_integrated
    get_device_properties.is_multi_gpu_board get_device_properties.major
    get_device_properties.max_threads_per_multi_processor
    get_device_properties.memory_bus_width get_device_properties.memory_clock_rate
    get_device_properties.minor get_device_properties.multi_processor_count
    get_device_properties.shared_memory_per_block
    get_device_properties.shared_memory_per_multiprocessor get_device_properties.uuid
    get_device_properties.warp_size
    """,
    "What NVIDIA's compiler and libraries were when torch was built.": """
    DEVICE_REQUIREMENT PYTORCH_RELEASES_CODE_CC get_gencode_flags has_half has_magma
    """,
    "Legacy tensor and storage types. Use `dtype=` and `device=`.": """
    BFloat16Storage BFloat16Tensor BoolStorage BoolTensor ByteStorage ByteTensor CharStorage
    CharTensor ComplexDoubleStorage ComplexFloatStorage DoubleStorage DoubleTensor FloatStorage
    FloatTensor HalfStorage HalfTensor IntStorage IntTensor LongStorage LongTensor ShortStorage
    ShortTensor sparse sparse.BFloat16Tensor sparse.ByteTensor sparse.CharTensor
    sparse.DoubleTensor sparse.FloatTensor sparse.HalfTensor sparse.IntTensor sparse.LongTensor
    sparse.ShortTensor
    """,
    "Deprecated in torch.cuda too, for `torch.amp` and the names without `cached`.": """
    amp.GradScaler amp.amp_definitely_not_available amp.autocast amp.custom_bwd amp.custom_fwd
    max_memory_cached memory_cached reset_max_memory_cached
    """,
    "What the source of torch.cuda imports and names for itself.": """
    Any Callable Device NewType Optional TYPE_CHECKING cast classproperty importlib lru_cache os
    platform threading torch traceback warnings
    """,
}

# torch.accelerator is PyTorch's own code over our hooks, so it is all there.
ACCELERATOR_SAME = frozenset(
    """
    current_device_idx current_device_index current_stream device_count device_index empty_cache
    empty_host_cache get_device_capability get_memory_info max_memory_allocated
    max_memory_reserved memory_allocated memory_reserved memory_stats
    reset_accumulated_memory_stats reset_peak_memory_stats set_device_idx set_device_index
    set_stream synchronize
    """.split()
)
ACCELERATOR_REMARKS = {
    "Graph": "Refused with a RuntimeError; the reason is that of CUDA graphs.",
    "current_accelerator": "`torch.device('tpu')`.",
    "is_available": "True as soon as torch_tpu is loaded; `torch.tpu.is_available()` says whether "
    "there is a plugin.",
}


@dataclass(frozen=True)
class Row:
    """One name of `torch.cuda`: its state ("same", "different", "absent"), and what to know."""

    name: str
    state: str
    note: str = ""


def rows() -> Iterator[Row]:
    """The table; a name may come more than once only if the lists above are wrong."""
    yield from (Row(name, "same") for name in sorted(SAME))
    yield from (Row(name, "different", note) for name, note in sorted(DIFFERENT.items()))
    for reason, names in ABSENT.items():
        yield from (Row(name, "absent", reason) for name in sorted(names.split()))


INTRODUCTION = """\
# From torch.cuda to torch.tpu

<!-- Written by `python -m torch_tpu.api.from_cuda --write docs/from_cuda.md`; edit its table. -->

Replace the device string: `"cuda"` by `"tpu"`, `torch.cuda.` by `torch.tpu.`. Code that asks
`torch.accelerator` runs on either as it is. Below is what became of every public name of
`torch.cuda` in PyTorch 2.13: it is there and does the same, it is there with a difference, or it is
absent on purpose. Nothing is there that only pretends.

```python
import torch

device = torch.accelerator.current_accelerator()  # tpu
start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
x = torch.ones(64, 64, device=device)
start.record()
y = x @ x
end.record()
torch.tpu.synchronize()
assert start.elapsed_time(end) > 0
assert not hasattr(torch.tpu, "CUDAGraph")  # absent: hasattr tells
```
"""


def page() -> str:
    """The page docs/from_cuda.md."""
    table = list(rows())
    same = [row.name for row in table if row.state == "same"]
    lines = [INTRODUCTION, "## The same\n", *wrapped(same)]
    lines += ["\n## With a difference\n", "| name | difference |", "| --- | --- |"]
    lines += [f"| `{row.name}` | {row.note} |" for row in table if row.state == "different"]
    lines.append("\n## Absent")
    for reason, names in ABSENT.items():
        lines += [f"\n{reason}\n", *wrapped(sorted(names.split()))]
    lines.append("\n## torch.accelerator\n")
    lines.append("PyTorch's own code over the hooks of the device, so every name is there.\n")
    lines += wrapped(sorted(ACCELERATOR_SAME))
    lines += ["\n| name | remark |", "| --- | --- |"]
    lines += [f"| `{name}` | {note} |" for name, note in ACCELERATOR_REMARKS.items()]
    return "\n".join(lines) + "\n"


def wrapped(names: list[str], width: int = 100) -> list[str]:
    """The names as code, comma-separated, in lines of at most `width` characters."""
    lines, line = [], ""
    for position, name in enumerate(names):
        word = f"`{name}`" + ("," if position < len(names) - 1 else "")
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def main() -> None:
    parser = argparse.ArgumentParser(description="What became of the names of torch.cuda.")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="default: print")
    path = parser.parse_args().write
    if path is None:
        print(page(), end="")
    else:
        path.write_text(page())


if __name__ == "__main__":
    main()
