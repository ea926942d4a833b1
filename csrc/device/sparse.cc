// Sparse COO tensors: the operators that ATen writes in terms of others.
//
// A sparse tensor is ATen's own SparseTensorImpl: metadata over two dense tpu tensors. Registered
// here are those of ATen's functions that look at no memory themselves: they change metadata, or
// compute with other operators on indices and values. What ATen has for each device by hand
// (coalesce, additions, products) is in torch_tpu/dispatch/sparse.py. Operators that are in neither
// place are refused by PyTorch's dispatcher, by name.
#include <ATen/NativeFunctions.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "../dispatch/call.h"
#include "../dispatch/register.h"

namespace torch_tpu {

namespace {

namespace native = at::native;
using at::Tensor;

using OptionalNumber = std::optional<at::Scalar>;
using OptionalMode = std::optional<std::string_view>;

// ATen's sparse factories make tensors on the current device, whatever device they are told.
Tensor with_dims(int64_t sparse_dim, int64_t dense_dim, at::IntArrayRef size,
                 std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin) {
  c10::OptionalDeviceGuard guard(device);
  return native::new_with_dims_sparse(sparse_dim, dense_dim, size, dtype, layout, device, pin);
}

Tensor with_dims_and_tensors(int64_t sparse_dim, int64_t dense_dim, c10::SymIntArrayRef size,
                             const Tensor& indices, const Tensor& values,
                             std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                             std::optional<at::Device> device, std::optional<bool> pin,
                             std::optional<bool> coalesced) {
  c10::DeviceGuard guard(values.device());
  return native::new_with_dims_and_tensor_sparse_symint(
      sparse_dim, dense_dim, size, indices, values, dtype, layout, device, pin, coalesced);
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
             std::optional<at::Layout> layout, std::optional<at::Device> device,
             std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return native::empty_sparse(size, dtype, layout, device, pin, format);
}

Tensor empty_like(const Tensor& self, std::optional<at::ScalarType> dtype,
                  std::optional<at::Layout> layout, std::optional<at::Device> device,
                  std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(device.value_or(self.device()));
  return native::empty_like_sparse_coo(self, dtype, layout, device, pin, format);
}

// `function` with the device of its first argument as the current one.
template <auto function>
struct There;
template <class... Rest, Tensor (*function)(const Tensor&, Rest...)>
struct There<function> {
  static Tensor call(const Tensor& self, Rest... rest) {
    c10::DeviceGuard guard(self.device());
    return function(self, std::forward<Rest>(rest)...);
  }
};

using Options = Tensor (*)(const Tensor&, std::optional<at::Layout>, at::OptionalIntArrayRef,
                           std::optional<int64_t>);
using SparseDim = Tensor (*)(const Tensor&, int64_t);

// ATen's product serves all devices as long as at most one operand is sparse; what it does with two
// reads host memory.
Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  if (!(self.is_sparse() && other.is_sparse())) return native::mul_out_sparse_cpu(self, other, out);
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("torch_tpu::mul_sparse", "out")
                       .typed<Tensor&(const Tensor&, const Tensor&, Tensor&)>();
  return op.call(self, other, out);
}

// The rule lowers the dense gradient; a sparse one is a list of rows, which no program computes.
Tensor embedding_bag_backward(const Tensor& grad, const Tensor& indices, const Tensor& offsets,
                              const Tensor& offset2bag, const Tensor& bag_size,
                              const Tensor& maximum_indices, c10::SymInt num_weights,
                              bool scale_grad_by_freq, int64_t mode, bool sparse,
                              const std::optional<Tensor>& per_sample_weights,
                              int64_t padding_idx) {
  if (sparse) {
    return native::_embedding_bag_backward_symint(
        grad, indices, offsets, offset2bag, bag_size, maximum_indices, std::move(num_weights),
        scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx);
  }
  static OpKernel* kernel = find_kernel("aten::_embedding_bag_backward");
  TORCH_INTERNAL_ASSERT(kernel != nullptr, "the embedding bag rules are not registered");
  torch::jit::Stack stack{grad,
                          indices,
                          offsets,
                          offset2bag,
                          bag_size,
                          maximum_indices,
                          num_weights.guard_int(__FILE__, __LINE__),
                          scale_grad_by_freq,
                          mode,
                          sparse,
                          per_sample_weights,
                          padding_idx};
  kernel->call(&stack);
  return stack.back().toTensor();
}

void refuse_compressed(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().operator_name(),
                              ": tpu tensors are strided or sparse COO; compressed sparse layouts "
                              "(CSR, CSC, BSR, BSC) are not supported");
}

void refuse_compressed_layouts(torch::Library& m) {
  for (const char* name :
       {"_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_compressed>());
  }
}

TORCH_LIBRARY_FRAGMENT(torch_tpu, m) {
  m.def("mul_sparse.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)");
}

// Dense tensors: to sparse ones, and the gradient that may be either.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_to_sparse", There<static_cast<Options>(native::dense_to_sparse)>::call);
  m.impl("_to_sparse.sparse_dim", There<static_cast<SparseDim>(native::dense_to_sparse)>::call);
  m.impl("_embedding_bag_backward", embedding_bag_backward);
  refuse_compressed_layouts(m);
}

// Making, copying and describing.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims", with_dims);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", with_dims_and_tensors);
  m.impl("empty.memory_format", empty);
  m.impl("empty_like", empty_like);
  m.impl("zeros.out", native::zeros_sparse_out);
  m.impl("zero_", native::zero_sparse_);
  m.impl("clone", There<native::clone_sparse>::call);
  m.impl("copy_", native::copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", native::copy_sparse_);
  m.impl("resize_as_sparse_", native::resize_as_sparse_);
  m.impl("sparse_resize_", native::sparse_resize_);
  m.impl("sparse_resize_and_clear_", native::sparse_resize_and_clear_);
  m.impl("sparse_dim", native::sparse_dim_sparse);
  m.impl("dense_dim", native::dense_dim_sparse);
  m.impl("_dimI", native::sparse_dim_sparse);
  m.impl("_dimV", native::dense_dim_sparse);
  m.impl("_nnz", native::_nnz_sparse);
  m.impl("is_coalesced", native::is_coalesced_sparse);
  m.impl("_coalesced_", native::_coalesced_sparse_);
  m.impl("indices", native::indices_sparse);
  m.impl("values", native::values_sparse);
  m.impl("_indices", native::_indices_sparse);
  m.impl("_values", native::_values_sparse);
  m.impl("_to_dense", native::sparse_to_dense);
  m.impl("_to_sparse", There<static_cast<Options>(native::sparse_coo_to_sparse)>::call);
  m.impl("_to_sparse.sparse_dim",
         There<static_cast<SparseDim>(native::sparse_coo_to_sparse)>::call);
  m.impl("_sparse_broadcast_to", native::sparse_broadcast_to);
  refuse_compressed_layouts(m);
  m.impl("permute", native::permute_sparse_coo);
  m.impl("unsqueeze", native::unsqueeze_sparse);
  m.impl("cat", native::cat_sparse);
  m.impl("narrow_copy", native::narrow_copy_sparse);
  m.impl("view_as_real", native::view_as_real_sparse);
  m.impl("view_as_complex", native::view_as_complex_sparse);
}

// Elementwise operators that keep zero zero: ATen coalesces and applies them to the values.
#define TPU_VALUES(name)                \
  m.impl(#name, native::name##_sparse); \
  m.impl(#name ".out", native::name##_sparse_out)
#define TPU_VALUES_INPLACE(name) \
  TPU_VALUES(name);              \
  m.impl(#name "_", native::name##_sparse_)

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  TPU_VALUES_INPLACE(abs);
  TPU_VALUES_INPLACE(asin);
  TPU_VALUES_INPLACE(asinh);
  TPU_VALUES_INPLACE(atan);
  TPU_VALUES_INPLACE(atanh);
  TPU_VALUES_INPLACE(ceil);
  TPU_VALUES_INPLACE(deg2rad);
  TPU_VALUES_INPLACE(erf);
  TPU_VALUES_INPLACE(erfinv);
  TPU_VALUES_INPLACE(expm1);
  TPU_VALUES_INPLACE(floor);
  TPU_VALUES_INPLACE(frac);
  TPU_VALUES_INPLACE(log1p);
  TPU_VALUES_INPLACE(nan_to_num);
  TPU_VALUES_INPLACE(rad2deg);
  TPU_VALUES_INPLACE(round);
  TPU_VALUES_INPLACE(sgn);
  TPU_VALUES_INPLACE(sign);
  TPU_VALUES_INPLACE(sin);
  TPU_VALUES_INPLACE(sinh);
  TPU_VALUES_INPLACE(sqrt);
  TPU_VALUES_INPLACE(tan);
  TPU_VALUES_INPLACE(tanh);
  TPU_VALUES_INPLACE(trunc);
  TPU_VALUES(isneginf);
  TPU_VALUES(isposinf);
  TPU_VALUES(signbit);
  m.impl("isinf", native::isinf_sparse);
  m.impl("isnan", native::isnan_sparse);
  m.impl("relu", native::relu_sparse);
  m.impl("relu_", native::relu_sparse_);
  m.impl("neg", native::neg_sparse);
  m.impl("neg.out", native::neg_out_sparse);
  m.impl("neg_", native::neg_sparse_);
  m.impl("conj_physical.out", native::conj_physical_out_sparse);
  m.impl("pow.Tensor_Scalar", native::pow_sparse_scalar);
  m.impl("pow.Tensor_Scalar_out", native::pow_out_sparse_scalar);
  m.impl("threshold_backward", native::threshold_backward_sparse);
  m.impl("threshold_backward.grad_input", native::threshold_backward_sparse_out);
}

#undef TPU_VALUES_INPLACE
#undef TPU_VALUES

// Arithmetic and reductions: checks and dtypes, on top of the kernels in dispatch/sparse.py.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  using Div = Tensor(const Tensor&, const Tensor&);
  using DivMode = Tensor(const Tensor&, const Tensor&, OptionalMode);
  using DivInplace = Tensor&(Tensor&, const Tensor&);
  using DivModeInplace = Tensor&(Tensor&, const Tensor&, OptionalMode);
  using DivOut = Tensor&(const Tensor&, const Tensor&, Tensor&);
  using DivModeOut = Tensor&(const Tensor&, const Tensor&, OptionalMode, Tensor&);
  using Norm = Tensor(const Tensor&, const at::Scalar&);
  using NormDims = Tensor(const Tensor&, const OptionalNumber&, at::IntArrayRef, bool,
                          std::optional<at::ScalarType>);
  m.impl("add.Tensor", native::add_sparse);
  m.impl("add_.Tensor", native::add_sparse_);
  m.impl("sub.Tensor", native::sub_sparse);
  m.impl("sub_.Tensor", native::sub_sparse_);
  m.impl("sub.out", native::sub_out_sparse);
  m.impl("mul.Tensor", native::mul_sparse);
  m.impl("mul_.Tensor", native::mul_sparse_);
  m.impl("mul.out", mul_out);
  m.impl("div.Tensor", static_cast<Div*>(native::div_sparse));
  m.impl("div.Tensor_mode", static_cast<DivMode*>(native::div_sparse));
  m.impl("div_.Tensor", static_cast<DivInplace*>(native::div_sparse_));
  m.impl("div_.Tensor_mode", static_cast<DivModeInplace*>(native::div_sparse_));
  m.impl("div.out", static_cast<DivOut*>(native::div_out_sparse_zerodim));
  m.impl("div.out_mode", static_cast<DivModeOut*>(native::div_out_sparse_zerodim));
  m.impl("floor_divide", native::floor_divide_sparse);
  m.impl("floor_divide_.Tensor", native::floor_divide_sparse_);
  m.impl("floor_divide.out", native::floor_divide_out_sparse_zerodim);
  m.impl("any", native::any_sparse);
  m.impl("sum", native::sum_coo);
  m.impl("sum.dim_IntList", native::sum_sparse_coo);
  m.impl("native_norm", static_cast<Norm*>(native::norm_sparse));
  m.impl("native_norm.ScalarOpt_dim_dtype", static_cast<NormDims*>(native::norm_sparse));
  m.impl("norm.ScalarOpt_dim", native::sparse_norm);
  m.impl("norm.ScalarOpt_dim_dtype", native::sparse_dtype_norm);
  m.impl("mm", static_cast<Div*>(native::_sparse_mm));
  m.impl("mm.out", native::_sparse_mm_out);
  m.impl("mv", native::mv_sparse);
}

}  // namespace

}  // namespace torch_tpu
