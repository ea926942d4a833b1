// Holding Python objects and calling Python from the core.
//
// Included only where Python is called (miss.cc, bind.cc): pybind is the slowest header to compile.
#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

namespace torch_tpu {

// An owning handle that C++ may keep and drop without the GIL; null for None. What outlives Python
// is left alone.
inline std::shared_ptr<void> hold(pybind11::object object) {
  if (object.is_none()) return nullptr;
  return {object.release().ptr(), [](void* pointer) {
            if (!Py_IsInitialized()) return;
            pybind11::gil_scoped_acquire gil;
            Py_DECREF(static_cast<PyObject*>(pointer));
          }};
}

// Runs `body` with the GIL. Python exceptions travel on through C++ as python_error, which autograd
// threads and the bindings know.
template <class Body>
auto with_python(Body&& body) {
  pybind11::gil_scoped_acquire gil;
  try {
    return body();
  } catch (pybind11::error_already_set& error) {
    error.restore();
    python_error wrapped;
    wrapped.persist();
    throw wrapped;
  }
}

}  // namespace torch_tpu
