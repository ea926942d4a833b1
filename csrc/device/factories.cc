// The operators that make tensors or change only their metadata: empty, views, set_, resize_.
//
// None of them runs a program. View operators reuse ATen's own shape functions, which never look at
// memory; all other views (transpose, slice, expand, …) are composed of as_strided by PyTorch.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_cpu_dispatch.h>
#include <ATen/ops/view_as_real_cpu_dispatch.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "../dispatch/internal.h"
#include "allocator.h"

namespace torch_tpu {

namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;

void check_factory(std::optional<c10::Layout> layout, std::optional<bool> pin,
                   c10::ScalarType dtype) {
  TORCH_CHECK(!layout.has_value() || *layout == c10::Layout::Strided,
              "tpu tensors have a strided layout; ", layout.value_or(c10::Layout::Strided),
              " is not supported");
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  element_type(dtype);
}

// Makes `device` current while the storage is allocated.
class OnDevice {
 public:
  explicit OnDevice(std::optional<c10::Device> device) : previous_(current_device()) {
    int index = checked_device(device.has_value() ? device->index() : -1);
    if (index != previous_) set_current_device(index);
  }
  ~OnDevice() {
    if (current_device() != previous_) set_current_device(previous_);
  }

 private:
  int previous_;
};

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                               std::optional<bool> pin, std::optional<c10::MemoryFormat> format) {
  auto type = c10::dtype_or_default(dtype);
  check_factory(layout, pin, type);
  OnDevice guard(device);
  return at::detail::empty_generic(
      size, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type, format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pin) {
  auto type = c10::dtype_or_default(dtype);
  check_factory(layout, pin, type);
  OnDevice guard(device);
  return at::detail::empty_strided_generic(
      size, stride, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
}

// A number on its way to a tensor rounds as on the CPU, to infinity if need be, while fill_ refuses
// what the dtype cannot hold. Made on the host: there is nothing to compile.
at::Tensor scalar_tensor(const at::Scalar& number, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin) {
  auto type = c10::dtype_or_default(dtype);
  check_factory(layout, pin, type);
  OnDevice guard(device);
  c10::Device target(kTpu, static_cast<c10::DeviceIndex>(current_device()));
  return at::scalar_tensor(number, at::TensorOptions().dtype(type).device(at::kCPU)).to(target);
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::cpu::as_strided_symint(self, size, stride, std::move(offset));
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size,
                         c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size,
                         std::optional<c10::MemoryFormat> format) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (self.sizes() != sizes) resize_tensor(self, sizes);
  if (format.has_value()) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset,
                               c10::IntArrayRef size, c10::IntArrayRef stride) {
  // A view may not reach past the storage: there is no memory to grow into by accident.
  auto* impl = self.unsafeGetTensorImpl();
  at::native::checkSetStorage(self, source, offset, size, stride);
  impl->set_storage_offset(offset);
  if (stride.data() != nullptr && stride.size() == size.size()) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  size_t needed = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->itemsize(),
                                                   static_cast<size_t>(offset));
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (self.numel() > 0 && needed > storage->nbytes()) resize_storage(storage, needed);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  auto width = static_cast<int64_t>(self.dtype().itemsize());
  auto count = static_cast<int64_t>(source.nbytes()) / width;
  return set_storage_offset(self, std::move(source), 0, {count}, {1});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  if (!self.is_same(source)) {
    set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                       source.strides());
  }
  return self;
}

at::Tensor& set_empty(at::Tensor& self) {
  OnDevice guard(self.device());
  at::Storage storage(at::Storage::use_byte_size_t(), 0, device_allocator()->allocate(0),
                      device_allocator(), true);
  return set_storage_offset(self, std::move(storage), 0, {0}, {1});
}

// Lets `module.to("tpu")` and `p.data = …` keep the Parameter object, as between cpu and cuda: both
// sides are plain dense TensorImpls.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  auto plain = [](const at::Tensor& tensor) {
    auto type = tensor.device().type();
    return tensor.layout() == c10::Layout::Strided &&
           (type == kTpu || type == c10::DeviceType::CPU);
  };
  return plain(self) && plain(from);
}

void record_stream(at::Tensor&, c10::Stream) {}  // programs keep what they read alive

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided);
  m.impl("scalar_tensor", scalar_tensor);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", unfold);
  m.impl("view_as_real", [](const at::Tensor& self) { return at::cpu::view_as_real(self); });
  m.impl("view_as_complex", [](const at::Tensor& self) { return at::cpu::view_as_complex(self); });
  m.impl("resize_", resize);
  m.impl("set_.source_Storage", set_source_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage_offset);
  m.impl("set_.source_Tensor", set_source_tensor);
  m.impl("set_", set_empty);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("record_stream", record_stream);
}

}  // namespace

}  // namespace torch_tpu
