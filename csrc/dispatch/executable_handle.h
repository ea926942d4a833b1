// A compiled program as Python holds it.
#pragma once

#include <memory>

#include "../pjrt/client.h"

namespace torch_tpu {

struct ExecutableHandle {
  std::shared_ptr<pjrt::Executable> executable;
};

}  // namespace torch_tpu
