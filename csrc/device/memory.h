// Binding what torch.tpu.memory asks of the core; see memory.cc.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_tpu {

void bind_memory(pybind11::module_& m);

}  // namespace torch_tpu
