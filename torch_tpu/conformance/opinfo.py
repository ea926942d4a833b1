"""One OpInfo with one dtype, checked against CPU PyTorch.

Each sample is run as it is, on non-contiguous inputs, backward, in place and into ``out=``; the
first one also expanded, empty and 0-dim; then the inputs that must raise. Both sides always get
equal copies of the same inputs.
"""

from __future__ import annotations

import itertools

import torch

from . import compare, inputs
from .calls import (
    WIDE,
    Call,
    accepts_other_values,
    attempt,
    cotangent,
    exactly,
    op_name,
    own_tolerance,
    seeded,
)
from .compare import Difference
from .inputs import tensors
from .record import Operators, Record, described

_MOST_SAMPLES = 400  # looked at per operator when choosing
# Matrices of equal rows are singular: what these operators make of them is rounding noise.
_FACTORS = ("linalg.", "cholesky", "geqrf", "inverse", "logdet", "lu", "pinverse", "qr", "svd")
# Variations that CPU PyTorch itself crashes on, or where its result depends on stray memory.
_UNFIT = {
    "_chunk_cat": ("zero_dim",),
    "masked.median": ("expanded",),
    "resize_": ("emptied", "zero_dim"),
    "resize_as_": ("emptied", "zero_dim"),
}
# The CPU's FFT library refuses empty batches; PyTorch documents no such limit.
_CPU_LIMIT = "MKL FFT error"
# Operators that return where elements are, and the position of their argument ``dim``: which of
# several equal elements an index names, PyTorch leaves open (unless a sort is to be stable).
_ANY_OF_EQUALS = {"argsort": 0, "kthvalue": 1, "median": 0, "mode": 0, "msort": 0}
_ANY_OF_EQUALS |= {"nanmedian": 0, "sort": 0, "topk": 1}
_UNINITIALISED = ("empty", "new_empty")  # OpInfos whose results have no values yet


def run(info, dtype: torch.dtype, samples: int, record: Record) -> None:
    """All checks of one OpInfo with one dtype; findings go into ``record``."""
    unit = _Unit(info, dtype, record)
    chosen = chosen_samples(info, dtype, samples)
    if not chosen:
        record.note = "its OpInfo has no samples for this dtype"
        return
    for position, sample in enumerate(chosen):
        unit.sample(sample, first=position == 0)
    unit.errors()


def _differentiable(info, dtype: torch.dtype) -> bool:
    return info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")


def chosen_samples(info, dtype: torch.dtype, count: int) -> list:
    """``count`` samples spread over those of the OpInfo, the first among them."""
    seeded(info.name, info.variant_test_name, str(dtype))
    every = info.sample_inputs("cpu", dtype, requires_grad=_differentiable(info, dtype))
    return inputs.spread(list(itertools.islice(every, _MOST_SAMPLES)), count)


class _Unit:
    def __init__(self, info, dtype: torch.dtype, record: Record):
        self.info = info
        self.dtype = dtype
        self.record = record
        self.name = op_name(info)
        self.override = own_tolerance(info, dtype)
        self.has_values = not info.name.startswith(_UNINITIALISED)
        self.differentiable = _differentiable(info, dtype)

    def sample(self, sample, first: bool) -> None:
        info, record = self.info, self.record
        text = sample.summary()
        arguments = (sample.input, sample.args, sample.kwargs)
        call = Call(info.op, arguments)
        operators = Operators()
        _, failure = attempt(lambda: call.run("cpu", mode=operators))
        if failure is not None:
            self.raising("forward", call, text)
            return
        self.random = operators.random
        record.random |= operators.random
        self._meet(call)
        self.forward("forward", call, text)
        with torch.no_grad():
            self._varied(sample, text, first)
            self._inplace(sample, text)
            if info.supports_out:
                self._out(call, text, first)
        if self.differentiable:
            self.backward(call, sample, text)

    def _varied(self, sample, text: str, first: bool) -> None:
        """The sample with other memory layouts and shapes of its inputs."""
        given = (sample.input, sample.args, sample.kwargs)
        if any(x.layout is not torch.strided for x in tensors(given)):
            return
        scattered = inputs.transform(given, inputs.noncontiguous)
        self.forward("noncontiguous", Call(self.info.op, scattered), text)
        if not first:
            return
        dense = inputs.transform(given, inputs.permuted)
        self.forward("permuted", Call(self.info.op, dense), text)
        changes = [inputs.emptied, inputs.zero_dim]
        if not self.name.startswith(_FACTORS):
            changes.append(inputs.expanded)
        for change in changes:
            if change.__name__ in _UNFIT.get(self.name, ()):
                continue
            arguments = (inputs.transform(sample.input, change), sample.args, sample.kwargs)
            self.forward(change.__name__, Call(self.info.op, arguments), text)

    def _meet(self, call: Call) -> None:
        """Note which overloads reach the backend, forward and backward."""
        operators = Operators()

        def both():
            result, _ = call.run(inputs.DEVICE, mode=operators)
            outputs = [r for r in tensors(result) if r.requires_grad and r.grad_fn is not None]
            if self.differentiable and outputs:
                with operators:
                    torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])

        attempt(both)  # what it raises, the checks find again
        self.record.operators = sorted(set(self.record.operators) | operators.names)

    # ---- the checks --------------------------------------------------------------------------

    def forward(self, check: str, call: Call, text: str, plain=None) -> None:
        """Results, mutated arguments and aliases of one call. With ``out=``, ``plain`` is what the
        CPU returns without."""
        wanted, failure = attempt(lambda: call.run("cpu"))
        if failure is not None:
            self.raising(check, call, text, failure)
            return
        with self.record.check(check, text):
            self._compare(call, call.run(inputs.DEVICE), wanted, plain)

    def _compare(self, call: Call, got, want, plain) -> None:
        (result, given), (wanted, before) = got, want
        compare.metadata(result, wanted, "result")
        if compare.aliases(result, given) != compare.aliases(wanted, before):
            message = f"{compare.aliases(result, given)}, CPU {compare.aliases(wanted, before)}"
            raise Difference("alias", f"results share storage with the arguments: {message}")
        compare.metadata(list(tensors(given)), list(tensors(before)), "argument")
        if self.random or not self.has_values:
            return
        if plain is not None and list(tensors(wanted)):  # some out= forms return nothing
            # Some CPU kernels ignore the strides of `out` and write beside it.
            result, wanted = list(tensors(result)), list(tensors(wanted))
            wanted = [_as_without_out(w, p) for w, p in zip(wanted, tensors(plain), strict=True)]
        results, arguments = self._exact(call)
        result = pointed_at(self.info.name, result, given)
        wanted = pointed_at(self.info.name, wanted, before)
        compare.Values(self.override, results)(result, wanted, "result")
        if call.out is None:
            values = compare.Values(self.override, arguments)
            values(list(tensors(given)), list(tensors(before)), "argument after the call")

    def _exact(self, call: Call):
        """Functions that give the exact results of a call, and its arguments after it."""

        def run(part: int):
            outcome = exactly(Call(call.function, call.arguments))
            return None if outcome is None else outcome[part]

        return (lambda: run(0)), (lambda: run(1))

    def raising(self, check: str, call: Call, text: str, failure=None) -> None:
        """A call that raises on the CPU raises on the device; declared errors the same class."""
        if failure is None:
            _, failure = attempt(lambda: call.run("cpu"))
        if _CPU_LIMIT in str(failure):
            return
        with self.record.check(check, text):
            result, raised = attempt(lambda: call.run(inputs.DEVICE))
            if raised is None:
                depends = self._depends_on_values(call, failure)
                kind = "unchecked value" if depends else "accepts"
                raise Difference(kind, f"no error; CPU {described(failure)}")
            # Variations are wrong inputs by accident: there it is enough that both sides complain.
            if check in ("forward", "errors") and not compare.same_exception(raised, failure):
                message = f"{described(raised)}, CPU {described(failure)}"
                raise Difference("error class", message)

    def _depends_on_values(self, call: Call, failure: BaseException) -> bool:
        """Whether one must look at the data to refuse the call: PyTorch's meta kernels accept it,
        and so does the CPU with other values (or it names an index)."""
        if attempt(lambda: call.run("meta"))[1] is not None:
            return False
        if accepts_other_values(call):
            return True
        empty = any(x.numel() == 0 for x in tensors(call.arguments))
        return isinstance(failure, IndexError) and not empty

    def _inplace(self, sample, text: str) -> None:
        function = self.info.inplace_variant
        if function is None or not isinstance(sample.input, torch.Tensor):
            return
        x = sample.input.detach()
        targets = [x.clone()]
        if x.ndim > 1 and x.layout is torch.strided:
            targets.append(_transposed_copy(x))
        for target in targets:
            call = Call(function, (target, sample.args, sample.kwargs))
            refused = sample.broadcasts_input and attempt(lambda c=call: c.run(inputs.DEVICE))[1]
            if isinstance(refused, RuntimeError):
                # PyTorch's own tests want these to raise; its CPU resizes one (issue 55907).
                self.record.passed["inplace"] += 1
            else:
                self.forward("inplace", call, text)

    def _out(self, call: Call, text: str, first: bool) -> None:
        arguments = inputs.transform(call.arguments, torch.Tensor.detach)
        wanted, failure = attempt(lambda: Call(call.function, arguments).run("cpu")[0])
        results = list(tensors(wanted))
        if failure is not None or not results or results[0].layout is not torch.strided:
            return
        outs = [inputs.transform(wanted, lambda t: torch.empty_like(t).zero_())]
        if first:
            outs.append(inputs.transform(wanted, lambda t: _transposed_copy(t).zero_()))
            outs.append(inputs.transform(wanted, lambda t: t.new_empty((0,))))
            if all(t.is_floating_point() or t.is_complex() for t in tensors(wanted)):
                # Integers cannot hold such results. (What else `out` may hold differs by operator.)
                outs.append(
                    inputs.transform(wanted, lambda t: torch.zeros_like(t, dtype=torch.int64))
                )
        for out in outs:
            out = tuple(out) if isinstance(out, (list, tuple)) else out
            self.forward("out", Call(call.function, arguments, out), text, plain=wanted)

    def backward(self, call: Call, sample, text: str) -> None:
        """Gradients of all results for every input that requires one."""

        def gradients(device: str, dtypes=None):
            result, given = call.run(device, dtypes)
            result = sample.output_process_fn_grad(result)
            outputs = [r for r in tensors(result) if r.requires_grad]
            wanted = [x for x in tensors(given) if x.requires_grad and x.is_leaf]
            if not outputs or not wanted:
                return []
            seeds = [cotangent(o, i) for i, o in enumerate(outputs)]
            return list(torch.autograd.grad(outputs, wanted, seeds, allow_unused=True))

        want, failure = attempt(lambda: gradients("cpu"))
        if failure is not None or not want:
            return
        with self.record.check("backward", text):
            got = gradients(inputs.DEVICE)
            compare.metadata(got, want, "gradient", strides=False)
            if not self.random and self.has_values:
                exact = None
                if self.info.name in _ANY_OF_EQUALS and _has_equals(sample.input):
                    got, want = _sorted(got), _sorted(want)
                elif self.dtype in WIDE:

                    def exact():
                        return attempt(lambda: gradients("cpu", WIDE))[0]

                compare.Values(self.override, exact)(got, want, "gradient")

    def errors(self) -> None:
        """Inputs that the OpInfo says must raise."""
        if self.info.error_inputs_func is None or self.dtype is not torch.float32:
            return
        seeded(self.name, "errors")
        self.random = False
        every, failure = attempt(lambda: list(self.info.error_inputs("cpu")))
        for error in () if failure is not None else every:
            sample = error.sample_input
            call = Call(self.info.op, (sample.input, sample.args, sample.kwargs))
            _, raised = attempt(lambda call=call: call.run("cpu"))
            if raised is not None:
                self.raising("errors", call, sample.summary(), raised)


def pointed_at(name: str, result, given):
    """The result, with the elements that its indices point at instead of the indices where which
    of several equal elements they name is open."""
    x, args, kwargs = given
    if name not in _ANY_OF_EQUALS or kwargs.get("stable") or not isinstance(x, torch.Tensor):
        return result
    if isinstance(result, torch.Tensor) and name != "argsort":
        return result  # a median without a dim is a value, also where it is an integer
    *values, indices = result if isinstance(result, (list, tuple)) else [result]
    if indices.dtype is not torch.int64 or not x.ndim or not x.numel() or name == "msort":
        return result
    at = _ANY_OF_EQUALS[name]
    dim = kwargs.get("dim", args[at] if len(args) > at else -1)
    indices = indices.detach()
    indices = indices if indices.ndim == x.ndim else indices.unsqueeze(dim)
    return [*values, x.detach().gather(dim, indices)]


def _as_without_out(out: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    return plain if out.dtype is plain.dtype and out.shape == plain.shape else out


def _has_equals(x: torch.Tensor) -> bool:
    return x.unique().numel() < x.numel()


def _sorted(gradients: list) -> list:
    return [g.cpu().flatten().sort().values for g in gradients]


def _transposed_copy(x: torch.Tensor) -> torch.Tensor:
    """``x`` with its dimensions stored in reverse order, as a part of a larger storage."""
    if x.layout is not torch.strided:
        return x.clone()
    larger = torch.zeros([n + 1 for n in reversed(x.shape)], dtype=x.dtype)
    view = larger.permute(list(reversed(range(x.ndim))))[tuple(slice(1, None) for _ in x.shape)]
    return view.copy_(x)
