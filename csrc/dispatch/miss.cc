// Calls into Python on a miss: describes the arguments, receives the entry. See miss.h.
//
// Takes the GIL here and nowhere else on the way of an operator.
#include "miss.h"

#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <condition_variable>
#include <map>
#include <thread>

#include "call.h"
#include "deferred.h"
#include "executable_handle.h"
#include "internal.h"
#include "python.h"
#include "python_lock.h"
#include "region.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

// Keys being built, by cache and hash. A collision only makes a thread wait longer.
struct Building {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<const Cache*, uint64_t>, std::thread::id> owners;
};

Building& building() {
  static auto* instance = new Building;
  return *instance;
}

py::object dtype_object(c10::ScalarType dtype) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype)));
}

c10::ScalarType to_dtype(const py::handle& object) {
  TORCH_CHECK(THPDtype_Check(object.ptr()), "an entry needs a torch.dtype");
  return reinterpret_cast<THPDtype*>(object.ptr())->scalar_type;
}

py::tuple to_tuple(c10::ArrayRef<int64_t> values) {
  py::tuple result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = py::int_(values[i]);
  return result;
}

Dims to_dims(const py::handle& object) {
  Dims dims;
  for (const auto& item : py::reinterpret_borrow<py::sequence>(object)) {
    dims.push_back(item.cast<int64_t>());
  }
  return dims;
}

py::object describe_tensor(const at::Tensor& tensor) {
  switch (kind_of(tensor)) {
    case TensorKind::kUndefined:
      return py::none();
    case TensorKind::kEmpty:
      return py::make_tuple("empty", dtype_object(tensor.scalar_type()), to_tuple(tensor.sizes()),
                            to_tuple(tensor.strides()));
    case TensorKind::kHostScalar:
      return py::make_tuple("scalar", dtype_object(tensor.scalar_type()),
                            tensor.unsafeGetTensorImpl()->is_wrapped_number(), py::cast(tensor));
    case TensorKind::kDevice:
      break;
  }
  Dims dims;
  readable_array(tensor, &dims);
  py::object plan = py::none();
  if (!covers_storage(tensor)) {
    ViewPlan view = plan_view(dims, tensor.sizes(), tensor.strides(), tensor.storage_offset());
    plan = py::make_tuple(static_cast<int64_t>(view.kind), to_tuple(view.dims),
                          to_tuple(view.counts), to_tuple(view.steps), to_tuple(view.places),
                          static_cast<int64_t>(view.starts.size()));
  }
  return py::make_tuple("tensor", dtype_object(tensor.scalar_type()), to_tuple(tensor.sizes()),
                        to_tuple(tensor.strides()), to_tuple(dims), plan, tensor.is_conj(),
                        tensor.is_neg());
}

py::object describe_target(const at::Tensor& tensor) {
  if (!tensor.defined()) return py::none();
  return py::make_tuple("target", dtype_object(tensor.scalar_type()), to_tuple(tensor.sizes()),
                        to_tuple(tensor.strides()));
}

template <class One>
py::object describe_tensors(const c10::IValue& value, One&& one) {
  if (value.isNone()) return py::none();
  if (value.isTensor()) return one(value.toTensor());
  py::list list;
  each_tensor(value, [&](const at::Tensor& tensor) { list.append(one(tensor)); });
  return list;
}

py::object describe_number(const ArgumentSpec& spec, const c10::IValue& value) {
  py::object number = torch::jit::toPyObject(value);
  if (value.isNone() || spec.is_specialized(value)) return number;
  return py::make_tuple("number", number);
}

py::object describe(const ArgumentSpec& spec, const c10::IValue& value) {
  switch (spec.role) {
    case Role::kRead:
      return describe_tensors(value, describe_tensor);
    case Role::kOut:
    case Role::kOverwritten:
      return describe_tensors(value, describe_target);
    case Role::kNumber: {
      if (!value.isList()) return describe_number(spec, value);
      py::list list;
      for (const auto& element : value.toListRef()) list.append(describe_number(spec, element));
      return list;
    }
    case Role::kGenerator:
      return py::none();
    case Role::kStatic:
      break;
  }
  return torch::jit::toPyObject(value);
}

OutputSpec to_output(const py::handle& object) {
  OutputSpec spec;
  if (object.is_none()) {
    spec.defined = false;
    spec.computed = false;
    return spec;
  }
  auto fields = py::reinterpret_borrow<py::tuple>(object);
  spec.dtype = to_dtype(fields[0]);
  spec.sizes = to_dims(fields[1]);
  spec.strides = to_dims(fields[2]);
  spec.dims = to_dims(fields[3]);
  spec.computed = fields[4].cast<bool>();
  spec.nbytes = fields[5].cast<int64_t>();
  return spec;
}

std::shared_ptr<Entry> to_entry(const py::object& built) {
  auto entry = std::make_shared<Entry>();
  if (PyCallable_Check(built.ptr())) {
    entry->python = hold(built);
    return entry;
  }
  auto fields = py::reinterpret_borrow<py::tuple>(built);
  entry->runs = !fields[0].is_none();
  if (entry->runs) {
    entry->deferrable = fields[0].attr("deferrable").cast<bool>();
    entry->label = fields[0].attr("label").cast<std::string>();
    entry->name.title = fields[0].attr("title").cast<std::string>();
    entry->name.operators = fields[0].attr("operators").cast<std::string>();
    entry->source = hold(fields[0]);
  }
  entry->operands = fields[1].cast<std::vector<int32_t>>();
  entry->donations = fields[2].cast<std::vector<int32_t>>();
  for (const auto& output : py::reinterpret_borrow<py::list>(fields[3])) {
    entry->outputs.push_back(to_output(output));
    if (entry->outputs.back().computed) {
      entry->output_bytes.push_back(entry->outputs.back().nbytes);
    }
  }
  entry->groups = fields[4].cast<std::vector<int32_t>>();
  entry->constants = fields[5].cast<std::vector<int64_t>>();
  // What cannot be compiled is refused where it is called, unless it only runs as part of another.
  if (entry->runs && !(entry->deferrable && deferring())) entry->program();
  return entry;
}

py::object python_function(const char* module, const char* name) {
  return py::module_::import(module).attr(name);
}

const char* variant_name(Variant variant) {
  switch (variant) {
    case Variant::kInplace:
      return "inplace";
    case Variant::kOut:
      return "out";
    case Variant::kFunctional:
      break;
  }
  return "functional";
}

}  // namespace

const pjrt::Executable& Entry::compile() const {
  auto program = with_python([&] {
    py::handle lowered(static_cast<PyObject*>(source.get()));
    return lowered.attr("compile")().cast<ExecutableHandle&>().executable;
  });
  // Threads that compile at the same time get one executable from the compilation cache.
  static auto* publishing = new SpinLock;
  std::lock_guard guard(*publishing);
  if (compiled_ == nullptr) {
    compiled_ = std::move(program);
    ready_.store(compiled_.get(), std::memory_order_release);
  }
  return *compiled_;
}

const Entry* build_once(Cache& cache, const Key& key,
                        const std::function<std::shared_ptr<Entry>()>& build) {
  // The wait must not hold the GIL: the thread that builds needs it.
  WithoutPython released;
  auto mark = std::make_pair(static_cast<const Cache*>(&cache), key.hash());
  Building& state = building();
  {
    std::unique_lock lock(state.mutex);
    auto mine = [&] {
      auto it = state.owners.find(mark);
      return it == state.owners.end() || it->second == std::this_thread::get_id();
    };
    state.changed.wait(lock, mine);
    if (const Entry* entry = cache.find(key)) return entry;
    state.owners[mark] = std::this_thread::get_id();
  }
  struct Unmark {
    Building& state;
    decltype(mark)& key;
    ~Unmark() {
      std::lock_guard lock(state.mutex);
      state.owners.erase(key);
      state.changed.notify_all();
    }
  } unmark{state, mark};
  if (Cache::total() >= Cache::most()) Cache::clear_all();
  return cache.insert(key, build());
}

std::shared_ptr<Entry> build_operator(const OpKernel& kernel,
                                      c10::ArrayRef<c10::IValue> arguments) {
  return with_python([&] {
    py::list described;
    for (size_t i = 0; i < arguments.size(); ++i) {
      described.append(describe(kernel.arguments[i], arguments[i]));
    }
    py::list targets;
    for (int32_t target : kernel.targets) targets.append(target);
    return to_entry(python_function("torch_tpu.dispatch.miss", "build_entry")(
        kernel.name, kernel.functional, variant_name(kernel.variant), described, targets,
        kernel.new_results));
  });
}

std::shared_ptr<Entry> build_internal(c10::ArrayRef<int64_t> words) {
  return with_python([&] {
    return to_entry(python_function("torch_tpu.dispatch.views", "build_internal")(to_tuple(words)));
  });
}

RegionProgram build_region(const std::vector<RegionCall>& calls, int64_t inputs,
                           const std::vector<std::pair<int32_t, int32_t>>& live) {
  bool interrupted = false;
  auto build = [&] {
    py::list described;
    for (const RegionCall& call : calls) {
      py::list sources;
      for (const RegionSource& from : call.sources) {
        sources.append(py::make_tuple(from[0], from[1], from[2]));
      }
      auto lowered = py::reinterpret_borrow<py::object>(static_cast<PyObject*>(call.lowered));
      described.append(py::make_tuple(lowered, sources));
    }
    py::tuple built;
    try {
      built = python_function("torch_tpu.dispatch.deferred", "build_region")(described, inputs,
                                                                             py::cast(live));
    } catch (py::error_already_set& error) {
      interrupted = error.matches(PyExc_KeyboardInterrupt);
      throw;
    }
    RegionProgram program;
    program.executable = built[0].cast<ExecutableHandle&>().executable;
    program.donations = built[1].cast<std::vector<std::pair<int32_t, int32_t>>>();
    program.name = {built[2].cast<std::string>(), built[3].cast<std::string>()};
    return program;
  };
  try {
    return with_python(build);
  } catch (...) {
    if (!interrupted) throw;
    RegionProgram none;
    none.interrupted = std::current_exception();
    return none;
  }
}

std::vector<c10::IValue> call_python(const OpKernel& kernel, const std::shared_ptr<void>& callable,
                                     c10::ArrayRef<c10::IValue> arguments) {
  return with_python([&] {
    const auto& schema = kernel.op.schema();
    py::list described;
    for (const auto& value : arguments) described.append(torch::jit::toPyObject(value));
    py::handle function(static_cast<PyObject*>(callable.get()));
    py::object result = function(kernel.name, kernel.functional, described);
    std::vector<c10::IValue> results;
    const auto& returns = schema.returns();
    if (returns.empty() || result.is_none()) return results;
    if (returns.size() == 1) {
      results.push_back(torch::jit::toIValue(result, returns[0].type()));
      return results;
    }
    auto sequence = py::reinterpret_borrow<py::sequence>(result);
    for (size_t i = 0; i < returns.size(); ++i) {
      results.push_back(torch::jit::toIValue(sequence[i], returns[i].type()));
    }
    return results;
  });
}

}  // namespace torch_tpu
