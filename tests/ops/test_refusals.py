"""Calls that CPU PyTorch refuses although its meta kernels accept them, or with another class.

The rules' own checks (`Rule.check`) must raise the same class of exception. Calls that meta kernels
refuse need no test here: they are asked at every miss.
"""

from __future__ import annotations

import pytest
import torch

from ops.both_devices import refused_alike

A = torch.ops.aten
F32, F64, I32, I64, U8 = torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8


CALLS = {
    "diagonal_scatter, source too small": lambda t: torch.diagonal_scatter(t(4, 9), t(3)),
    "slice_scatter, source of another rank": lambda t: torch.slice_scatter(t(4, 9), t(3)),
    "select_scatter, source too small": lambda t: torch.select_scatter(t(4, 9), t(3), 0, 1),
    "complex of int": lambda t: torch.complex(t(3), t(3, dtype=I32)),
    "complex of two dtypes": lambda t: torch.complex(t(3), t(3, dtype=F64)),
    "polar of two dtypes": lambda t: torch.polar(t(3), t(3, dtype=F64)),
    "complex into another dtype": lambda t: torch.complex(
        t(3), t(3), out=t(3, dtype=torch.complex128)
    ),
    "masked_scatter by uint8": lambda t: t(3).masked_scatter(t(3, dtype=U8), t(3)),
    "masked_scatter_ by uint8": lambda t: t(3).masked_scatter_(t(3, dtype=U8), t(3)),
    "masked_select by uint8": lambda t: torch.masked_select(t(3), t(3, dtype=U8)),
    "masked_select into another dtype": lambda t: torch.masked_select(
        t(3), t(3) > 0, out=t(3, dtype=F64)
    ),
    "where into another dtype": lambda t: torch.where(t(3) > 0, t(3), t(3), out=t(3, dtype=F64)),
    "aminmax of nothing": lambda t: torch.aminmax(t(3, 0)),
    "aminmax along nothing": lambda t: torch.aminmax(t(3, 0), dim=1),
    "aminmax into another dtype": lambda t: torch.aminmax(
        t(3), dim=0, out=(t(dtype=F64), t(dtype=F64))
    ),
    "amax along nothing": lambda t: torch.amax(t(3, 0), 1),
    "amax into another dtype": lambda t: torch.amax(t(3), 0, out=t(dtype=F64)),
    "argmax of nothing": lambda t: torch.argmax(t(3, 0)),
    "max along nothing": lambda t: torch.max(t(3, 0), -1),
    "median along nothing": lambda t: torch.median(t(3, 0), 1),
    "nanmedian along nothing": lambda t: torch.nanmedian(t(3, 0), 1),
    "mode along nothing": lambda t: torch.mode(t(3, 0), 1),
    "kthvalue along nothing": lambda t: torch.kthvalue(t(3, 0), 1),
    "kthvalue, int32 indices": lambda t: torch.kthvalue(t(3), 1, out=t.pair(indices=I32)),
    "median, int32 indices": lambda t: torch.median(t(3), 0, out=t.pair(indices=I32)),
    "mode into another dtype": lambda t: torch.mode(t(3), 0, out=t.pair(F64)),
    "sort into another dtype": lambda t: torch.sort(t(3), 0, out=t.pair(F64)),
    "cummax into another dtype": lambda t: torch.cummax(t(3), 0, out=t.pair(F64)),
    "frexp into another dtype": lambda t: torch.frexp(t(3), out=t.pair(F64, I32)),
    "frexp, int64 exponents": lambda t: torch.frexp(t(3), out=t.pair()),
    "var of integers": lambda t: torch.var(t(3, dtype=I64)),
    "std_mean of integers": lambda t: torch.std_mean(t(3, dtype=I64)),
    "gcd of floats": lambda t: torch.gcd(t(3), t(3)),
    "lcm of bools": lambda t: torch.lcm(t(3) > 0, t(3) > 0),
    "pow of bools": lambda t: torch.pow(t(3) > 0, t(3) > 0),
    "pow of integers, negative exponent": lambda t: torch.pow(t(3, dtype=I64), -3),
    "i0 of complex": lambda t: torch.i0(t(3, dtype=torch.complex64)),
    "lgamma of complex": lambda t: torch.lgamma(t(3, dtype=torch.complex64)),
    "ceil of complex": lambda t: torch.ceil(t(3, dtype=torch.complex64)),
    "signbit of complex": lambda t: torch.signbit(t(3, dtype=torch.complex64)),
    "logaddexp of integers": lambda t: torch.logaddexp(t(3, dtype=I64), t(3, dtype=I64)),
    "batch norm of nothing": lambda t: A.native_batch_norm(
        t(0, 3), None, None, t(3), t(3), True, 0.1, 1e-5
    ),
    "layer norm of float32 with float64": lambda t: torch.layer_norm(t(2, 3), [3], t(3, dtype=F64)),
    "group norm of float32 with float64": lambda t: torch.group_norm(t(2, 4), 2, t(4, dtype=F64)),
    "batch norm of float32 with float64": lambda t: A.native_batch_norm(
        t(2, 3), t(3, dtype=F64), None, None, None, True, 0.1, 1e-5
    ),
    "softmax backward, one gradient": lambda t: A._softmax_backward_data(t(), t(3), 0, F32),
    "embedding in no rows": lambda t: torch.embedding(t(0, 5), t(2, dtype=I64)),
    "embedding_bag in no rows": lambda t: torch.embedding_bag(
        t(0, 5), t(2, dtype=I64), torch.zeros_like(t(1, dtype=I64))
    ),
    "nearest of empty images": lambda t: A.upsample_nearest1d(t(2, 0, 3), [4]),
    "gather from nothing": lambda t: t(0, 5).gather(0, t.places(2, 5)),
    "scatter to nothing": lambda t: t(0, 5).scatter(0, t.places(2, 5), 1.0),
    "scatter_add to nothing": lambda t: t(0, 5).scatter_add(0, t.places(2, 5), t(2, 5)),
    "index_select from nothing": lambda t: t(0, 5).index_select(0, t.places(2)),
    "index_select of a wrong dim": lambda t: t(3, 5).index_select(2, t.places(2)),
    "index_copy to nothing": lambda t: t(0, 5).index_copy(0, t.places(2), t(2, 5)),
    "index_fill in nothing": lambda t: t(0, 5).index_fill(0, t.places(2), 1.0),
    "index_reduce to nothing": lambda t: t(0, 5).index_reduce(0, t.places(2), t(2, 5), "prod"),
    "index_add, source of another rank": lambda t: t(3, 2).index_add(0, t.places(2), t(2)),
    "indexing nothing": lambda t: t(0, 5)[t.places(2)],
    "index_put to nothing": lambda t: t(0, 5).index_put((t.places(2),), t(2, 5)),
    "put in nothing": lambda t: t(0, 5).put(t.places(2), t(2)),
    "narrow_copy of a wrong dim": lambda t: torch.narrow_copy(t(3, 5), 2, 0, 1),
    "narrow_copy of a negative wrong dim": lambda t: torch.narrow_copy(t(3, 5), -3, 0, 1),
    "narrow_copy past the end": lambda t: torch.narrow_copy(t(3, 5), 0, 4, 1),
    "sort along a wrong dim": lambda t: torch.sort(t(3, 5), 2),
    "bucketize, square boundaries": lambda t: torch.bucketize(t(3), t(2, 2)),
    "multinomial of integers": lambda t: torch.multinomial(t(3, dtype=I64), 1),
    "multinomial, no samples": lambda t: torch.multinomial(t(3), 0),
    "multinomial, too many samples": lambda t: torch.multinomial(t(3), 4),
    "multinomial of 3 dims": lambda t: torch.multinomial(t(3, 3, 3), 1),
    "multinomial of too much": lambda t: torch.multinomial(t(1).expand(2**24 + 1), 1),
    "multinomial into floats": lambda t: torch.multinomial(t(3), 1, out=t(0)),
    "heaviside of two dtypes": lambda t: torch.heaviside(t(3, dtype=F64), t(3)),
    "addmm of two dtypes": lambda t: torch.addmm(t(2, 2), t(2, 2, dtype=I64), t(2, 2, dtype=I64)),
    "cross of two dtypes": lambda t: torch.linalg.cross(t(3), t(3, dtype=F64)),
    "grid_sample of two dtypes": lambda t: torch.nn.functional.grid_sample(
        t(1, 1, 2, 2), t(1, 2, 2, 2, dtype=F64), align_corners=False
    ),
    "nll_loss with other weights": lambda t: torch.nn.functional.nll_loss(
        t(3), t.places(), t(3, dtype=F64)
    ),
    "conv of two dtypes": lambda t: torch.conv1d(t(1, 1, 3), t(1, 1, 2, dtype=F64)),
    "cauchy_ of complex numbers": lambda t: t(3, dtype=torch.complex64).cauchy_(),
    "softmax of integers": lambda t: torch.softmax(t(3, dtype=I64), 0),
    "histogramdd of a vector": lambda t: torch.histogramdd(t(3), [2]),
    "histogramdd, one bin count": lambda t: torch.histogramdd(t(3, 2), [2]),
    "histogramdd, no bins": lambda t: torch.histogramdd(t(3, 2), [2, 0]),
    "histogramdd, one end": lambda t: torch.histogramdd(t(3, 2), [2, 2], range=[0.0, 1.0]),
    "histogramdd, other weights": lambda t: torch.histogramdd(t(3, 2), [2, 2], weight=t(2)),
    "histogram, ends exchanged": lambda t: torch.histogram(t(3), 2, range=(1.0, 0.0)),
    "histogram, square edges": lambda t: torch.histogram(t(3), t(2, 2)),
    "histogram, edges of another dtype": lambda t: torch.histogram(t(3), t(2, dtype=F64)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_refused_as_on_the_cpu(call):
    refused_alike(call)


def test_a_crash_of_pytorch_is_an_error():
    """`_chunk_cat` of 0-dim tensors ends the process on other devices."""
    scalar = torch.ones((), device="tpu")
    with pytest.raises(RuntimeError, match="0-dim"):
        torch._chunk_cat([scalar, scalar], 0, 2)
