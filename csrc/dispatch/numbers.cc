// The words of Rule.bounds and what each demands. See numbers.h.
#include "numbers.h"

#include <ATen/ops/result_type.h>

#include <array>
#include <limits>

namespace torch_tpu {

namespace {

constexpr std::array<const char*, 8> kWords = {
    "", "> 0", ">= 0", "in (0, 1)", "in [0, 1]", "fits self", "fits result", "integer power"};

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
    TORCH_TPU_CASE(uint16_t, UInt16)
    TORCH_TPU_CASE(uint32_t, UInt32)
    TORCH_TPU_CASE(uint64_t, UInt64)
    default:
      break;
  }
#undef TORCH_TPU_CASE
}

// Of a number that has to suit `self`; returns whether `bounds` is of that kind.
bool check_suits(const OpKernel& kernel, Bounds bounds, const c10::IValue& value,
                 const at::Tensor& self) {
  if (bounds == Bounds::kFitsSelf) {
    check_fits(value.toScalar(), self.scalar_type());
    return true;
  }
  if (bounds == Bounds::kIntegerPower) {
    bool integers = c10::isIntegralType(self.scalar_type(), true) && value.isInt();
    TORCH_CHECK(!integers || value.toInt() >= 0,
                "Integers to negative integer powers are not allowed. (in ", kernel.name, ")");
  } else if (bounds != Bounds::kFitsResult) {
    return false;
  }
  check_fits(value.toScalar(), at::result_type(self, value.toScalar()));
  return true;
}

void check_number(const OpKernel& kernel, size_t position, const c10::IValue& value,
                  const c10::IValue& self) {
  Bounds bounds = kernel.arguments[position].bounds;
  if (self.isTensorList()) {
    // One number for all tensors of the list, or one for each.
    auto tensors = self.toTensorVector();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!value.isList()) {
        check_suits(kernel, bounds, value, tensors[i]);
      } else if (i < value.toListRef().size()) {
        check_suits(kernel, bounds, value.toListRef()[i], tensors[i]);
      }
    }
    return;
  }
  if (self.isTensor() && check_suits(kernel, bounds, value, self.toTensor())) return;
  if (value.isComplexDouble()) return;
  double number = value.toScalar().toDouble();
  TORCH_CHECK(within(number, bounds), kernel.name, " expects ",
              kernel.op.schema().arguments()[position].name(), " ",
              kWords[static_cast<size_t>(bounds)], ", but found ", number);
}

// Smallest and largest number of a dtype.
std::pair<double, double> limits(c10::ScalarType dtype) {
#define TORCH_TPU_CASE(type, name)                                    \
  case c10::ScalarType::name:                                         \
    return {static_cast<double>(std::numeric_limits<type>::lowest()), \
            static_cast<double>(std::numeric_limits<type>::max())};
  switch (dtype) {
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, TORCH_TPU_CASE)
    TORCH_TPU_CASE(uint16_t, UInt16)
    TORCH_TPU_CASE(uint32_t, UInt32)
    TORCH_TPU_CASE(uint64_t, UInt64)
    default:
      return {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  }
#undef TORCH_TPU_CASE
}

void check_inside(const OpKernel& kernel, double number, const char* what, c10::ScalarType dtype) {
  auto [least, most] = limits(dtype);
  TORCH_CHECK(number >= least && number <= most, kernel.name, ": ", what, " is out of bounds for ",
              dtype);
}

void check_integers(const OpKernel& kernel, int64_t from, int64_t to, c10::ScalarType dtype) {
  TORCH_CHECK(from < to, kernel.name, " expects 'from' to be less than 'to', but got from=", from,
              " >= to=", to);
  check_inside(kernel, static_cast<double>(from), "from", dtype);
  check_inside(kernel, static_cast<double>(to - 1), "to - 1", dtype);
}

void check_interval(const OpKernel& kernel, double from, double to, c10::ScalarType dtype) {
  check_inside(kernel, from, "from", dtype);
  check_inside(kernel, to, "to", dtype);
  TORCH_CHECK(from <= to, kernel.name,
              " expects to return a [from, to) range, but found from=", from, " > to=", to);
  TORCH_CHECK(to - from <= limits(dtype).second, kernel.name, " expects to - from to be at most ",
              limits(dtype).second, ", the largest ", dtype, ", but found from=", from,
              " and to=", to);
}

void check_range(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  if (!arguments[0].isTensor()) return;
  c10::ScalarType dtype = arguments[0].toTensor().scalar_type();
  const c10::IValue& to = arguments[kernel.to];
  if (to.isNone()) {
    auto from = static_cast<double>(arguments[kernel.from].toInt());
    check_inside(kernel, from, "from", dtype);
  } else if (to.isInt()) {
    int64_t from = kernel.from >= 0 ? arguments[kernel.from].toInt() : 0;
    check_integers(kernel, from, to.toInt(), dtype);
  } else if (to.isDouble() && !c10::isIntegralType(dtype, true)) {
    // Integers have no such distribution, which the rule says.
    check_interval(kernel, arguments[kernel.from].toDouble(), to.toDouble(),
                   c10::toRealValueType(dtype));
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
  if (kernel.to >= 0) check_range(kernel, arguments);
}

}  // namespace torch_tpu
