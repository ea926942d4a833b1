// See host_kernels.h.
//
// Arguments arrive as words, one for each argument of the schema, separated by blanks:
//
//   t            the next operand (its only element, where the schema wants a number)
//   n            None
//   b1  i-5      bool, int
//   f0x1.8p+0    float, in hexadecimal      c0x1p+0,0x0p+0  complex
//   s6162        string, bytes in hexadecimal
//   yfloat32     dtype
//   d            the device, which is the CPU
//   [ w w ]      list of words
//
// `results` has one character for each tensor that the operator returns: 1 if the program wants it,
// else 0. The shape of an unwanted one may depend on data. With `finite` = "1", infs and NaNs in
// the operands are refused: some LAPACK routines do not survive them.
#include "host_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdlib>

#include "dtype.h"

namespace torch_tpu {

namespace {

constexpr std::string_view kMark = "torch_tpu.aten[";

c10::ScalarType scalar_type(pjrt::ElementType type) {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    auto dtype = static_cast<c10::ScalarType>(i);
    if (element_type_or_invalid(dtype) == type) return dtype;
  }
  TORCH_CHECK(false, "torch has no dtype for an operand of a host kernel");
}

at::Tensor as_tensor(const pjrt::HostArray& array) {
  c10::IntArrayRef sizes(array.dims.data(), array.dims.size());
  return at::from_blob(array.data, sizes, at::TensorOptions(scalar_type(array.type)));
}

// Reads the words of one call against the types of the schema.
class Reader {
 public:
  Reader(std::string_view text, const std::vector<pjrt::HostArray>& operands)
      : text_(text), operands_(operands) {}

  c10::IValue argument(const c10::Type& type) { return value(next(), type); }

  void finish() {
    TORCH_CHECK(next().empty() && operand_ == operands_.size(),
                "the arguments of a host kernel do not fit its schema");
  }

 private:
  std::string next() {
    size_t start = text_.find_first_not_of(' ', at_);
    if (start == std::string_view::npos) return {};
    at_ = std::min(text_.find(' ', start), text_.size());
    return std::string(text_.substr(start, at_ - start));
  }

  c10::IValue value(const std::string& word, const c10::Type& type) {
    if (const auto* optional = type.castRaw<c10::OptionalType>()) {
      return word == "n" ? c10::IValue() : value(word, *optional->getElementType());
    }
    TORCH_CHECK(!word.empty(), "a host kernel is given too few arguments");
    std::string rest = word.substr(1);
    switch (word[0]) {
      case 't':
        return operand(type);
      case 'n':
        return {};
      case '[':
        return list(type);
      case 'b':
        return rest == "1";
      case 'i':
        return integer(rest, type);
      case 'f':
        return std::strtod(rest.c_str(), nullptr);
      case 'c':
        return complex(rest);
      case 's':
        return unhex(rest);
      case 'y':
        return dtype(rest);
      case 'd':
        return c10::Device(c10::kCPU);
      default:
        TORCH_CHECK(false, "a host kernel cannot read the argument ", word);
    }
  }

  c10::IValue operand(const c10::Type& type) {
    TORCH_CHECK(operand_ < operands_.size(), "a host kernel is given too few operands");
    at::Tensor tensor = as_tensor(operands_[operand_++]);
    if (type.kind() == c10::TypeKind::TensorType) return tensor;
    c10::Scalar number = tensor.item();
    if (type.kind() == c10::TypeKind::FloatType) return number.toDouble();
    if (type.kind() == c10::TypeKind::IntType) return number.toLong();
    return number;
  }

  c10::IValue list(const c10::Type& type) {
    const auto* whole = type.castRaw<c10::ListType>();
    TORCH_CHECK(whole != nullptr, "a host kernel is given a list where its schema has ",
                type.str());
    c10::impl::GenericList result(whole->getElementType());
    for (std::string word = next(); word != "]"; word = next()) {
      result.push_back(value(word, *whole->getElementType()));
    }
    return result;
  }

  static c10::IValue integer(const std::string& text, const c10::Type& type) {
    int64_t number = std::strtoll(text.c_str(), nullptr, 10);
    if (type.kind() == c10::TypeKind::FloatType) return static_cast<double>(number);
    return number;
  }

  static c10::IValue complex(const std::string& text) {
    size_t comma = text.find(',');
    TORCH_CHECK(comma != std::string::npos, "a host kernel cannot read the number ", text);
    return c10::complex<double>(std::strtod(text.c_str(), nullptr),
                                std::strtod(text.c_str() + comma + 1, nullptr));
  }

  static c10::IValue dtype(const std::string& name) {
    const auto& dtypes = c10::getStringToDtypeMap();
    auto found = dtypes.find(name);
    TORCH_CHECK(found != dtypes.end(), "a host kernel knows no dtype ", name);
    return static_cast<int64_t>(found->second);
  }

  static std::string unhex(const std::string& text) {
    std::string result;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
      result.push_back(static_cast<char>(std::strtol(text.substr(i, 2).c_str(), nullptr, 16)));
    }
    return result;
  }

  std::string_view text_;
  const std::vector<pjrt::HostArray>& operands_;
  size_t at_ = 0;
  size_t operand_ = 0;
};

// Copies what the operator returned into the results of the call, in order.
class Writer {
 public:
  Writer(const std::vector<pjrt::HostArray>& results, std::string_view wanted)
      : results_(results), wanted_(wanted) {}

  void write(const c10::IValue& value) {
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) write_tensor(tensor);
    } else {
      TORCH_CHECK(value.isTensor(), "a host kernel returned a ", value.tagKind());
      write_tensor(value.toTensor());
    }
  }

  void finish() const {
    TORCH_CHECK(seen_ == wanted_.size() && next_ == results_.size(), "gives ", seen_,
                " results, the program expects ", wanted_.size());
  }

 private:
  void write_tensor(const at::Tensor& tensor) {
    TORCH_CHECK(seen_ < wanted_.size(), "gives more results than the program expects");
    if (wanted_[seen_++] != '1') return;
    TORCH_CHECK(next_ < results_.size() && tensor.defined(), "lacks result ", seen_ - 1);
    at::Tensor result = as_tensor(results_[next_]);
    TORCH_CHECK(result.sizes() == tensor.sizes() && result.dtype() == tensor.dtype(), "result ",
                seen_ - 1, " is ", tensor.sizes(), " ", tensor.dtype(), ", the program expects ",
                result.sizes(), " ", result.dtype());
    result.copy_(tensor);
    ++next_;
  }

  const std::vector<pjrt::HostArray>& results_;
  std::string_view wanted_;
  size_t seen_ = 0;
  size_t next_ = 0;
};

void check_finite(const pjrt::HostCall& call) {
  for (const pjrt::HostArray& operand : call.operands) {
    TORCH_CHECK(at::isfinite(as_tensor(operand)).all().item<bool>(),
                "input tensor should not contain infs or NaNs.");
  }
}

void call_operator(const std::string& name, const pjrt::HostCall& call) {
  size_t dot = name.find('.');
  bool plain = dot == std::string::npos;
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      name.substr(0, dot).c_str(), plain ? "" : name.substr(dot + 1).c_str());
  const c10::FunctionSchema& schema = op.schema();
  TORCH_CHECK(!schema.is_mutable(), "writes its arguments and cannot be a host kernel");
  // A program may run on the thread that started it: nothing of what that thread has switched on
  // (modes, autograd, autocast) may reach the kernel.
  c10::impl::ForceDispatchKeyGuard plain_cpu(
      c10::default_included_set,
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  if (call.attribute("finite") == "1") check_finite(call);
  Reader reader(call.attribute("arguments"), call.operands);
  torch::jit::Stack stack;
  for (const c10::Argument& argument : schema.arguments()) {
    stack.push_back(reader.argument(*argument.type()));
  }
  reader.finish();
  op.callBoxed(stack);
  Writer writer(call.results, call.attribute("results"));
  for (const c10::IValue& value : stack) writer.write(value);
  writer.finish();
}

const char* kind(const c10::Error& error) {
  if (dynamic_cast<const c10::LinAlgError*>(&error)) return "LinAlgError";
  if (dynamic_cast<const c10::IndexError*>(&error)) return "IndexError";
  if (dynamic_cast<const c10::ValueError*>(&error)) return "ValueError";
  if (dynamic_cast<const c10::TypeError*>(&error)) return "TypeError";
  if (dynamic_cast<const c10::NotImplementedError*>(&error)) return "NotImplementedError";
  return "RuntimeError";
}

[[noreturn]] void fail(const char* kind, const std::string& name, const std::string& text) {
  throw std::runtime_error(std::string(kMark) + kind + "] " + name + ": " + text);
}

}  // namespace

void run_host_kernel(const pjrt::HostCall& call) {
  std::string name(call.attribute("operator"));
  try {
    call_operator(name, call);
  } catch (const c10::Error& error) {
    fail(kind(error), name, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail("RuntimeError", name, error.what());
  }
}

void throw_host_error(const std::string& message) {
  size_t start = message.find(kMark);
  if (start == std::string::npos) return;
  size_t end = message.find("] ", start);
  if (end == std::string::npos) return;
  std::string kind = message.substr(start + kMark.size(), end - start - kMark.size());
  // Without the name of the PJRT call that brought the error back.
  size_t tail = message.rfind(" (in PJRT_");
  std::string text = message.substr(end + 2, tail == std::string::npos ? tail : tail - end - 2);
  TORCH_CHECK_LINALG(kind != "LinAlgError", text);
  TORCH_CHECK_INDEX(kind != "IndexError", text);
  TORCH_CHECK_VALUE(kind != "ValueError", text);
  TORCH_CHECK_TYPE(kind != "TypeError", text);
  TORCH_CHECK_NOT_IMPLEMENTED(kind != "NotImplementedError", text);
  TORCH_CHECK(false, text);
}

}  // namespace torch_tpu
