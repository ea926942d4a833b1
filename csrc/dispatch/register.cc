// From rules to dispatcher registrations: finds the overloads that one rule serves by their
// schemas, works out the role of every argument, and registers one boxed kernel for each.
#include "register.h"

#include <torch/library.h>

#include <algorithm>
#include <unordered_set>

#include "miss.h"
#include "numbers.h"
#include "overlap.h"

namespace torch_tpu {

namespace {

using c10::FunctionSchema;

std::mutex& kernels_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::unordered_map<std::string, std::unique_ptr<OpKernel>>& kernels() {
  static auto* map = new std::unordered_map<std::string, std::unique_ptr<OpKernel>>;
  return *map;
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// All overloads by base name ("aten::add" → add.Tensor, add.out, …).
const std::vector<c10::OperatorName>& overloads(const std::string& base) {
  static auto* index = [] {
    auto* map = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (auto& name : c10::Dispatcher::singleton().getAllOpNames())
      (*map)[name.name].push_back(name);
    return map;
  }();
  static const std::vector<c10::OperatorName> none;
  auto it = index->find(base);
  return it == index->end() ? none : it->second;
}

std::optional<c10::OperatorHandle> find_schema(const std::string& name) {
  auto dot = name.find('.');
  c10::OperatorName key(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchema(key);
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool describes_result(const std::string& name) {
  static const std::unordered_set<std::string> names{"dtype", "layout", "device", "pin_memory",
                                                     "memory_format"};
  return names.count(name) > 0;
}

// Whether `candidate` computes what `functional` does: the same arguments, apart from those that
// only describe a new result, with its written ones counted (in-place) or left out (out=).
bool same_arguments(const FunctionSchema& functional, const FunctionSchema& candidate, bool out) {
  std::vector<const c10::Argument*> theirs;
  for (const auto& argument : candidate.arguments()) {
    if (!(out && is_written(argument))) theirs.push_back(&argument);
  }
  size_t next = 0;
  for (const auto& argument : functional.arguments()) {
    bool same = next < theirs.size() && theirs[next]->name() == argument.name() &&
                *theirs[next]->type() == *argument.type();
    if (same) {
      ++next;
    } else if (!describes_result(argument.name())) {
      return false;
    }
  }
  return next == theirs.size();
}

size_t written_count(const FunctionSchema& schema) {
  return static_cast<size_t>(std::count_if(schema.arguments().begin(), schema.arguments().end(),
                                           [](const auto& a) { return is_written(a); }));
}

bool out_variant_of(const FunctionSchema& functional, const FunctionSchema& candidate) {
  if (written_count(candidate) == 0 || written_count(candidate) != functional.returns().size() ||
      !same_arguments(functional, candidate, true)) {
    return false;
  }
  size_t inputs = candidate.arguments().size() - written_count(candidate);
  if (functional.arguments().size() == inputs) return true;
  // The out= form lacks arguments that describe the result. It is ours only if no other overload
  // has exactly its arguments (norm.out belongs to norm.ScalarOpt_dim, not to …_dim_dtype).
  for (const auto& name : overloads(functional.name())) {
    auto other = c10::Dispatcher::singleton().findSchema(name);
    if (other && written_count(other->schema()) == 0 &&
        other->schema().arguments().size() == inputs &&
        same_arguments(other->schema(), candidate, true)) {
      return false;
    }
  }
  return true;
}

bool is_tensor_type(const c10::Type& type) {
  auto text = type.annotation_str();
  return text.find("Tensor") != std::string::npos;
}

bool is_number_type(const c10::Type& type) {
  // Scalar, Optional[Scalar], List[Scalar]
  return type.annotation_str().find("number") != std::string::npos ||
         type.annotation_str().find("Scalar") != std::string::npos ||
         type.annotation_str().find("Union[complex, float, int]") != std::string::npos;
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

Role role_of(const c10::Argument& argument, Variant variant, const RuleOptions& options) {
  const std::string& name = argument.name();
  if (argument.type()->annotation_str().find("Generator") != std::string::npos) {
    return Role::kGenerator;
  }
  if (is_tensor_type(*argument.type())) {
    if (variant == Variant::kOut && is_written(argument)) return Role::kOut;
    bool overwritten = options.overwrites && name == "self";
    return overwritten ? Role::kOverwritten : Role::kRead;
  }
  if (contains(options.fixed, name)) return Role::kStatic;
  if (contains(options.runtime, name)) return Role::kNumber;
  return is_number_type(*argument.type()) ? Role::kNumber : Role::kStatic;
}

std::unique_ptr<OpKernel> make_kernel(const c10::OperatorHandle& op, Variant variant,
                                      const RuleOptions& options) {
  auto kernel = std::make_unique<OpKernel>(op);
  kernel->name = full_name(op.operator_name());
  kernel->functional = options.functional;
  kernel->variant = variant;
  kernel->overlap = to_overlap(options.overlap);
  kernel->random = options.random;
  kernel->range = options.range;
  kernel->matmul = options.matmul;
  kernel->python = options.procedure;
  kernel->masked = options.masked;
  const auto& schema = op.schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    ArgumentSpec spec;
    spec.role = role_of(argument, variant, options);
    spec.host = contains(options.host, argument.name());
    auto bounds = options.bounds.find(argument.name());
    if (bounds != options.bounds.end() && spec.role == Role::kNumber) {
      spec.bounds = to_bounds(bounds->second);
      kernel->bounded = true;
    }
    auto special = options.specialized.find(argument.name());
    if (special != options.specialized.end()) spec.specialized = special->second;
    if (options.procedure && spec.role == Role::kNumber) spec.role = Role::kStatic;
    if (options.random && argument.name() == "from") kernel->from = static_cast<int32_t>(i);
    if (options.random && argument.name() == "to") kernel->to = static_cast<int32_t>(i);
    kernel->bounded |= kernel->to >= 0;
    kernel->arguments.push_back(std::move(spec));
  }
  for (const auto& result : schema.returns()) {
    bool written = result.alias_info() != nullptr && result.alias_info()->isWrite();
    if (!written) ++kernel->new_results;
  }
  // Explicit writes come first: an operator that has them lists all it mutates.
  for (const auto& name : options.writes) {
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      if (schema.arguments()[i].name() == name) kernel->targets.push_back(static_cast<int32_t>(i));
    }
  }
  if (variant != Variant::kFunctional) {
    std::vector<int32_t> written;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      if (is_written(schema.arguments()[i]) &&
          !contains(options.writes, schema.arguments()[i].name())) {
        written.push_back(static_cast<int32_t>(i));
      }
    }
    kernel->targets.insert(kernel->targets.begin(), written.begin(), written.end());
  }
  return kernel;
}

struct BoxedKernel final : c10::OperatorKernel {
  explicit BoxedKernel(OpKernel* kernel) : kernel_(kernel) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    kernel_->call(stack);
  }
  OpKernel* kernel_;
};

torch::Library& library() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten",
                                         c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  return *aten;
}

std::string add_kernel(std::unique_ptr<OpKernel> kernel) {
  std::string name = kernel->name;
  OpKernel* pointer = kernel.get();
  {
    std::lock_guard guard(kernels_mutex());
    auto [it, fresh] = kernels().try_emplace(name, std::move(kernel));
    TORCH_CHECK(fresh, name, " is served by two rules: ", it->second->functional, " and ",
                pointer->functional);
  }
  // These also serve host copies and sparse gradients: csrc/device/transfer.cc and sparse.cc own
  // them and call this kernel.
  if (name == "aten::copy_" || name == "aten::_foreach_copy_" ||
      name == "aten::_embedding_bag_backward") {
    return name;
  }
  std::string local = name.substr(name.find("::") + 2);
  library().impl(local.c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(pointer)));
  return name;
}

}  // namespace

std::vector<std::string> register_rule(const RuleOptions& options) {
  auto functional = find_schema(options.functional);
  TORCH_CHECK(functional.has_value(), options.functional, " does not exist in this PyTorch");
  // Some composites have device kernels too, which autograd formulas call directly (silu_backward).
  TORCH_CHECK(!functional->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
                  functional->hasKernelForDispatchKey(c10::DispatchKey::CPU),
              options.functional, " is composite: a rule would cut it off from autograd");
  std::vector<std::string> names;
  const FunctionSchema& schema = functional->schema();
  bool mutating = written_count(schema) > 0;
  names.push_back(add_kernel(
      make_kernel(*functional, mutating ? Variant::kInplace : Variant::kFunctional, options)));
  if (mutating) return names;

  const std::string& base = schema.name();
  for (const auto& name : overloads(base)) {
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op && out_variant_of(schema, op->schema())) {
      // A rule of its own for the out= form comes before what follows from the functional one.
      OpKernel* own = find_kernel(full_name(name));
      if (own != nullptr && own->functional == own->name) continue;
      names.push_back(add_kernel(make_kernel(*op, Variant::kOut, options)));
    }
  }
  if (!options.inplace.empty()) {
    auto op = find_schema(options.inplace);
    TORCH_CHECK(op.has_value(), options.inplace, " does not exist in this PyTorch");
    names.push_back(add_kernel(make_kernel(*op, Variant::kInplace, options)));
    return names;
  }
  for (const auto& name : overloads(base + "_")) {
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op && written_count(op->schema()) > 0 && same_arguments(schema, op->schema(), false) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      names.push_back(add_kernel(make_kernel(*op, Variant::kInplace, options)));
    }
  }
  return names;
}

std::unique_ptr<OpKernel> make_graph_kernel(const RuleOptions& options) {
  auto schema = find_schema("torch_tpu::graph");
  TORCH_CHECK(schema.has_value(), "torch_tpu::graph is not defined");
  return make_kernel(*schema, Variant::kInplace, options);
}

OpKernel* find_kernel(const std::string& name) {
  std::lock_guard guard(kernels_mutex());
  auto it = kernels().find(name);
  return it == kernels().end() ? nullptr : it->second.get();
}

namespace {

// The functional overload that an in-place or out= overload computes, by schema; empty if none.
std::string functional_of(const c10::OperatorHandle& op, Variant& variant) {
  const FunctionSchema& schema = op.schema();
  std::string base = schema.name();
  variant = Variant::kFunctional;
  if (written_count(schema) == 0) return full_name(op.operator_name());
  for (const auto& name : overloads(base)) {
    auto other = c10::Dispatcher::singleton().findSchema(name);
    if (other && written_count(other->schema()) == 0 && out_variant_of(other->schema(), schema)) {
      variant = Variant::kOut;
      return full_name(name);
    }
  }
  variant = Variant::kInplace;
  if (base.back() == '_') {
    for (const auto& name : overloads(base.substr(0, base.size() - 1))) {
      auto other = c10::Dispatcher::singleton().findSchema(name);
      if (other && written_count(other->schema()) == 0 &&
          same_arguments(other->schema(), schema, false)) {
        return full_name(name);
      }
    }
  }
  bool out = std::any_of(schema.arguments().begin(), schema.arguments().end(),
                         [](const auto& a) { return a.is_out(); });
  if (out) variant = Variant::kOut;
  return "";
}

}  // namespace

OpKernel& fallback_kernel(const c10::OperatorHandle& op) {
  std::string name = full_name(op.operator_name());
  std::lock_guard guard(kernels_mutex());
  auto it = kernels().find(name);
  if (it != kernels().end()) return *it->second;
  RuleOptions options;
  Variant variant;
  options.functional = functional_of(op, variant);
  options.matmul = true;  // what it is taken apart into may multiply matrices
  auto kernel = make_kernel(op, variant, options);
  // Decompositions are traced with the numbers of the call, so all of them belong to the key.
  for (auto& spec : kernel->arguments) {
    if (spec.role == Role::kNumber) spec.role = Role::kStatic;
  }
  return *kernels().emplace(name, std::move(kernel)).first->second;
}

namespace {

void run_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  fallback_kernel(op).call(stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_fallback>());
}

}  // namespace

}  // namespace torch_tpu
