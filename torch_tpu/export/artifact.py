"""The file of an exported program: a zip of MLIR text, JSON and raw weights. No pickle.

``module.mlir`` is the module, ``signature.json`` the signature, the pytree specs and the list of
weights, ``weights/<i>`` the little-endian row-major bytes of weight i.
"""

from __future__ import annotations

import ctypes
import json
import os
import zipfile
import zlib
from collections.abc import Mapping

import torch
from torch.utils import _pytree as pytree

from .program import Program
from .signature import WEIGHTS, Signature, dtype_name, dtype_named

FORMAT = 1
_TEXT, _SIGNATURE = "module.mlir", "signature.json"


def save(program: Program, path: str | os.PathLike) -> None:
    """Write ``program`` to ``path``. Outputs of a class that torch.utils._pytree cannot write as
    text (registered without ``serialized_type_name``) raise NotImplementedError."""
    weights = {
        name: t.cpu().resolve_conj().resolve_neg().contiguous()
        for name, t in program.weights.items()
    }
    described = {
        "format": FORMAT,
        "signature": program.signature.to_json(),
        "in_spec": pytree.treespec_dumps(program.in_spec),
        "out_spec": pytree.treespec_dumps(program.out_spec),
        "weights": [
            {"name": name, "dtype": dtype_name(t.dtype), "shape": list(t.shape)}
            for name, t in weights.items()
        ],
    }
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(_TEXT, program.text, zipfile.ZIP_DEFLATED)
        file.writestr(_SIGNATURE, json.dumps(described, indent=1), zipfile.ZIP_DEFLATED)
        for i, tensor in enumerate(weights.values()):
            file.writestr(f"weights/{i}", _bytes(tensor))


def load(path: str | os.PathLike) -> Program:
    """The program that `Program.save` wrote; ValueError if the file is not one."""
    try:
        with zipfile.ZipFile(path) as file:
            text = file.read(_TEXT).decode()
            described = json.loads(file.read(_SIGNATURE))
            if described["format"] != FORMAT:
                raise ValueError(f"format {described['format']}, this version reads {FORMAT}")
            weights = {
                fields["name"]: _tensor(fields, file.read(f"weights/{i}"))
                for i, fields in enumerate(described["weights"])
            }
        signature = Signature.from_json(described["signature"])
        specs = [pytree.treespec_loads(described[name]) for name in ("in_spec", "out_spec")]
        _check(signature, weights)
        return Program(text, signature, weights, *specs)
    except (zipfile.BadZipFile, zlib.error, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a readable exported program: {error}") from error


def _check(signature: Signature, weights: Mapping[str, torch.Tensor]) -> None:
    for wanted in signature.parameters:
        if wanted.kind not in WEIGHTS:
            continue
        held = weights[wanted.name]
        if held.dtype is not wanted.dtype or tuple(held.shape) != wanted.shape:
            raise ValueError(f"the weight {wanted.name} is not what the signature says")


def _bytes(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.numel() else b""


def _tensor(fields: Mapping, data: bytes) -> torch.Tensor:
    tensor = torch.empty(fields["shape"], dtype=dtype_named(fields["dtype"]))
    if len(data) != tensor.nbytes:
        raise ValueError(f"{fields['name']} has {len(data)} bytes, not {tensor.nbytes}")
    if data:
        ctypes.memmove(tensor.data_ptr(), data, len(data))
    return tensor
