// See precision.h.
#include "precision.h"

namespace torch_tpu {

at::Float32MatmulPrecision float32_matmul_precision() {
  const at::Context& context = at::globalContext();
  try {
    return context.float32MatmulPrecision();
  } catch (const c10::Error&) {  // the only complaint it has is of mixed settings
    switch (context.float32Precision(at::Float32Backend::GENERIC, at::Float32Op::ALL)) {
      case at::Float32Precision::TF32:
        return at::Float32MatmulPrecision::HIGH;
      case at::Float32Precision::BF16:
        return at::Float32MatmulPrecision::MEDIUM;
      default:
        return at::Float32MatmulPrecision::HIGHEST;
    }
  }
}

}  // namespace torch_tpu
