// Which attention implementation scaled_dot_product_attention takes on a tpu.
//
// The fused slot is one program (torch_tpu/ops/attention.py). Inputs it is not made for take the
// math path, which PyTorch composes of ordinary operators.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

namespace torch_tpu {

namespace {

// Sizes may be symbolic, while torch.compile captures.
bool holds(const c10::SymBool& condition) { return TORCH_GUARD_OR_FALSE(condition); }

bool has_elements(const at::Tensor& tensor) { return holds(tensor.sym_numel().sym_gt(0)); }

bool same_size(const at::Tensor& a, const at::Tensor& b, int64_t dim) {
  return holds(a.sym_size(dim).sym_eq(b.sym_size(dim)));
}

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  bool dense = !query.is_nested() && !key.is_nested() && !value.is_nested();
  bool batched = dense && query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  bool usable = batched && query.is_floating_point() && has_elements(query) && has_elements(key) &&
                has_elements(value) && query.scalar_type() == key.scalar_type() &&
                query.scalar_type() == value.scalar_type() && same_size(query, key, 0) &&
                same_size(query, value, 0) && same_size(key, value, 1) &&
                holds((query.sym_size(1) % key.sym_size(1)).sym_eq(0));
  return static_cast<int64_t>(usable ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", choose); }

}  // namespace

}  // namespace torch_tpu

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_tpu::choose)

}  // namespace at::native
