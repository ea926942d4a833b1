// ATen's CPU kernels as functions that compiled programs call; CPU plugin only.
//
// A rule asks for one with `aten_call` (torch_tpu/lowering/host.py), which writes down the overload
// and its arguments as text; nothing in it depends on the process, so that programs may be kept on
// disk. The transport is csrc/pjrt/ffi.h.
#pragma once

#include <string>

#include "../pjrt/ffi.h"

namespace torch_tpu {

// Runs the operator that the call's attributes name on its operands, below autograd and without
// the GIL, and fills the results. Throws std::runtime_error whose text `throw_host_error` reads.
void run_host_kernel(const pjrt::HostCall& call);

// Throws the exception that a host kernel threw, with its class and text, if `message` (of an error
// that came back through PJRT) has one in it; returns otherwise.
void throw_host_error(const std::string& message);

}  // namespace torch_tpu
