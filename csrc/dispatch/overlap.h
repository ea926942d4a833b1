// What is written, in place or as out=, must not be partly what is read, where PyTorch says so.
#pragma once

#include "call.h"

namespace torch_tpu {

// The overlap that Rule.overlap calls `word`.
Overlap to_overlap(const std::string& word);

// Raises what PyTorch raises for a written argument that shares memory with a read one in a way
// that the operator refuses.
void check_overlap(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_tpu
