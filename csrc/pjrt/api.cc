// Plugin loading and error translation; see api.h.
#include "api.h"

#include <dlfcn.h>

namespace torch_tpu::pjrt {

PluginApi PluginApi::load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(5, "cannot load the PJRT plugin " + path + ": " + (reason ? reason : "unknown"));
  }
  using GetApi = const PJRT_Api* (*)();
  auto get_api = reinterpret_cast<GetApi>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    throw Error(5, path + " is not a PJRT plugin: it has no symbol GetPjrtApi");
  }
  const PJRT_Api* table = get_api();
  if (table == nullptr || table->pjrt_api_version.major_version != PJRT_API_MAJOR) {
    throw Error(9, path + " speaks another major version of the PJRT C API");
  }
  PluginApi api(table);
  PJRT_ARGS(PJRT_Plugin_Initialize_Args, args);
  PJRT_CALL(api, PJRT_Plugin_Initialize, args);
  return api;
}

void PluginApi::check(PJRT_Error* error, const char* name) const {
  if (error == nullptr) return;
  PJRT_ARGS(PJRT_Error_Message_Args, message);
  message.error = error;
  api_->PJRT_Error_Message(&message);
  PJRT_ARGS(PJRT_Error_GetCode_Args, code);
  code.error = error;
  int value = 2;
  if (PJRT_Error* nested = api_->PJRT_Error_GetCode(&code)) {
    discard(nested);
  } else {
    value = static_cast<int>(code.code);
  }
  std::string text(message.message, message.message_size);
  discard(error);
  throw Error(value, text + " (in " + name + ")");
}

void PluginApi::discard(PJRT_Error* error) const noexcept {
  if (error == nullptr) return;
  PJRT_ARGS(PJRT_Error_Destroy_Args, args);
  args.error = error;
  api_->PJRT_Error_Destroy(&args);
}

}  // namespace torch_tpu::pjrt
