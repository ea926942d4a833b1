// Checks of the run-time numbers of a call. They are no part of its key, so neither PyTorch's meta
// kernels nor a rule's own check see them when the program is found.
#pragma once

#include "call.h"

namespace torch_tpu {

// The bounds that Rule.bounds calls `words`.
Bounds to_bounds(const std::string& words);

// Raises for a number outside its bounds, and for a random range that is empty.
void check_numbers(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_tpu
