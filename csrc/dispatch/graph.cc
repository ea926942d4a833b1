// See graph.h. A call of a compiled graph is this one function: inputs are sorted into the lists of
// the schema, the kernel finds the program by their key and runs it.
#include "graph.h"

#include <ATen/record_function.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "flat.h"
#include "python.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

const at::Tensor& to_tensor(const py::handle& object, size_t position) {
  if (!THPVariable_Check(object.ptr())) {
    throw py::type_error("input " + std::to_string(position) +
                         " of a compiled graph must be a tensor, not " +
                         std::string(py::str(py::type::of(object))));
  }
  return THPVariable_Unpack(object.ptr());
}

}  // namespace

Graph::Graph(const RuleOptions& options, std::string roles, std::vector<int64_t> outputs)
    : kernel_(make_graph_kernel(options)), roles_(std::move(roles)), outputs_(std::move(outputs)) {}

py::list Graph::call(py::list inputs, const py::list& constants) {
  if (inputs.size() != roles_.size()) {
    throw py::type_error("a compiled graph takes " + std::to_string(roles_.size()) +
                         " inputs, but got " + std::to_string(inputs.size()));
  }
  c10::List<at::Tensor> reads;
  c10::List<at::Tensor> writes;
  c10::List<int64_t> sizes;
  c10::List<int64_t> values;
  c10::List<double> numbers;
  for (size_t i = 0; i < roles_.size(); ++i) {
    py::handle input(PyList_GET_ITEM(inputs.ptr(), static_cast<Py_ssize_t>(i)));
    switch (roles_[i]) {
      case 'r':
        reads.push_back(to_tensor(input, i));
        break;
      case 'w':
        writes.push_back(to_tensor(input, i));
        break;
      case 's':
        sizes.push_back(input.cast<int64_t>());
        break;
      case 'v':
        values.push_back(input.cast<int64_t>());
        break;
      case 'n':
        numbers.push_back(input.cast<double>());
        break;
      default:
        break;
    }
  }
  for (size_t i = 0; i < constants.size(); ++i) reads.push_back(to_tensor(constants[i], i));

  py::list results(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] < 0) results[i] = inputs[static_cast<size_t>(-1 - outputs_[i])];
  }
  torch::jit::Stack stack{std::move(reads), std::move(writes), std::move(sizes), std::move(values),
                          std::move(numbers)};
  PyList_SetSlice(inputs.ptr(), 0, PyList_GET_SIZE(inputs.ptr()), nullptr);
  {
    py::gil_scoped_release released;
    // The dispatcher does this for operators: a row of the profiler, which has the program's time.
    RECORD_FUNCTION(kernel_->functional, c10::ArrayRef<const c10::IValue>{});
    kernel_->call(&stack);
  }
  auto produced = stack.back().toTensorList();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] < 0) continue;
    results[i] = py::reinterpret_steal<py::object>(
        THPVariable_Wrap(produced.get(static_cast<size_t>(outputs_[i]))));
  }
  return results;
}

void bind_graph(py::module_& m) {
  py::class_<Graph>(m, "Graph")
      .def(py::init([](const py::dict& rule, std::string roles, std::vector<int64_t> outputs) {
        return std::make_unique<Graph>(to_options(rule), std::move(roles), std::move(outputs));
      }))
      .def("__call__", &Graph::call, py::arg("inputs"), py::arg("constants"))
      .def_property_readonly("entries", &Graph::entries);
  m.def("flat_of", [](const at::Tensor& tensor, int64_t length) {
    py::gil_scoped_release released;
    return flat_of(tensor, length);
  });
  m.def("exact_of", [](const at::Tensor& flat, const std::vector<int64_t>& sizes) {
    py::gil_scoped_release released;
    return exact_of(flat, sizes);
  });
}

}  // namespace torch_tpu
