"""torch.export to StableHLO: `to_stablehlo` makes a `Program`, `load` reads a saved one.

`capture.py` lowers an ExportedProgram, `signature.py` says what the parameters and results of the
module are, `program.py` runs it on tpu tensors, `artifact.py` is the file. See docs/export.md.
"""

from .artifact import load
from .capture import to_stablehlo
from .program import Program
from .signature import Leaf, Parameter, Result, Signature

__all__ = ["Leaf", "Parameter", "Program", "Result", "Signature", "load", "to_stablehlo"]
