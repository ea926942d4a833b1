// See debug.h.
#include "debug.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include "python.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

py::list to_list(c10::ArrayRef<c10::IValue> values) {
  py::list list;
  for (const auto& value : values) list.append(torch::jit::toPyObject(value));
  return list;
}

py::object checks(const char* name) {
  return py::module_::import("torch_tpu.dispatch.debug").attr(name);
}

}  // namespace

void call_in_debug(OpKernel& kernel, torch::jit::Stack* stack) {
  std::shared_ptr<void> before = with_python([&] {
    auto arguments = torch::jit::last(*stack, kernel.arguments.size());
    return hold(checks("before")(kernel.name, kernel.functional, to_list(arguments)));
  });
  std::vector<c10::IValue> results;  // and arguments that are written
  if (before != nullptr) {
    auto arguments = torch::jit::last(*stack, kernel.arguments.size());
    for (int32_t target : kernel.targets) results.push_back(arguments[target]);
  }
  kernel.run(stack);
  if (before == nullptr) return;  // nothing is to be looked at afterwards
  with_python([&] {
    auto returned = torch::jit::last(*stack, kernel.op.schema().returns().size());
    results.insert(results.end(), returned.begin(), returned.end());
    py::handle state(static_cast<PyObject*>(before.get()));
    checks("after")(kernel.name, state, to_list(results));
    return true;
  });
}

}  // namespace torch_tpu
