"""What is noted of every operator while a program is traced: module, line of the user, whether it
belongs to a backward pass or to a recomputation, which random numbers it takes, and its FLOPs.

The notes travel in ``node.meta["custom"]`` of the FX graph. `capture.py` does the tracing and reads
them there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.fx import traceback as fx_traceback
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ..lowering.places import Place
from ..lowering.registry import RULES

_TORCH = os.path.dirname(torch.__file__) + os.sep
_CHECKPOINT = os.path.join(_TORCH, "utils", "checkpoint.py")
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SDPA = "aten::_scaled_dot_product_fused_attention_overrideable"


@dataclasses.dataclass(frozen=True)
class Note:
    """About the nodes of one operator.

    Attributes:
      place: operator, module and line; of a backward operator, those of its forward one.
      backward: whether the autograd engine called it, and not to recompute something.
      recomputed: number of the recomputation it belongs to, 0 for none.
      numbers: which random numbers it takes: equal ones are the same numbers, None for none.
      step: the step of the backward pass that called it, or wanted the recomputation.
      backwards: a loop over rows begins with the last.
    """

    place: Place
    backward: bool = False
    recomputed: int = 0
    numbers: int | None = None
    step: int | None = None
    backwards: bool = False

    def __copy__(self) -> Note:
        return self


_active: list[Notes] = []
_backwards: list[bool] = []


def active() -> Notes | None:
    """Those of the capture that runs."""
    return _active[-1] if _active else None


@contextlib.contextmanager
def backwards() -> Iterator[None]:
    """A loop over rows that is traced in the scope begins with the last."""
    _backwards.append(True)
    try:
        yield
    finally:
        _backwards.pop()


class Notes(TorchDispatchMode):
    """The mode that makes the notes. ``names`` are the paths of modules.

    Attributes:
      flops: of all operators so far, multiply-adds counted as two, without recomputations.
      last: where the last operator came from, for messages.
    """

    supports_higher_order_operators = True

    def __init__(self, names: Mapping[nn.Module, str]):
        super().__init__()
        self.flops = 0
        self.last = Place("")
        self._names = names
        self._modules: list[str] = []
        self._places: dict[int, Place] = {}  # sequence number of autograd → of the forward operator
        self._recomputing = None  # the frame of the present recomputation
        self._recomputations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        note = self._note(func)
        if not isinstance(func, torch._ops.OpOverload):
            note = dataclasses.replace(note, backwards=bool(_backwards))
        self.last = note.place
        meta = fx_traceback.current_meta
        before = meta.get("custom")
        meta["custom"] = {"note": note}
        try:
            result = func(*args, **kwargs)
        finally:
            meta["custom"] = before
        if not note.recomputed and isinstance(func, torch._ops.OpOverload):
            self.flops += _flops(func, args, kwargs, result)
        return result

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Knows in the scope which module is called, and owns the CPU's random numbers."""
        module_hooks = nn.modules.module
        handles = [
            module_hooks.register_module_forward_pre_hook(self._enter),
            module_hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            _active.append(self)
            with torch.random.fork_rng(devices=[]), fx_traceback.preserve_node_meta():
                yield
        finally:
            _active.pop()
            for handle in handles:
                handle.remove()

    def nested(self) -> Notes:
        """For the body of a loop, which is traced by itself."""
        inner = Notes(self._names)
        inner._modules = self._modules
        return inner

    def _enter(self, module, args) -> None:
        self._modules.append(self._names.get(module, ""))

    def _leave(self, module, args, output) -> None:
        self._modules.pop()

    def _note(self, func) -> Note:
        node = torch._C._current_autograd_node()
        line, recomputing = _frames(sys._getframe(2), node)
        module = next((name for name in reversed(self._modules) if name), "")
        place = Place(func.name(), module.replace(".", "/"), line)
        numbers = self._numbers(func)
        if node is None:
            self._places[torch.autograd._get_sequence_nr() - 1] = place
            return Note(place, numbers=numbers)
        step = node._sequence_nr()
        if recomputing is not None:
            if recomputing is not self._recomputing:
                self._recomputing = recomputing
                self._recomputations += 1
            return Note(place, False, self._recomputations, numbers, step)
        forward = self._places.get(step)
        if forward is not None:
            place = Place(func.name(), forward.module, forward.line)
        return Note(place, True, 0, numbers, step)

    @staticmethod
    def _numbers(func) -> int | None:
        """The state of the CPU's generator stands for that of the device: whoever saves and
        restores generator states to draw the same numbers again (checkpointing) does it too."""
        rule = RULES.get(func.name())
        if rule is None or not rule.random:
            return None
        generator = torch.default_generator
        numbers = generator.initial_seed()
        generator.manual_seed(numbers + 1)
        return numbers


def _frames(frame, node) -> tuple[str, object]:
    """(``file:line`` of the user's innermost frame, the frame of a recomputation it is part of)."""
    line, recomputing = "", None
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file == _CHECKPOINT and node is not None:
            reentrant = code.co_name == "backward" and node.name() == "CheckpointFunctionBackward"
            if code.co_name == "recompute_fn" or reentrant:
                recomputing = frame
        if not line and not file.startswith((_TORCH, _OURS, "<")) and "contextlib" not in file:
            line = f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return line, recomputing


def _flops(func, args, kwargs, result) -> int:
    formula = flop_registry.get(func._overloadpacket)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=result))
    if func.name() == _SDPA:
        query, key, value = args[:3]
        return (
            2 * query.numel() * key.shape[-2] + 2 * _rows(query) * key.shape[-2] * value.shape[-1]
        )
    if func.name() == _SDPA + "_backward":
        query, key, value = args[1:4]
        # Scores again, and the gradients of the three operands and of the scores.
        scores = 2 * query.numel() * key.shape[-2]
        return 3 * scores + 2 * (2 * _rows(query) * key.shape[-2] * value.shape[-1])
    return 0


def _rows(query: torch.Tensor) -> int:
    return query.numel() // query.shape[-1]
