// A line of the user's program.
#pragma once

#include <string>
#include <vector>

namespace torch_tpu {

// A code object, which is kept for ever, and a place in it.
struct SourceLine {
  void* code = nullptr;
  int instruction = -1;

  // The innermost one of this thread outside the library folders; none in threads without Python.
  static SourceLine here();
  std::string text() const;  // "file:line", "" if there is none
  // Its parts, if there is one. With the GIL held.
  std::string file() const;
  int number() const;
  std::string function() const;
};

// Folders whose files are not the user's: PyTorch's and ours. With the GIL held.
void set_library_folders(std::vector<std::string> folders);

}  // namespace torch_tpu
