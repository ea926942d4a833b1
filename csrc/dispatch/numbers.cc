// The words of Rule.bounds and what each demands. See numbers.h.
#include "numbers.h"

#include <ATen/ops/result_type.h>

#include <array>

namespace torch_tpu {

namespace {

constexpr std::array<const char*, 7> kWords = {"",          "> 0",       ">= 0",       "in (0, 1)",
                                               "in [0, 1]", "fits self", "fits result"};

bool within(double number, Bounds bounds) {
  switch (bounds) {
    case Bounds::kPositive:
      return number > 0;
    case Bounds::kNotNegative:
      return number >= 0;
    case Bounds::kOpenUnit:
      return number > 0 && number < 1;
    case Bounds::kUnit:
      return number >= 0 && number <= 1;
    default:
      return true;
  }
}

// Raises what PyTorch raises for a number that `dtype` cannot hold.
void check_fits(const c10::Scalar& number, c10::ScalarType dtype) {
#define TORCH_TPU_CASE(type, name)        \
  case c10::ScalarType::name:             \
    static_cast<void>(number.to<type>()); \
    break;
  switch (dtype) {
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(TORCH_TPU_CASE)
    default:
      break;
  }
#undef TORCH_TPU_CASE
}

void check_number(const OpKernel& kernel, size_t position, const c10::IValue& value,
                  const c10::IValue& self) {
  Bounds bounds = kernel.arguments[position].bounds;
  if (bounds == Bounds::kFitsSelf) {
    return check_fits(value.toScalar(), self.toTensor().scalar_type());
  }
  if (bounds == Bounds::kFitsResult) {
    return check_fits(value.toScalar(), at::result_type(self.toTensor(), value.toScalar()));
  }
  if (value.isComplexDouble()) return;
  double number = value.toScalar().toDouble();
  TORCH_CHECK(within(number, bounds), kernel.name, " expects ",
              kernel.op.schema().arguments()[position].name(), " ",
              kWords[static_cast<size_t>(bounds)], ", but found ", number);
}

void check_range(const OpKernel& kernel, const c10::IValue& from, const c10::IValue& to) {
  if (from.isInt() && to.isInt()) {
    TORCH_CHECK(from.toInt() < to.toInt(), kernel.name,
                " expects 'from' to be less than 'to', but got from=", from.toInt(),
                " >= to=", to.toInt());
  } else if (from.isDouble() && to.isDouble()) {
    TORCH_CHECK(from.toDouble() <= to.toDouble(), kernel.name,
                " expects to return a [from, to) range, but found from=", from.toDouble(),
                " > to=", to.toDouble());
  }
}

}  // namespace

Bounds to_bounds(const std::string& words) {
  for (size_t i = 0; i < kWords.size(); ++i) {
    if (words == kWords[i]) return static_cast<Bounds>(i);
  }
  TORCH_CHECK(false, "unknown bounds: ", words);
}

void check_numbers(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  if (!kernel.bounded) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (kernel.arguments[i].bounds == Bounds::kNone || arguments[i].isNone()) continue;
    check_number(kernel, i, arguments[i], arguments[0]);
  }
  if (kernel.from >= 0 && kernel.to >= 0) {
    check_range(kernel, arguments[kernel.from], arguments[kernel.to]);
  }
}

}  // namespace torch_tpu
