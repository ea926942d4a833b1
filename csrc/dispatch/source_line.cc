// See source_line.h.
#include "source_line.h"

#include <algorithm>
#include <unordered_map>

#include "python_lock.h"

namespace torch_tpu {

namespace {

// With the GIL held.
std::vector<std::string>& library_folders() {
  static auto* folders = new std::vector<std::string>;
  return *folders;
}

PyCodeObject* as_code(void* object) { return static_cast<PyCodeObject*>(object); }

std::string text_of(PyObject* text) {
  const char* name = PyUnicode_AsUTF8(text);
  if (name != nullptr) return name;
  PyErr_Clear();
  return "?";
}

bool is_library(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, bool>;
  auto it = known->find(code);
  if (it != known->end()) return it->second;
  std::string file = text_of(code->co_filename);
  bool library = std::any_of(library_folders().begin(), library_folders().end(),
                             [&](const std::string& folder) { return file.rfind(folder, 0) == 0; });
  Py_INCREF(code);  // so that its address is never another's
  known->emplace(code, library);
  return library;
}

}  // namespace

void set_library_folders(std::vector<std::string> folders) {
  library_folders() = std::move(folders);
}

SourceLine SourceLine::here() {
  constexpr int kMostFrames = 32;
  SourceLine line;
  WithPython python;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (int i = 0; frame != nullptr && i < kMostFrames; ++i) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    bool found = !is_library(code);
    if (found) {
      line.code = code;
      line.instruction = PyFrame_GetLasti(frame);
    }
    Py_DECREF(code);
    PyFrameObject* outer = found ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
  return line;
}

std::string SourceLine::text() const {
  if (code == nullptr) return "";
  WithPython python;
  return file() + ":" + std::to_string(number());
}

std::string SourceLine::file() const { return text_of(as_code(code)->co_filename); }

int SourceLine::number() const { return PyCode_Addr2Line(as_code(code), instruction); }

std::string SourceLine::function() const { return text_of(as_code(code)->co_qualname); }

}  // namespace torch_tpu
