// Arrays with slack: flat, row-major and longer than the storage they stand behind.
//
// A program for a bucket of sizes gives such an array, and takes one; the tensors between two calls
// have their exact sizes, and no program is needed to get from one to the other. Whatever else
// reads such a tensor reads the beginning of the array.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_tpu {

// A new tensor of shape [length] that begins with the elements of `tensor`, row-major; what follows
// is undefined. No copy if the tensor's array is such an array already.
at::Tensor flat_of(const at::Tensor& tensor, int64_t length);

// A contiguous tensor of `sizes` that begins where the flat tensor `flat` does, in an array that it
// shares with it until either is written to.
at::Tensor exact_of(const at::Tensor& flat, c10::IntArrayRef sizes);

}  // namespace torch_tpu
