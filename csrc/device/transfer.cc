// Copies between host and device and between devices, and reading a single element.
//
// Host copies are synchronous with respect to the host memory (the source may be reused at once);
// device work is not waited for unless its values are asked for. dtype changes happen on the CPU on
// the way in and out, and in the copy program between tpu tensors.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <cstring>

#include "../dispatch/call.h"
#include "../dispatch/internal.h"
#include "../dispatch/register.h"

namespace torch_tpu {

namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;

bool on_tpu(const at::Tensor& tensor) { return tensor.device().type() == kTpu; }

// Views of small storages are read as a whole and cut on the host: no program to compile or run.
constexpr size_t kWholeStorageBytes = size_t{1} << 20;

// The numbers that a tensor of bytes stands for, if it is a whole storage and they fill it. PyTorch
// saves and copies storages as bytes; that needs no program which makes bytes of the numbers, nor
// one that makes numbers of them again.
struct Numbers {
  pjrt::BufferRef array;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  Dims dims;

  explicit Numbers(const at::Tensor& bytes) {
    if (bytes.scalar_type() != c10::kByte || !covers_storage(bytes)) return;
    Runtime::get();  // raises in a forked child, where the arrays of the parent are dead
    Cell& cell = *cell_of(bytes);
    CellLock guard(cell);
    if (!cell.buffer || cell.dtype == c10::kByte) return;
    auto count = static_cast<size_t>(c10::multiply_integers(cell.dims));
    if (count * c10::elementSize(cell.dtype) != bytes.nbytes()) return;
    array = cell.buffer;
    dtype = cell.dtype;
    dims = cell.dims;
  }

  // The storage of `bytes` as a tensor of such numbers.
  at::Tensor view(const at::Tensor& bytes) const {
    at::Tensor empty = at::empty({0}, bytes.options().dtype(dtype));
    return empty.set_(bytes.storage(), 0, dims);
  }
};

// Reads the elements of a tpu tensor, row-major, to host memory.
void to_host(const at::Tensor& source, void* destination) {
  if (Numbers numbers(source); numbers.array) {
    guarded("copy to host", [&] { numbers.array->to_host(destination); });
    return;
  }
  size_t nbytes = source.storage().nbytes();
  bool worthwhile = nbytes <= kWholeStorageBytes || nbytes <= 4 * source.nbytes();
  Dims dims;
  pjrt::BufferRef whole;
  if (nbytes % source.itemsize() == 0) whole = readable_array(source, &dims);
  int64_t count = c10::multiply_integers(dims);
  bool slack = whole && static_cast<size_t>(count) * source.itemsize() > nbytes;
  if (whole && (slack || (!covers_storage(source) && worthwhile))) {
    auto options = source.options().device(at::kCPU);
    at::Tensor staged = at::empty({count}, options);
    guarded("copy to host", [&] { whole->to_host(staged.mutable_data_ptr()); });
    at::Tensor view =
        staged.as_strided(source.sizes(), source.strides(), source.storage_offset()).contiguous();
    std::memcpy(destination, view.const_data_ptr(), view.nbytes());
    return;
  }
  pjrt::BufferRef array = dense_array(source, false);
  guarded("copy to host", [&] { array->to_host(destination); });
}

void host_to_device(const at::Tensor& source, const at::Tensor& target) {
  at::Tensor dense = source.resolve_conj().resolve_neg();
  dense = dense.to(target.scalar_type()).expand(target.sizes()).contiguous();
  int device = target.device().index();
  auto array = guarded("copy to tpu", [&] {
    return Runtime::get().client().from_host(dense.const_data_ptr(),
                                             element_type(target.scalar_type()),
                                             {target.sizes().data(), target.sizes().size()},
                                             static_cast<int64_t>(dense.nbytes()), device);
  });
  write_array(target, std::move(array));
}

void device_to_host(const at::Tensor& source, const at::Tensor& target) {
  bool direct = target.is_contiguous() && target.scalar_type() == source.scalar_type() &&
                target.sizes() == source.sizes() && !target.is_conj() && !target.is_neg() &&
                !source.is_conj() && !source.is_neg();
  if (direct) return to_host(source, target.mutable_data_ptr());
  at::Tensor staged = at::empty(source.sizes(), source.options().device(at::kCPU));
  to_host(source, staged.mutable_data_ptr());  // the bits of a lazy conjugate are those of its base
  if (source.is_conj()) staged = staged.conj();
  if (source.is_neg()) staged = staged._neg_view();
  target.copy_(staged);
}

void between_devices(const at::Tensor& source, const at::Tensor& target) {
  pjrt::BufferRef array = dense_array(source, true);
  auto moved = guarded("copy between devices",
                       [&] { return pjrt::BufferRef(array->copy_to(target.device().index())); });
  bool lazy = source.is_conj() || source.is_neg();
  if (!lazy && source.scalar_type() == target.scalar_type() && source.sizes() == target.sizes()) {
    write_array(target, std::move(moved));
    return;
  }
  at::Tensor staged = at::empty(source.sizes(), target.options().dtype(source.scalar_type()));
  write_array(staged, std::move(moved));  // the bits of a lazy conjugate are those of its base
  if (source.is_conj()) staged = staged.conj();
  if (source.is_neg()) staged = staged._neg_view();
  target.copy_(staged);
}

void on_one_device(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  static OpKernel* kernel = find_kernel("aten::copy_");
  TORCH_INTERNAL_ASSERT(kernel != nullptr, "the copy rule is not registered");
  torch::jit::Stack stack{target, source, non_blocking};
  if (Numbers numbers(source); numbers.array && target.scalar_type() == c10::kByte &&
                               covers_storage(target) && target.nbytes() == source.nbytes()) {
    stack = {numbers.view(target), numbers.view(source), non_blocking};
    numbers.array = {};  // the copy may take it
  }
  kernel->call(&stack);
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  TORCH_CHECK(self.defined() && source.defined(), "copy_ of an undefined tensor");
  if (self.numel() == 0 && source.numel() == 0) return self;
  at::Tensor from = source;
  if (from.sizes() != self.sizes()) from = from.expand(self.sizes());  // raises as PyTorch does
  if (self.numel() == 0) return self;
  // Zero tensors (tangents of forward mode) have no memory to read.
  if (from._is_zerotensor()) return self.zero_();
  // A target seen through a lazy conjugate or negation gets what makes it read as `source`.
  if (on_tpu(self) && self.is_conj()) {
    at::Tensor plain = self.conj();
    copy(plain, from.conj(), non_blocking);
    return self;
  }
  if (on_tpu(self) && self.is_neg()) {
    at::Tensor plain = self._neg_view();
    copy(plain, from._neg_view(), non_blocking);
    return self;
  }
  if (on_tpu(self) && on_tpu(from)) {
    bool same = self.device().index() == from.device().index();
    same ? on_one_device(from, self, non_blocking) : between_devices(from, self);
  } else if (on_tpu(self)) {
    TORCH_CHECK(from.device().is_cpu(), "cannot copy from ", from.device(), " to tpu");
    host_to_device(from, self);
  } else {
    TORCH_CHECK(self.device().is_cpu(), "cannot copy from tpu to ", self.device());
    device_to_host(from, self);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  at::Tensor self = target;
  copy(self, source, non_blocking);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (target.sizes() != source.sizes()) target.resize_(source.sizes());
  return copy_from(source, target, false);
}

// Lists may mix hosts and devices (offloading does); the single program serves one device only.
void foreach_copy(at::TensorList self, at::TensorList source, bool non_blocking) {
  static OpKernel* kernel = find_kernel("aten::_foreach_copy_");
  bool together = kernel != nullptr && !self.empty() && self.size() == source.size();
  for (size_t i = 0; together && i < self.size(); ++i) {
    together = on_tpu(self[i]) && self[i].device() == self[0].device() &&
               source[i].device() == self[0].device() && self[i].sizes() == source[i].sizes();
  }
  if (together) {
    torch::jit::Stack stack{self.vec(), source.vec(), non_blocking};
    kernel->call(&stack);
    return;
  }
  TORCH_CHECK(self.size() == source.size(), "_foreach_copy_: lists of ", self.size(), " and ",
              source.size(), " tensors");
  for (size_t i = 0; i < self.size(); ++i) self[i].copy_(source[i], non_blocking);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  at::Tensor staged = at::empty({}, self.options().device(at::kCPU));
  device_to_host(self.reshape({}), staged);
  return staged.item();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", copy);
  m.impl("_foreach_copy_", foreach_copy);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
}

// Without these, x.conj().resolve_conj() recurses: copy_ calls _copy_from, whose conjugate fallback
// clones, which calls copy_.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace

}  // namespace torch_tpu
