// torch dtypes as XLA element types.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "../pjrt/client.h"

namespace torch_tpu {

// The XLA element type of a torch dtype, or kInvalid if XLA has none.
inline pjrt::ElementType element_type_or_invalid(c10::ScalarType dtype) {
  using E = pjrt::ElementType;
  switch (dtype) {
    case c10::ScalarType::Bool:
      return E::kPred;
    case c10::ScalarType::Char:
      return E::kS8;
    case c10::ScalarType::Short:
      return E::kS16;
    case c10::ScalarType::Int:
      return E::kS32;
    case c10::ScalarType::Long:
      return E::kS64;
    case c10::ScalarType::Byte:
      return E::kU8;
    case c10::ScalarType::UInt16:
      return E::kU16;
    case c10::ScalarType::UInt32:
      return E::kU32;
    case c10::ScalarType::UInt64:
      return E::kU64;
    case c10::ScalarType::Half:
      return E::kF16;
    case c10::ScalarType::BFloat16:
      return E::kBF16;
    case c10::ScalarType::Float:
      return E::kF32;
    case c10::ScalarType::Double:
      return E::kF64;
    case c10::ScalarType::ComplexFloat:
      return E::kC64;
    case c10::ScalarType::ComplexDouble:
      return E::kC128;
    case c10::ScalarType::Float8_e5m2:
      return E::kF8E5M2;
    case c10::ScalarType::Float8_e4m3fn:
      return E::kF8E4M3FN;
    default:
      return E::kInvalid;
  }
}

inline pjrt::ElementType element_type(c10::ScalarType dtype) {
  auto type = element_type_or_invalid(dtype);
  TORCH_CHECK_TYPE(type != pjrt::ElementType::kInvalid, "XLA has no element type for ",
                   c10::toString(dtype), ": tensors of this dtype cannot live on a tpu");
  return type;
}

}  // namespace torch_tpu
