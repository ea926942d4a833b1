// Functions of this process that compiled programs may call (XLA's foreign function interface).
//
// A plugin that compiles for the host has the PJRT FFI extension; others do not. Through it one
// function is registered under the name kHostKernelTarget, and a program calls it with
// `stablehlo.custom_call @torch_tpu.aten`. What the function does is its owner's business
// (csrc/device/host_kernels.cc): this file knows neither torch nor operators.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "client.h"

namespace torch_tpu::pjrt {

inline constexpr std::string_view kHostKernelTarget = "torch_tpu.aten";

// A dense row-major array in host memory.
struct HostArray {
  ElementType type;
  std::span<const int64_t> dims;
  void* data;
};

// One call that a running program makes.
struct TORCH_TPU_API HostCall {
  std::vector<HostArray> operands;  // only to be read
  std::vector<HostArray> results;   // to be filled
  std::vector<std::pair<std::string_view, std::string_view>> attributes;

  // A string attribute; throws Error if the call has none of that name.
  std::string_view attribute(std::string_view name) const;
};

// Runs one call, on any thread of the plugin and on several at once. An exception becomes the error
// of the program's results.
using HostKernel = void (*)(const HostCall& call);

// Registers `kernel` with the plugin of `client`, for the life of the process. False if the plugin
// cannot call into the host, or not by the version of the extension that is declared in ffi.cc.
TORCH_TPU_API bool register_host_kernel(const Client& client, HostKernel kernel);

}  // namespace torch_tpu::pjrt
