// With how many bits float32 matrices are multiplied; a part of the key of every operator that
// does.
#pragma once

#include <ATen/Context.h>

namespace torch_tpu {

// What `torch.get_float32_matmul_precision()` says. Where that refuses to answer, because a script
// has set the precision of another backend alone (`torch.backends.cuda.matmul.fp32_precision`),
// the setting for all backends counts (`torch.backends.fp32_precision`).
at::Float32MatmulPrecision float32_matmul_precision();

}  // namespace torch_tpu
