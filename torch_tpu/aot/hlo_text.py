"""An optimised program as text, in the notation that XLA prints.

For people: operations, shapes with layouts, called computations, groups, and of each operation the
PyTorch operator and line. Attributes that say nothing about cost (precision, windows, literals
other than one integer) are left out, so XLA does not read all of it back.
"""

from __future__ import annotations

from .hlo import Computation, HloModule, Instruction, Shape


def shape_text(shape: Shape) -> str:
    """``bf16[256,512]{1,0:T(8,128)(2,1)S(1)}``."""
    if shape.dtype == "tuple":
        return f"({', '.join(shape_text(element) for element in shape.elements)})"
    if shape.dtype in ("token", "opaque"):
        return f"{shape.dtype}[]"
    layout = ",".join(map(str, shape.minor_to_major))
    tiles = "".join(f"({','.join(map(str, tile))})" for tile in shape.tiles)
    more = (f"T{tiles}" if tiles else "") + (f"S({shape.space})" if shape.space else "")
    layout = f"{layout}:{more}" if more else layout
    dims = ",".join(map(str, shape.dims))
    return f"{shape.dtype}[{dims}]" + (f"{{{layout}}}" if layout else "")


def text(module: HloModule) -> str:
    """The whole module, callees first."""
    head = f"HloModule {module.name}"
    if module.is_scheduled:
        head += ", is_scheduled=true"
    if module.partitions > 1:
        head += f", num_partitions={module.partitions}"
    if module.replicas > 1:
        head += f", replica_count={module.replicas}"
    if module.aliases:
        pairs = (
            f"{_index(output)}: ({number}, {_index(place)})"
            for output, (number, place) in module.aliases.items()
        )
        head += f", input_output_alias={{ {', '.join(pairs)} }}"
    parts = [computation_text(module, one) for one in module.computations.values()]
    return "\n\n".join([head, *parts]) + "\n"


def computation_text(module: HloModule, computation: Computation) -> str:
    inputs = (f"{one.name}: {shape_text(one.shape)}" for one in computation.parameters)
    entry = "ENTRY " if computation is module.entry else ""
    result = shape_text(computation.root.shape)
    lines = [f"{entry}%{computation.name} ({', '.join(inputs)}) -> {result} {{"]
    for one in computation.instructions:
        mark = "ROOT " if one is computation.root else ""
        lines.append(f"  {mark}{instruction_text(module, computation, one)}")
    return "\n".join([*lines, "}"])


def instruction_text(module: HloModule, computation: Computation, one: Instruction) -> str:
    operands = ", ".join(f"%{computation.by_id[i].name}" for i in one.operands)
    if one.opcode == "parameter":
        operands = str(one.parameter_number)
    elif one.opcode == "constant":
        operands = "..." if one.scalar is None else str(one.scalar)
    line = f"%{one.name} = {shape_text(one.shape)} {one.opcode}({operands})"
    return ", ".join([line, *_attributes(module, one), *_metadata(one)])


def _attributes(module: HloModule, one: Instruction) -> list[str]:
    called = [f"%{c.name}" for c in module.called(one)]
    found = []
    if one.opcode == "fusion":
        found = [f"kind={one.fusion_kind}", f"calls={called[0]}"]
    elif one.opcode == "while":
        body, condition = module.loop(one)
        found = [f"condition=%{condition.name}", f"body=%{body.name}"]
    elif one.opcode == "conditional":
        found = [f"branch_computations={{{', '.join(called)}}}"]
    elif called:
        found = [f"to_apply={called[0]}"]
    if one.opcode == "get-tuple-element":
        found.append(f"index={one.tuple_index}")
    if one.direction:
        found.append(f"direction={one.direction}")
    if one.dimensions or one.opcode == "broadcast":
        found.append(f"dimensions={{{','.join(map(str, one.dimensions))}}}")
    if one.target:
        found.append(f'custom_call_target="{one.target}"')
    if one.channel:
        found.append(f"channel_id={one.channel}")
    if one.groups:
        groups = ",".join(f"{{{','.join(map(str, group))}}}" for group in one.groups)
        found.append(f"replica_groups={{{groups}}}")
    if one.pairs:
        pairs = ",".join(f"{{{a},{b}}}" for a, b in one.pairs)
        found.append(f"source_target_pairs={{{pairs}}}")
    return found


def _metadata(one: Instruction) -> list[str]:
    found = []
    if one.attributes:
        pairs = ",".join(f'{key}="{value}"' for key, value in one.attributes.items())
        found.append(f"frontend_attributes={{{pairs}}}")
    parts = [f'op_name="{one.op_name}"'] if one.op_name else []
    if one.source:
        file, _, line = one.source.rpartition(":")
        parts.append(f'source_file="{file}" source_line={line}')
    if parts:
        found.append(f"metadata={{{' '.join(parts)}}}")
    if one.estimated_cycles is not None:
        found.append(f'backend_config={{"estimated_cycles":"{one.estimated_cycles}"}}')
    return found


def _index(place: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, place)) + "}"
