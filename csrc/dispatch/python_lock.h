// Giving up the GIL where something is waited for, without pybind's headers.
#pragma once

#include <Python.h>

namespace torch_tpu {

// Releases the GIL for a scope if this thread has it.
class WithoutPython {
 public:
  WithoutPython() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutPython() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;

 private:
  PyThreadState* state_;
};

// Takes the GIL for a scope.
class WithPython {
 public:
  WithPython() : state_(PyGILState_Ensure()) {}
  ~WithPython() { PyGILState_Release(state_); }
  WithPython(const WithPython&) = delete;
  WithPython& operator=(const WithPython&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace torch_tpu
