"""How tensors lie over a mesh of devices, and how that is written for XLA's partitioner.

`Mesh` names the axes of a topology's devices. A tensor's place on it is a spec, one axis name (or a
tuple of them, or None) per dimension, or a list of DTensor placements, one per mesh axis. Both
become the text of an ``mhlo.sharding``. `constrain` states one inside a model; `fully_sharded`,
`tensor_parallel` and `data` make tables for `compile(in_shardings=...)`. What the partitioner makes
of it is read from its output (`collectives.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

Axes = str | Sequence[str] | None
Spec = Sequence[Axes] | Sequence[Placement]
"""Of one tensor: axis names per dimension, or DTensor placements per mesh axis."""


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Devices as an array with named axes, in the order of the topology's devices.

    >>> Mesh((4, 2), ("data", "model")).sharding((None, "model"), 2)
    '{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}'
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]

    def __post_init__(self):
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        object.__setattr__(self, "names", tuple(self.names))
        if len(self.shape) != len(self.names) or len(set(self.names)) != len(self.names):
            raise ValueError(f"a mesh of shape {self.shape} cannot have the axes {self.names}")
        if any(n < 1 for n in self.shape):
            raise ValueError(f"a mesh of shape {self.shape} has no devices")

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.shape)

    def length(self, axes: Axes) -> int:
        """The number of devices along axes."""
        return math.prod(self.shape[self._index(name)] for name in _names(axes))

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"{name!r} is no axis of the mesh, which has {', '.join(self.names)}")
        return self.names.index(name)

    def spec(self, spec: Spec, rank: int) -> tuple[tuple[str, ...], ...]:
        """Axis names for each of ``rank`` dimensions; raises ValueError for one that has none."""
        items = list(spec)
        if items and all(isinstance(item, Placement) for item in items):
            return self._of_placements(items, rank)
        if len(items) > rank:
            raise ValueError(f"{tuple(items)} names {len(items)} dimensions of a {rank}-d tensor")
        chosen = tuple(_names(item) for item in items) + ((),) * (rank - len(items))
        flat = [name for names in chosen for name in names]
        for name in flat:
            self._index(name)
        if len(flat) != len(set(flat)):
            raise ValueError(f"{tuple(items)} uses an axis of the mesh twice")
        return chosen

    def _of_placements(self, placements: Sequence[Placement], rank: int):
        if len(placements) != len(self.names):
            raise ValueError(
                f"{len(placements)} placements for a mesh with {len(self.names)} axes: one per axis"
            )
        dims: list[list[str]] = [[] for _ in range(rank)]
        for name, placement in zip(self.names, placements, strict=True):
            if isinstance(placement, Partial) or not isinstance(placement, (Shard, Replicate)):
                raise ValueError(f"{placement} is no placement of a whole tensor: Shard, Replicate")
            if isinstance(placement, Shard):
                if not -rank <= placement.dim < rank:
                    raise ValueError(f"{placement} of a {rank}-d tensor")
                dims[placement.dim].append(name)
        return tuple(tuple(names) for names in dims)

    def sharding(self, spec: Spec, rank: int) -> str:
        """The text of XLA's sharding."""
        chosen = self.spec(spec, rank)
        used = [self._index(name) for names in chosen for name in names]
        tiles = [self.length(names) for names in chosen]
        if math.prod(tiles) == 1:
            return "{replicated}"
        rest = [i for i in range(len(self.names)) if i not in used]
        replicas = math.prod(self.shape[i] for i in rest)
        order = used + rest
        dims = ",".join(map(str, [*tiles, replicas] if replicas > 1 else tiles))
        source = f"[{self.size}]"
        if order != sorted(order):
            source = f"[{','.join(map(str, self.shape))}]T({','.join(map(str, order))})"
        last = " last_tile_dim_replicate" if replicas > 1 else ""
        return f"{{devices=[{dims}]<={source}{last}}}"


def _names(axes: Axes) -> tuple[str, ...]:
    if axes is None:
        return ()
    return (axes,) if isinstance(axes, str) else tuple(axes)


# ---- inside a model ------------------------------------------------------------------------------

_shared_mesh: list[Mesh] = []  # of the capture that runs; autograd's threads read it too


@contextlib.contextmanager
def capturing(mesh: Mesh | None) -> Iterator[None]:
    """Programs traced in the scope are for ``mesh``."""
    if mesh is None:
        yield
        return
    _shared_mesh.append(mesh)
    try:
        yield
    finally:
        _shared_mesh.pop()


def constrain(x: torch.Tensor, spec: Spec) -> torch.Tensor:
    """``x``, which lies over the mesh as ``spec`` says, and so does its gradient.

    Means something while a program is captured for a mesh; anywhere else it returns ``x``.
    """
    if not _shared_mesh:
        return x
    return torch.ops.torch_tpu.shard(x, _shared_mesh[-1].sharding(spec, x.ndim))


# ---- tables --------------------------------------------------------------------------------------


def fully_sharded(model: nn.Module, mesh: Mesh, axis: Axes, least: int = 1024) -> dict[str, Spec]:
    """Every parameter split over ``axis`` along its largest dimension that divides.

    Parameters with fewer than ``least`` elements, or without such a dimension, are on every device.
    """
    count, table = mesh.length(axis), {}
    for name, parameter in model.named_parameters():
        dims = [d for d, n in enumerate(parameter.shape) if n % count == 0]
        spec: list[Axes] = [None] * parameter.ndim
        if dims and parameter.numel() >= least:
            spec[max(dims, key=lambda d: parameter.shape[d])] = axis
        table[name] = tuple(spec)
    return table


def tensor_parallel(model: nn.Module, plan: Mapping[str, Spec]) -> dict[str, Spec]:
    """Specs by name: ``plan`` has them by pattern (``"layers.*.wq.weight"``), the first that fits.

    Raises ValueError for a pattern that fits no parameter.
    """
    table, used = {}, set()
    for name, _ in model.named_parameters():
        pattern = next((p for p in plan if fnmatch.fnmatchcase(name, p)), None)
        if pattern is not None:
            table[name] = plan[pattern]
            used.add(pattern)
    if idle := [pattern for pattern in plan if pattern not in used]:
        raise ValueError(f"no parameter is called like {', '.join(map(repr, idle))}")
    return table


def data(batch: Any, axis: Axes) -> Any:
    """Every tensor of a batch split over ``axis`` along its first dimension."""
    return torch.utils._pytree.tree_map(
        lambda leaf: (axis,) if isinstance(leaf, torch.Tensor) and leaf.ndim else None, batch
    )


def lookup(table: Mapping[str, Spec], name: str) -> Spec | None:
    """The spec of a name: its own, or that of the first pattern that fits."""
    if name in table:
        return table[name]
    return next((spec for p, spec in table.items() if fnmatch.fnmatchcase(name, p)), None)


def checked(mesh: Mesh, spec: Spec, name: str, shape: Sequence[int]) -> str:
    """The sharding of a parameter of the program; its dimensions must divide.

    XLA pads the last parts of what does not, but not where a parameter of the program begins."""
    try:
        chosen = mesh.spec(spec, len(shape))
        for dim, names in enumerate(chosen):
            if shape[dim] % mesh.length(names):
                raise ValueError(
                    f"dimension {dim} of {list(shape)} does not divide over {names} "
                    f"({mesh.length(names)} devices)"
                )
        return mesh.sharding(spec, len(shape))
    except ValueError as error:
        raise ValueError(f"the sharding of {name}: {error}") from None
