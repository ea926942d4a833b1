"""Random calls: samples of random operators with mutated shapes, strides and dtypes.

A call passes when the device returns what the CPU returns or both raise. Raising where the CPU
does not is counted (``refused``) but is no silent error.
"""

from __future__ import annotations

import math
import random
import warnings

import torch

from . import compare, inputs, units
from .calls import Call, accepts_other_values, attempt, exactly, own_tolerance
from .compare import Difference
from .inputs import tensors
from .opinfo import pointed_at
from .reasons import explained
from .record import Operators, Record, described

_DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
_MOST_ELEMENTS = 1 << 16  # results larger than this come from a mutated size and say nothing


# ---- calls that CPU PyTorch dies of, or whose results there are stray memory or noise ----------


def _other_pivots(x, args, kwargs) -> bool:
    """The CPU does not check pivots and writes where they point."""
    pivots = args[0] if args else kwargs["LU_pivots"]
    steps = min(x.shape[-2:]) if x.ndim > 1 else 0
    if pivots.dtype is not torch.int32:
        return False  # refused
    if pivots.shape != (*x.shape[:-2], steps):
        return True
    return bool(((pivots < 1) | (pivots > x.shape[-2])).any())


def _other_batch(x, args, kwargs) -> bool:
    """The CPU reads past the end of lengths and offsets for fewer batches than the data has."""
    bounds = next((kwargs[k] for k in ("lengths", "offsets") if kwargs.get(k) is not None), None)
    return bounds is not None and bounds.shape[:-1] != x.shape[: bounds.ndim - 1]


def _repeated(x, args, kwargs) -> bool:
    """The CPU reads a dim of stride 0 with stride 1."""
    return any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))


def _other_channels(x, args, kwargs) -> bool:
    """The CPU does not check the sizes of parameters and writes past running statistics."""
    channels = x.shape[1] if x.ndim > 1 else 0
    return any(p.numel() != channels for p in tensors((args, kwargs)))


def _deficient(x) -> bool:
    """Whether one of these matrices has no full rank: what its elimination leaves, rounding alone
    decides, and with that pivots, solutions and whether there is an error."""
    if not x.numel():
        return False
    ranks = torch.linalg.matrix_rank(x.to(torch.complex128))
    return bool((ranks < min(x.shape[-2:])).any())


def _singular(x, args, kwargs) -> bool:
    rows = math.prod(x.shape[: kwargs["ind"]]) if "ind" in kwargs else x.shape[-1] if x.ndim else 0
    if not rows or x.numel() % rows**2:
        return False
    return _deficient(x.reshape(-1, rows, rows))


def _rank_deficient(x, args, kwargs) -> bool:
    return x.ndim > 1 and _deficient(x)


def _singular_system(x, args, kwargs) -> bool:
    dims = kwargs.get("dims") or ()
    if not all(-x.ndim <= d < x.ndim for d in dims) or len({d % x.ndim for d in dims}) < len(dims):
        return False  # refused before it is looked at
    moved = [d % x.ndim for d in dims]
    order = [d for d in range(x.ndim) if d not in moved] + moved
    rows = math.isqrt(x.numel())
    return rows**2 == x.numel() and _deficient(x.permute(order).reshape(rows, rows))


def _strided_parameters(x, args, kwargs) -> bool:
    """The CPU reads weights and biases as if contiguous, also past their end: an expanded weight
    gives 1e34 where float64 by hand and the device agree to 8e-8."""
    return any(p.ndim and not p.is_contiguous() for p in tensors((args, kwargs)))


def _trigamma_pole(x, args, kwargs) -> bool:
    """At its poles the CPU's reflection divides by the rounded sine of pi * x: 1.7e16, not inf."""
    return (
        args[0] == 1
        and not x.is_complex()
        and bool((x.isfinite() & (x <= 0) & (x == x.to(torch.float64).round())).any())
    )


def _zero_to_zero(x, args, kwargs) -> bool:
    """NaN in the CPU's vectorised complex power; 1 in its scalar one, in NumPy and here."""
    powers = [torch.as_tensor(p) for p in (x, *args)]
    complex_ = any(p.is_complex() for p in powers)
    return complex_ and len(powers) == 2 and all(bool((p == 0).any()) for p in powers)


def _indefinite(x, args, kwargs) -> bool:
    """What is left of a factor when a matrix turns out not to be positive definite."""
    return bool(torch.linalg.cholesky_ex(x, **kwargs).info.any())


def _open_bags(x, args, kwargs) -> bool:
    """Indices after the last bag: the CPU leaves them out or not by mode and dtype."""
    offsets = kwargs.get("offsets")
    if not kwargs.get("include_last_offset") or offsets is None or not offsets.numel():
        return False
    return bool(offsets[-1] != len(args[0]))


def _empty_image(x, args, kwargs) -> bool:
    """The CPU returns an input without elements as it is, of the wrong shape; CUDA does not."""
    return not x.numel()


_UNFIT = {
    **dict.fromkeys(("pow", "__rpow__", "float_power"), _zero_to_zero),
    **dict.fromkeys(("nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle"), _empty_image),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), _other_channels),
    "_batch_norm_with_update": _other_channels,
    **dict.fromkeys(("linalg.inv", "linalg.inv_ex", "linalg.tensorinv"), _singular),
    **dict.fromkeys(("linalg.solve", "linalg.solve_ex"), _singular),
    **dict.fromkeys(
        ("linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex", "lu"), _rank_deficient
    ),
    **dict.fromkeys(("qr", "linalg.qr"), _rank_deficient),
    "linalg.cholesky_ex": _indefinite,
    "linalg.tensorsolve": _singular_system,
    "nn.functional.embedding_bag": _open_bags,
    "native_group_norm": _strided_parameters,
    "lu_unpack": _other_pivots,
    "_segment_reduce": _other_batch,
    "polygamma": _trigamma_pole,
    "median": _repeated,
    "nanmedian": _repeated,
    "masked.median": _repeated,
}


# ---- a batch ----------------------------------------------------------------------------------


def run(seed: int, calls: int, patterns: list[str], skip: list[str]) -> Record:
    """``calls`` random calls of operators matching ``patterns``; the same for the same seed."""
    record = Record(f"fuzz/{seed}")
    draw = random.Random(seed)
    pool = [u for u in units.every(["op"], patterns, ["float32", "int64", "bool", "complex64"])]
    pool = [u for u in pool if u.name not in skip]
    if not pool:
        return record
    with record.measured():
        made = 0
        while made < calls:
            unit = draw.choice(pool)
            info = units.databases()["op"][unit.name]
            dtype = getattr(torch, unit.dtype)
            torch.manual_seed(draw.randrange(1 << 30))
            samples, failure = attempt(lambda i=info, d=dtype: list(i.sample_inputs("cpu", d)))
            if failure is not None or not samples:
                made += 1
                continue
            for _ in range(min(3, calls - made)):
                _one(info, dtype, draw.choice(samples), draw, record)
                made += 1
    return record


def _one(info, dtype: torch.dtype, sample, draw: random.Random, record: Record) -> None:
    arguments = (sample.input, sample.args, sample.kwargs)
    mutated, failure = attempt(
        lambda: inputs.transform(arguments, lambda x: _mutated(x, draw).detach())
    )
    if failure is not None:
        record.passed["not built"] += 1
        return
    function = info.op
    if info.inplace_variant is not None and draw.random() < 0.2:
        function = info.inplace_variant
    if info.name in _UNFIT and attempt(lambda: _UNFIT[info.name](*mutated))[0]:
        record.passed["unfit for the CPU"] += 1
        return
    call = Call(function, mutated)
    text = f"{info.name} {inputs.transform(mutated, _shown)}"
    operators = Operators()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        want, refused = attempt(lambda: call.run("cpu", mode=operators))
        got, raised = attempt(lambda: _on_device(call))
        if refused is None and raised is None:
            _compare(info, dtype, call, got, want, operators.random, text, record)
        elif refused is not None and raised is not None:
            record.passed["both raise"] += 1
        elif raised is not None:
            record.add("call", "raises", text, f"{text[:150]}: {described(raised)}")
        elif _lacks_kernel(refused):
            record.passed["only the device has a kernel"] += 1
        elif _value_dependent(call, refused):
            record.passed["values not checked"] += 1
        else:
            record.add("call", "accepts", text, f"{text[:250]}: CPU {described(refused)}")


def _on_device(call: Call):
    result, given = call.run(inputs.DEVICE)
    if result is NotImplemented:  # what Tensor's reflected methods make of a TypeError
        raise TypeError("unsupported operand types")
    return result, given


def _compare(info, dtype, call, got, want, is_random, text, record) -> None:
    """Compare both sides' results and arguments; the outcome goes into ``record``."""
    if sum(x.numel() for x in tensors(want[0])) > _MOST_ELEMENTS:
        record.passed["too large"] += 1
        return
    (got, mine), (want, theirs) = got, want
    with record.check("equal", text):
        try:
            compare.metadata(got, want, "results")
            if not is_random and not info.name.startswith(("empty", "new_empty")):
                _values(info, dtype, call, (got, mine), (want, theirs))
        except Difference as difference:
            given = getattr(call.arguments[0], "dtype", dtype)  # that of the sample, or mutated
            unit = f"op/{info.name}/{str(given).removeprefix('torch.')}"
            if explained(unit, {"check": "forward", "kind": difference.kind}):
                return
            raise Difference(difference.kind, f"{text[:300]}: {difference.message}") from None


def _values(info, dtype, call, got, want) -> None:
    """Compare the values of (results, arguments after the call) of both sides."""
    (got, mine), (want, theirs) = got, want
    if info.name in ("resize_", "resize_as_"):
        # The OpInfo's function resizes a clone, which holds what the tensor shows.
        cloned = call.function is not info.inplace_variant
        got, want = _initialised(got, call, cloned), _initialised(want, call, cloned)
    values = compare.Values(own_tolerance(info, dtype), lambda: (exactly(call) or [None])[0])
    got, want = pointed_at(info.name, got, mine), pointed_at(info.name, want, theirs)
    values(got, want, "results")
    if call.function is not info.inplace_variant and not info.name.startswith("resize_"):
        compare.Values()(list(tensors(mine)), list(tensors(theirs)), "arguments")


def _initialised(x: torch.Tensor, call: Call, cloned: bool) -> torch.Tensor:
    """The elements of a resized tensor that its memory had before, in the order of memory."""
    given, start = call.arguments[0], x.storage_offset()
    storage = given.untyped_storage().nbytes() // given.itemsize - start
    held = given.numel() if cloned else storage
    count = min(x.numel(), max(held, 0))
    return x.resolve_conj().as_strided((count,), (1,), start) if count else x.new_empty(0)


def _lacks_kernel(failure: BaseException) -> bool:
    """Whether the CPU refuses a dtype that PyTorch's schema and meta kernel allow."""
    return any(s in str(failure) for s in _UNKNOWN)


_UNKNOWN = (
    "not implemented for",
    "not support",
    "itensor_view_from_dense",  # oneDNN, of some dtypes
    "Inconsistent configuration parameters",  # MKL, of Fourier transforms of nothing
    "INTERNAL ASSERT FAILED",  # of some empty tensors: a fault of the CPU's kernel
)
_OF_VALUES = (
    "index",
    "out of bounds",
    "allocated size does not match",  # the sum of repeats is not output_size, which saves a sync
    "lengths along axis to sum to",  # the number of rows
)


def _value_dependent(call: Call, failure: BaseException) -> bool:
    if isinstance(failure, IndexError) or any(s in str(failure) for s in _OF_VALUES):
        return True
    return accepts_other_values(call)


def _shown(x: torch.Tensor) -> str:
    name = str(x.dtype).removeprefix("torch.")
    if x.layout is not torch.strided:
        return f"{name}{list(x.shape)} {x.layout}"
    return f"{name}{list(x.shape)}" + ("" if x.is_contiguous() else f"s{list(x.stride())}")


def _mutated(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """``x`` with, now and then, another shape, memory layout or dtype."""
    if x.layout is not torch.strided:
        return x
    for mutation in (_shape, _layout, _dtype):
        if draw.random() < 0.3:
            x = mutation(x, draw)
    return x


def _shape(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    choice = draw.randrange(6)
    if choice == 0 and x.ndim:
        dim = draw.randrange(x.ndim)
        return x.narrow(dim, 0, draw.randint(0, x.shape[dim]))
    if choice == 1:
        return x.unsqueeze(draw.randint(0, x.ndim))
    if choice == 2 and x.ndim:
        return x.select(draw.randrange(x.ndim), 0) if x.numel() else x
    if choice == 3 and x.ndim:
        dim = draw.randrange(x.ndim)
        return torch.cat([x, x], dim)
    if choice == 4 and x.numel():
        return x.reshape(-1)[0]
    return x.reshape(-1)


def _layout(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    choice = draw.randrange(4)
    if choice == 0 and x.ndim > 1:
        return x.transpose(0, -1)
    if choice == 1 and x.ndim and x.shape[0]:
        return x[:1].expand(x.shape)
    if choice == 2 and x.ndim:
        return torch.cat([x, x], -1)[..., :: 2 if x.shape[-1] else 1]
    return inputs.noncontiguous(x)


def _dtype(x: torch.Tensor, draw: random.Random) -> torch.Tensor:
    return x.to(draw.choice(_DTYPES))
