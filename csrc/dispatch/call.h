// The kernel behind every operator: what the core knows of an overload, and the call itself.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "entry.h"

namespace torch_tpu {

// What a run-time number must be; the words are those of Rule.bounds.
enum class Bounds : uint8_t {
  kNone,
  kPositive,      // "> 0"
  kNotNegative,   // ">= 0"
  kOpenUnit,      // "in (0, 1)"
  kUnit,          // "in [0, 1]"
  kFitsSelf,      // "fits self"
  kFitsResult,    // "fits result"
  kIntegerPower,  // "integer power"
};

// Which overlap of what is written (in place or as out=) with what is read is refused.
enum class Overlap : uint8_t { kFree, kPartial, kAny };

// How one argument takes part in a call.
enum class Role : uint8_t {
  kRead,         // Tensor, Tensor?, Tensor[] or Tensor?[]: contents are operands
  kOverwritten,  // Tensor the operator writes without reading (`fill_`)
  kOut,          // Tensor or Tensor[] given as out=
  kNumber,       // Scalar, float or int passed at run time
  kStatic,       // anything that is part of the key by value
  kGenerator,    // random generator
};

struct ArgumentSpec {
  Role role = Role::kStatic;
  bool host = false;                // may be a CPU tensor of any shape
  std::vector<double> specialized;  // run-time numbers that are static after all
  Bounds bounds = Bounds::kNone;    // what a run-time number must be

  bool is_specialized(const c10::IValue& value) const;
};

// Where the results of a call go, by the overload's schema.
enum class Variant : uint8_t { kFunctional, kInplace, kOut };

struct OpKernel {
  explicit OpKernel(c10::OperatorHandle handle) : op(std::move(handle)) {}

  c10::OperatorHandle op;
  std::string name;        // this overload
  std::string functional;  // the overload whose rule serves it
  Variant variant = Variant::kFunctional;
  std::vector<ArgumentSpec> arguments;
  std::vector<int32_t> targets;  // arguments that results are written to, after new results
  size_t new_results = 0;        // results that become new tensors
  Overlap overlap = Overlap::kFree;
  bool random = false;
  int32_t from = -1;  // of a random operator: the arguments that bound its draws
  int32_t to = -1;
  bool bounded = false;          // `check_numbers` has something to check
  bool range = false;            // start, end and step only decide a length, which is in the key
  bool matmul = false;           // the key includes the float32 matmul precision
  std::shared_ptr<void> python;  // a Python callable that runs every call
  std::shared_ptr<void> masked;  // one that runs calls whose `host` arguments include a mask
  Cache cache;

  void call(torch::jit::Stack* stack);
  void run(torch::jit::Stack* stack);  // the call without the checks of Debug
};

// The kernel that serves `op` although no rule was registered for it: decomposition or CPU
// fallback.
OpKernel& fallback_kernel(const c10::OperatorHandle& op);

// Moves CPU index tensors to the device, finds the device of the call, builds key and operands.
struct CallState {
  int device = -1;
  Key key;
  Operands operands;

  CallState(OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments);

 private:
  void add(const OpKernel& kernel, const ArgumentSpec& spec, const c10::IValue& value);
  void add_tensor(const OpKernel& kernel, const at::Tensor& tensor);
  void add_view(const at::Tensor& tensor, c10::ArrayRef<int64_t> dims);
  void add_number(const ArgumentSpec& spec, const c10::IValue& value);
  void add_target(Role role, const at::Tensor& tensor);
  void add_static(const c10::IValue& value);
  void add_range(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments);
};

// Calls `visit` on the tensor, or on every element of the list of (optional) tensors, in `value`.
template <class Visit>
void each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      visit(element.isTensor() ? element.toTensor() : at::Tensor());
    }
  }
}

// How a tensor argument takes part in a call.
enum class TensorKind { kUndefined, kEmpty, kHostScalar, kDevice };
TensorKind kind_of(const at::Tensor& tensor);

}  // namespace torch_tpu
