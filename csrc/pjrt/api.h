// The one door to the PJRT C API.
//
// Loads a plugin, owns its function table and turns PJRT errors into `Error`. Everything that calls
// PJRT does so through `PluginApi::call`, which sets struct_size, checks that the plugin has the
// entry and names the call in the error. No PJRT_*_Args type appears outside csrc/pjrt. This
// library knows nothing of torch.
#pragma once

#include <pjrt_c_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#define TORCH_TPU_API __attribute__((visibility("default")))

namespace torch_tpu::pjrt {

// A failed PJRT call. `code()` is a PJRT_Error_Code (for example 8, RESOURCE_EXHAUSTED).
class TORCH_TPU_API Error : public std::runtime_error {
 public:
  Error(int code, const std::string& message, int device = -1, int64_t bytes = 0)
      : std::runtime_error(message), code_(code), device_(device), bytes_(bytes) {}
  int code() const { return code_; }
  bool out_of_memory() const { return code_ == kOutOfMemory; }
  // Where memory was asked for, and how much; -1 and 0 if that is not known.
  int device() const { return device_; }
  int64_t bytes() const { return bytes_; }

  static constexpr int kOutOfMemory = 8;

 private:
  int code_;
  int device_;
  int64_t bytes_;
};

class TORCH_TPU_API PluginApi {
 public:
  // dlopens `path`, checks the API version and initialises the plugin. Throws Error.
  static PluginApi load(const std::string& path);

  const PJRT_Api* operator->() const { return api_; }

  // Calls `function` (a member of PJRT_Api) with `args`, whose struct_size must be set by ARGS.
  template <class Function, class Args>
  void call(Function PJRT_Api::* function, const char* name, Args& args) const {
    check((this->slot(function, name))(&args), name);
  }

  // As `call`, for entries that report no error and for destructors.
  template <class Function, class Args>
  void call_quiet(Function PJRT_Api::* function, const char* name, Args& args) const noexcept {
    auto entry = api_->*function;
    if (entry != nullptr) discard(entry(&args));
    (void)name;
  }

  // Throws the error (and frees it) unless it is null.
  void check(PJRT_Error* error, const char* name) const;

 private:
  explicit PluginApi(const PJRT_Api* api) : api_(api) {}

  template <class Function>
  Function slot(Function PJRT_Api::* function, const char* name) const {
    Function entry = api_->*function;
    if (entry == nullptr) throw Error(12, std::string("the PJRT plugin has no ") + name);
    return entry;
  }
  void discard(PJRT_Error* error) const noexcept;

  const PJRT_Api* api_;
};

}  // namespace torch_tpu::pjrt

// Declares a zeroed argument struct with its size set.
#define PJRT_ARGS(Type, name) \
  Type name{};                \
  name.struct_size = Type##_STRUCT_SIZE
// Calls one PJRT function through the door.
#define PJRT_CALL(api, function, args) (api).call(&PJRT_Api::function, #function, args)

namespace torch_tpu::pjrt {

// A view of StableHLO (MLIR text or bytecode), which must live as long as it.
inline PJRT_Program mlir_program(const std::string& code) {
  PJRT_ARGS(PJRT_Program, program);
  program.code = const_cast<char*>(code.data());
  program.code_size = code.size();
  program.format = "mlir";
  program.format_size = 4;
  return program;
}

}  // namespace torch_tpu::pjrt
