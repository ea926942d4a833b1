// See flat.h.
#include "flat.h"

#include <ATen/Functions.h>

#include "internal.h"

namespace torch_tpu {

namespace {

at::Tensor wrap_flat(pjrt::BufferRef array, const at::Tensor& like, int64_t length,
                     c10::IntArrayRef sizes) {
  c10::SmallVector<int64_t, 6> strides(sizes.size());
  int64_t count = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = count;
    count *= sizes[i];
  }
  return wrap(std::move(array), like.scalar_type(), {length}, sizes, strides,
              count * static_cast<int64_t>(like.itemsize()), like.device().index());
}

// Through host memory, so that no program is compiled for the exact sizes.
at::Tensor padded_on_host(const at::Tensor& tensor, int64_t length) {
  at::Tensor exact = tensor.to(at::kCPU).contiguous().flatten();
  at::Tensor padded = at::zeros({length}, exact.options());
  padded.narrow(0, 0, exact.numel()).copy_(exact);
  return padded.to(tensor.device());
}

}  // namespace

at::Tensor flat_of(const at::Tensor& tensor, int64_t length) {
  TORCH_CHECK(tensor.numel() <= length, "a tensor of ", tensor.sizes(), " has more than ", length,
              " elements");
  if (tensor.numel() == 0) return at::zeros({length}, tensor.options());
  if (!covers_storage(tensor) || tensor.is_conj() || tensor.is_neg()) {
    return padded_on_host(tensor, length);
  }
  Dims dims;
  pjrt::BufferRef array = readable_array(tensor, &dims);
  int64_t count = c10::multiply_integers(dims);
  if (dims.size() == 1 && count == length) {
    return wrap_flat(std::move(array), tensor, length, {length});
  }
  if (count == tensor.numel()) return padded_on_host(tensor, length);
  // From one bucket to another: a program for each pair of lengths.
  return wrap_flat(resized_array(tensor, length), tensor, length, {length});
}

at::Tensor exact_of(const at::Tensor& flat, c10::IntArrayRef sizes) {
  int64_t count = c10::multiply_integers(sizes);
  TORCH_CHECK(count <= flat.numel(), "a flat tensor of ", flat.numel(), " elements cannot hold ",
              sizes);
  if (count == 0) return at::empty(sizes, flat.options());
  Dims dims;
  pjrt::BufferRef array = readable_array(flat, &dims);
  TORCH_CHECK(dims.size() == 1 && covers_storage(flat), "exact_of takes a flat tensor");
  return wrap_flat(std::move(array), flat, flat.numel(), sizes);
}

}  // namespace torch_tpu
