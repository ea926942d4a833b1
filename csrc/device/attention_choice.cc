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

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  bool dense = !query.is_nested() && !key.is_nested() && !value.is_nested();
  bool batched = dense && query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  bool usable = batched && query.is_floating_point() && query.numel() > 0 && key.numel() > 0 &&
                value.numel() > 0 && query.scalar_type() == key.scalar_type() &&
                query.scalar_type() == value.scalar_type() && query.size(0) == key.size(0) &&
                query.size(0) == value.size(0) && key.size(1) == value.size(1) &&
                query.size(1) % key.size(1) == 0;
  return static_cast<int64_t>(usable ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", choose); }

}  // namespace

}  // namespace torch_tpu

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_tpu::choose)

}  // namespace at::native
