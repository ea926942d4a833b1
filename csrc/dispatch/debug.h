// Debug: what happens around a call besides the call. See torch_tpu/dispatch/debug.py.
#pragma once

#include "call.h"

namespace torch_tpu {

// Runs the call with the checks of Debug: indices before it, numbers after it if asked for.
void call_in_debug(OpKernel& kernel, torch::jit::Stack* stack);

}  // namespace torch_tpu
