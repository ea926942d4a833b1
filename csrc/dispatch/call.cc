// The life of an operator call: key, look-up, execution, results. Reads from the bottom up: `call`
// is the story, what stands above it are its steps.
#include "call.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cmath>

#include "../device/generator.h"
#include "../device/history.h"
#include "debug.h"
#include "deferred.h"
#include "internal.h"
#include "miss.h"
#include "numbers.h"
#include "overlap.h"
#include "precision.h"

namespace torch_tpu {

namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;

// First word of every part of a key, so that parts cannot be mistaken for one another.
enum Tag : int64_t {
  kUndefinedTag = 1,
  kEmptyTag,
  kHostScalarTag,
  kWholeTag,
  kReshapedTag,
  kViewTag,
  kListTag,
  kNumberTag,
  kSpecializedTag,
  kOutTag,
  kOverwrittenTag,
  kStaticTag,
  kLazyTag,
};

int64_t head(Tag tag, c10::ScalarType dtype, int64_t rank, int64_t extra = 0) {
  return tag | static_cast<int64_t>(dtype) << 8 | rank << 16 | extra << 32;
}

[[noreturn]] void wrong_device(const OpKernel& kernel, const at::Tensor& tensor, int device) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              device < 0 ? current_device() : device, " and ", tensor.device(), "! (in ",
              kernel.name, ", which got a tensor of shape ", tensor.sizes(), " there)");
}

bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == c10::ScalarType::Bool ||
                              tensor.scalar_type() == c10::ScalarType::Byte);
}

// Index tensors may be on the CPU, as on cuda; they are moved before the call.
void move_to_device(c10::IValue& value, int device) {
  auto move = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_cpu()) return tensor;
    return tensor.to(c10::Device(kTpu, static_cast<c10::DeviceIndex>(device)));
  };
  if (value.isTensor()) {
    value = move(value.toTensor());
  } else if (value.isTensorList()) {
    auto list = value.toTensorList();
    for (size_t i = 0; i < list.size(); ++i) list.set(i, move(list.get(i)));
  } else if (value.isOptionalTensorList()) {
    auto list = value.toOptionalTensorList();
    for (size_t i = 0; i < list.size(); ++i) {
      std::optional<at::Tensor> element = list.get(i);
      if (element.has_value()) list.set(i, move(*element));
    }
  }
}

// Bytes and key kind of a run-time number: 0 int, 1 double, 2 bool, 3 complex, 4 beyond int64.
Operand number_operand(const c10::IValue& value, int64_t& kind) {
  using E = pjrt::ElementType;
  if (value.isInt()) {
    kind = 0;
    return Operand::of_scalar(E::kS64, value.toInt());
  }
  if (value.isBool()) {
    kind = 2;
    return Operand::of_scalar(E::kPred, value.toBool());
  }
  if (value.isUnsigned()) {
    kind = 4;
    return Operand::of_scalar(E::kU64, value.toUInt());
  }
  if (value.isComplexDouble()) {
    kind = 3;
    return Operand::of_scalar(E::kC128, value.toComplexDouble());
  }
  kind = 1;
  return Operand::of_scalar(E::kF64, value.toDouble());
}

}  // namespace

bool ArgumentSpec::is_specialized(const c10::IValue& value) const {
  if (specialized.empty() || value.isNone() || value.isComplexDouble()) return false;
  double number = value.toScalar().toDouble();
  return std::find(specialized.begin(), specialized.end(), number) != specialized.end();
}

TensorKind kind_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return TensorKind::kUndefined;
  if (tensor.device().type() == kTpu) {
    return tensor.numel() == 0 ? TensorKind::kEmpty : TensorKind::kDevice;
  }
  return TensorKind::kHostScalar;
}

// ---- key and operands --------------------------------------------------------------------------

void CallState::add_view(const at::Tensor& tensor, c10::ArrayRef<int64_t> dims) {
  ViewPlan plan = plan_view(dims, tensor.sizes(), tensor.strides(), tensor.storage_offset());
  key.push(head(kViewTag, tensor.scalar_type(), static_cast<int64_t>(dims.size())));
  key.push(dims);
  push_plan(key, plan, tensor);
  operands.push_back(Operand::of_words(plan.starts));
}

void CallState::add_tensor(const OpKernel& kernel, const at::Tensor& tensor) {
  TensorKind kind = kind_of(tensor);
  if (kind == TensorKind::kUndefined) {
    key.push(kUndefinedTag);
    return;
  }
  c10::ScalarType dtype = tensor.scalar_type();
  if (kind == TensorKind::kHostScalar) {
    if (tensor.dim() != 0 || !tensor.device().is_cpu()) wrong_device(kernel, tensor, device);
    bool weak = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    key.push(head(kHostScalarTag, dtype, 0, weak));
    at::Tensor plain = tensor.is_conj() || tensor.is_neg() ? tensor.clone() : tensor;
    operands.push_back(
        Operand::of_bytes(element_type(dtype), -1, plain.const_data_ptr(), plain.itemsize()));
    return;
  }
  if (tensor.device().index() != device) wrong_device(kernel, tensor, device);
  if (kind == TensorKind::kEmpty) {
    key.push(head(kEmptyTag, dtype, tensor.dim()));
    key.push(tensor.sizes());
    return;
  }
  // Most operators see lazy conjugates and negations resolved; those that do not read through them.
  if (tensor.is_conj() || tensor.is_neg()) {
    key.push(head(kLazyTag, dtype, tensor.is_conj(), tensor.is_neg()));
  }
  bool whole = covers_storage(tensor);
  if (whole) {
    Cell* cell = cell_of(tensor);
    CellLock guard(*cell);
    if (cell->buffer && cell->dtype == dtype &&
        c10::ArrayRef<int64_t>(cell->dims) == tensor.sizes()) {
      key.push(head(kWholeTag, dtype, tensor.dim()));
      key.push(tensor.sizes());
      operands.push_back(Operand::of_array(cell->buffer, cell));
      return;
    }
  }
  Dims dims;
  operands.push_back(Operand::of_array(readable_array(tensor, &dims)));
  if (!whole) {
    add_view(tensor, dims);
  } else if (c10::ArrayRef<int64_t>(dims) == tensor.sizes()) {
    key.push(head(kWholeTag, dtype, tensor.dim()));
    key.push(tensor.sizes());
  } else {
    key.push(head(kReshapedTag, dtype, tensor.dim(), static_cast<int64_t>(dims.size())));
    key.push(tensor.sizes());
    key.push(dims);
  }
}

void CallState::add_number(const ArgumentSpec& spec, const c10::IValue& value) {
  if (value.isNone()) {
    add_static(value);
    return;
  }
  if (spec.is_specialized(value)) {
    key.push(kSpecializedTag | static_cast<int64_t>(value.isDouble()) << 8 |
             static_cast<int64_t>(value.isBool()) << 9);
    key.push(value.toScalar().toDouble());
    return;
  }
  int64_t kind = 0;
  operands.push_back(number_operand(value, kind));
  key.push(kNumberTag | kind << 8);
}

void CallState::add_target(Role role, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    key.push(kUndefinedTag);
    return;
  }
  TORCH_CHECK(tensor.device().type() == kTpu,
              "Expected all tensors to be on the same device, but found "
              "at least two devices, tpu:",
              device, " and ", tensor.device(), "!");
  if (role == Role::kOut) {
    key.push(head(kOutTag, tensor.scalar_type(), 0));
    return;
  }
  key.push(head(kOverwrittenTag, tensor.scalar_type(), tensor.dim()));
  key.push(tensor.sizes());
}

void CallState::add_static(const c10::IValue& value) {
  auto push_list = [&](const auto& list, int64_t kind) {
    key.push(head(kStaticTag, c10::ScalarType::Byte, kind, static_cast<int64_t>(list.size())));
    for (const auto& element : list) key.push(element);
  };
  auto push_one = [&](int64_t kind, auto word) {
    key.push(kStaticTag | kind << 16);
    key.push(word);
  };
  if (value.isNone()) {
    key.push(kStaticTag);
  } else if (value.isInt()) {
    push_one(1, value.toInt());
  } else if (value.isBool()) {
    push_one(2, static_cast<int64_t>(value.toBool()));
  } else if (value.isDouble()) {
    push_one(3, value.toDouble());
  } else if (value.isUnsigned()) {
    push_one(10, static_cast<int64_t>(value.toUInt()));
  } else if (value.isString()) {
    push_one(4, value.toStringRef());
  } else if (value.isIntList()) {
    push_list(value.toIntVector(), 5);
  } else if (value.isBoolList()) {
    auto list = value.toBoolList();
    std::vector<int64_t> words;
    for (bool flag : list) words.push_back(flag);
    push_list(words, 6);
  } else if (value.isDoubleList()) {
    push_list(value.toDoubleVector(), 7);
  } else if (value.isDevice()) {
    push_one(8, static_cast<int64_t>(value.toDevice().index()));
  } else if (value.isComplexDouble()) {
    push_one(9, value.toComplexDouble().real());
    key.push(value.toComplexDouble().imag());
  } else if (value.isList()) {  // Scalar[] and the like
    auto list = value.toListRef();
    key.push(head(kListTag, c10::ScalarType::Byte, 1, static_cast<int64_t>(list.size())));
    for (const auto& element : list) add_static(element);
  } else {
    TORCH_CHECK(false, "an argument of type ", value.tagKind(), " is not supported on tpu");
  }
}

void CallState::add(const OpKernel& kernel, const ArgumentSpec& spec, const c10::IValue& value) {
  switch (spec.role) {
    case Role::kRead:
      if (value.isTensor()) {
        add_tensor(kernel, value.toTensor());
      } else if (value.isNone()) {
        key.push(kUndefinedTag);
      } else {
        size_t start = key.words().size();
        key.push(kListTag);
        each_tensor(value, [&](const at::Tensor& tensor) { add_tensor(kernel, tensor); });
        key.push(kListTag | static_cast<int64_t>(key.words().size() - start) << 16);
      }
      break;
    case Role::kOut:
    case Role::kOverwritten:
      each_tensor(value, [&](const at::Tensor& tensor) { add_target(spec.role, tensor); });
      break;
    case Role::kNumber:
      if (value.isList()) {
        auto list = value.toListRef();
        key.push(head(kListTag, c10::ScalarType::Byte, 2, static_cast<int64_t>(list.size())));
        for (const auto& element : list) add_number(spec, element);
      } else {
        add_number(spec, value);
      }
      break;
    case Role::kStatic:
      add_static(value);
      break;
    case Role::kGenerator:
      break;
  }
}

namespace {

int find_device(c10::ArrayRef<c10::IValue> arguments) {
  int found = -1;
  for (const auto& value : arguments) {
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (found < 0 && tensor.defined() && tensor.device().type() == kTpu) {
        found = tensor.device().index();
      }
    });
    if (found >= 0) return found;
  }
  for (const auto& value : arguments) {
    if (value.isDevice() && value.toDevice().type() == kTpu) {
      return checked_device(value.toDevice().index());
    }
  }
  return checked_device(-1);
}

}  // namespace

// The length of an arange as ATen computes it, once over doubles and once over integers: the
// result's dtype decides which of the two counts.
void CallState::add_range(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  double values[3] = {0, 0, 1};
  __int128 integers[3] = {0, 0, 1};
  const char* names[3] = {"start", "end", "step"};
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (int k = 0; k < 3; ++k) {
      if (kernel.op.schema().arguments()[i].name() != names[k]) continue;
      c10::Scalar number = arguments[i].toScalar();
      values[k] = number.toDouble();
      // Bounds that are no integers are refused by PyTorch before the integer length matters.
      bool fits = !number.isFloatingPoint() || std::abs(values[k]) < 9e18;
      integers[k] = !fits                      ? 0
                    : number.isFloatingPoint() ? static_cast<int64_t>(values[k])
                                               : number.toLong();
    }
  }
  key.push(std::ceil((values[1] - values[0]) / values[2]));
  __int128 step = integers[2] == 0 ? 1 : integers[2];
  __int128 sign = step > 0 ? 1 : -1;
  key.push(static_cast<int64_t>((integers[1] - integers[0] + step - sign) / step));
}

CallState::CallState(OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  device = find_device(arguments);
  // The default dtype decides what integers and Python numbers promote to.
  auto default_dtype = static_cast<int64_t>(c10::get_default_dtype_as_scalartype());
  key.push(device | default_dtype << 16);
  if (kernel.matmul) {
    key.push(static_cast<int64_t>(float32_matmul_precision()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) add(kernel, kernel.arguments[i], arguments[i]);
  if (kernel.range) add_range(kernel, arguments);
  check_numbers(kernel, arguments);
  if (kernel.random) {
    std::optional<at::Generator> generator;
    for (const auto& value : arguments) {
      if (value.isGenerator()) generator = value.toGenerator();
    }
    auto state = generator_of(generator, device).next();
    operands.push_back(Operand::of_bytes(pjrt::ElementType::kU64, 2, state.data(), sizeof state));
    operands.back().cached = false;
  }
}

// ---- results -----------------------------------------------------------------------------------

namespace {

using IValues = c10::SmallVector<c10::IValue, 4>;

// For people: all graphs are calls of one operator.
const std::string& name_of(const OpKernel& kernel, const Entry& entry) {
  return entry.label.empty() ? kernel.name : entry.label;
}

at::Tensor new_tensor(const OutputSpec& spec, pjrt::BufferRef array, int device) {
  if (!spec.defined) return {};
  return wrap(std::move(array), spec.dtype, spec.dims, spec.sizes, spec.strides, spec.nbytes,
              device);
}

void resize_out(const at::Tensor& tensor, const OutputSpec& spec) {
  if (tensor.sizes() == c10::ArrayRef<int64_t>(spec.sizes)) return;
  if (tensor.numel() != 0) {
    TORCH_WARN(
        "An output with one or more elements was resized since it had shape ", tensor.sizes(),
        ", which does not match the required output shape ", c10::ArrayRef<int64_t>(spec.sizes),
        ". This behavior is deprecated, and in a future PyTorch release outputs will not be "
        "resized unless they have zero elements. You can explicitly reuse an out tensor t by "
        "resizing it, inplace, to zero elements with t.resize_(0).");
  }
  resize_tensor(tensor, spec.sizes);
  // A result that is resized gets the strides the operator would have given a new one.
  if (!spec.strides.empty() && tensor.strides() != c10::ArrayRef<int64_t>(spec.strides)) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides);
  }
}

// Hands the results of a program out: new tensors first, then the written arguments.
class Results {
 public:
  Results(const OpKernel& kernel, const Entry& entry, c10::ArrayRef<c10::IValue> arguments,
          c10::ArrayRef<pjrt::BufferRef> arrays, int device)
      : kernel_(kernel), entry_(entry), arguments_(arguments), arrays_(arrays), device_(device) {}

  // New results, as the IValues to return in the order of the schema.
  IValues make() {
    IValues made;
    for (size_t i = 0; i < kernel_.new_results; ++i) {
      int32_t count = entry_.groups[group_++];
      if (count == kConstantGroup) {
        made.emplace_back(entry_.constants[constant_++]);
      } else if (count < 0) {
        made.emplace_back(take_new());
      } else {
        std::vector<at::Tensor> list;
        for (int32_t j = 0; j < count; ++j) list.push_back(take_new());
        made.emplace_back(std::move(list));
      }
    }
    return made;
  }

  // Whole storages first: that releases the cells this call has taken, before writing views may
  // wait for cells that other calls have taken.
  void write() {
    size_t group = group_;
    size_t output = output_;
    size_t array = array_;
    for (bool whole : {true, false}) {
      group_ = group;
      output_ = output;
      array_ = array;
      for (int32_t target : kernel_.targets) {
        ++group_;
        each_tensor(arguments_[target],
                    [&](const at::Tensor& tensor) { write_one(tensor, whole); });
      }
    }
  }

 private:
  at::Tensor take_new() {
    const OutputSpec& spec = entry_.outputs[output_++];
    pjrt::BufferRef array;
    if (spec.computed) array = arrays_[array_++];
    return guarded(name_of(kernel_, entry_).c_str(),
                   [&] { return new_tensor(spec, std::move(array), device_); });
  }

  void write_one(const at::Tensor& tensor, bool whole) {
    const OutputSpec& spec = entry_.outputs[output_++];
    if (!spec.defined) return;
    pjrt::BufferRef array;
    if (spec.computed) array = arrays_[array_++];
    if (!tensor.defined()) return;
    if (array && covers_storage(tensor) == whole) write_array(tensor, std::move(array));
  }

  const OpKernel& kernel_;
  const Entry& entry_;
  c10::ArrayRef<c10::IValue> arguments_;
  c10::ArrayRef<pjrt::BufferRef> arrays_;
  int device_;
  size_t group_ = 0;
  size_t output_ = 0;
  size_t array_ = 0;
  size_t constant_ = 0;
};

// Pushes the returns of the schema: arguments it aliases, or the next new result.
void push_returns(const OpKernel& kernel, torch::jit::Stack* stack, IValues made) {
  const auto& schema = kernel.op.schema();
  size_t count = schema.arguments().size();
  IValues returns;
  size_t next = 0;
  size_t aliased = 0;
  for (const auto& result : schema.returns()) {
    const auto* alias = result.alias_info();
    if (alias != nullptr && alias->isWrite()) {
      // Written results come back in the order of the written arguments.
      size_t seen = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto* written = schema.arguments()[i].alias_info();
        if (written == nullptr || !written->isWrite()) continue;
        if (seen++ == aliased) {
          returns.push_back((*stack)[stack->size() - count + i]);
          break;
        }
      }
      ++aliased;
    } else {
      returns.push_back(std::move(made[next++]));
    }
  }
  torch::jit::drop(*stack, count);
  for (auto& value : returns) stack->push_back(std::move(value));
}

// Results of a Python kernel go into out= or in-place arguments as copies.
void write_python_results(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments,
                          const std::vector<c10::IValue>& results) {
  for (size_t i = 0; i < kernel.targets.size() && i < results.size(); ++i) {
    if (!arguments[kernel.targets[i]].isTensor()) continue;
    const at::Tensor& target = arguments[kernel.targets[i]].toTensor();
    const at::Tensor& result = results[i].toTensor();
    if (!target.defined() || target.is_same(result)) continue;
    if (kernel.variant == Variant::kOut && target.sizes() != result.sizes()) {
      OutputSpec spec;
      spec.sizes.assign(result.sizes().begin(), result.sizes().end());
      if (result.is_non_overlapping_and_dense()) {
        spec.strides.assign(result.strides().begin(), result.strides().end());
      }
      resize_out(target, spec);
    }
    target.copy_(result);
  }
}

void run_python(OpKernel& kernel, const std::shared_ptr<void>& callable, torch::jit::Stack* stack) {
  size_t count = kernel.arguments.size();
  auto arguments = torch::jit::last(*stack, count);
  auto results = call_python(kernel, callable, arguments);
  if (kernel.new_results == 0) {
    write_python_results(kernel, torch::jit::last(*stack, count), results);
    results.clear();
  }
  TORCH_CHECK(results.size() >= kernel.new_results, kernel.name, ": its Python kernel returned ",
              results.size(), " results, not ", kernel.new_results);
  push_returns(kernel, stack, IValues(results.begin(), results.end()));
}

bool has_mask(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  bool found = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!kernel.arguments[i].host) continue;
    each_tensor(arguments[i], [&](const at::Tensor& tensor) { found |= is_mask(tensor); });
  }
  return found;
}

void resize_outs(const OpKernel& kernel, const Entry& entry, c10::ArrayRef<c10::IValue> arguments) {
  size_t output = 0;
  for (int32_t target : kernel.targets) {
    each_tensor(arguments[target], [&](const at::Tensor& tensor) {
      const OutputSpec& spec = entry.outputs[output++];
      if (spec.defined && tensor.defined()) resize_out(tensor, spec);
    });
  }
}

}  // namespace

// ---- the call ----------------------------------------------------------------------------------

void OpKernel::call(torch::jit::Stack* stack) {
  if (eager_mode() == EagerMode::kDebug) return call_in_debug(*this, stack);
  run(stack);
}

void OpKernel::run(torch::jit::Stack* stack) {
  CallScope scope;
  MakingLine line;
  if (python) return run_python(*this, python, stack);
  auto parameters = torch::jit::last(*stack, arguments.size());
  if (masked && has_mask(*this, parameters)) return run_python(*this, masked, stack);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].host) {
      move_to_device((*stack)[stack->size() - arguments.size() + i], find_device(parameters));
    }
  }

  CallState state(*this, parameters);
  const Entry* entry = cache.find(state.key);
  if (entry == nullptr) {
    entry = build_once(cache, state.key, [&] { return build_operator(*this, parameters); });
  }
  if (entry->python) return run_python(*this, entry->python, stack);

  if (variant == Variant::kOut) resize_outs(*this, *entry, parameters);
  check_overlap(*this, parameters);
  // Written arguments must be writable before anything runs.
  for (int32_t target : targets) {
    each_tensor(parameters[target], [](const at::Tensor& tensor) {
      if (tensor.defined() && !tensor.is_non_overlapping_and_dense()) check_writable(tensor);
    });
  }
  c10::SmallVector<pjrt::BufferRef, 4> arrays;
  TakenCells taken;
  if (entry->runs) {
    try {
      run_entry(*entry, state.operands, state.device, arrays, taken);
    } catch (const pjrt::Error& error) {
      rethrow(error, name_of(*this, *entry));
    }
  }
  Results results(*this, *entry, parameters, arrays, state.device);
  auto made = results.make();
  state.operands.clear();  // so that write-backs see arrays without other owners
  results.write();
  taken.dismiss();
  push_returns(*this, stack, std::move(made));
}

}  // namespace torch_tpu
