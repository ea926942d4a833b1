// The plugin at $WRAPPED_PLUGIN with a profiler extension in front, whose traces list its calls.
// For test_profiler.py: XLA's CPU plugin has no such extension.
#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Profiler {
  std::string calls;
};

struct Failure {
  std::string message;
};

struct CreateArgs {
  size_t struct_size;
  const char* options;
  size_t options_size;
  Profiler* profiler;
};

struct ProfilerArgs {
  size_t struct_size;
  Profiler* profiler;
};

struct DataArgs {
  size_t struct_size;
  Profiler* profiler;
  uint8_t* buffer;
  size_t size;
};

struct ErrorArgs {
  size_t struct_size;
  void* priv;
  Failure* error;
};

struct MessageArgs {
  size_t struct_size;
  void* priv;
  const Failure* error;
  const char* message;
  size_t size;
};

struct CodeArgs {
  size_t struct_size;
  void* priv;
  const Failure* error;
  int code;
};

struct Functions {
  size_t struct_size;
  void* priv;
  void (*error_destroy)(ErrorArgs*);
  void (*error_message)(MessageArgs*);
  Failure* (*error_code)(CodeArgs*);
  Failure* (*create)(CreateArgs*);
  Failure* (*destroy)(ProfilerArgs*);
  Failure* (*start)(ProfilerArgs*);
  Failure* (*stop)(ProfilerArgs*);
  Failure* (*collect)(DataArgs*);
};

Failure* create(CreateArgs* args) {
  args->profiler = new Profiler{"options " + std::to_string(args->options_size)};
  return nullptr;
}

Failure* destroy(ProfilerArgs* args) {
  delete args->profiler;
  return nullptr;
}

Failure* start(ProfilerArgs* args) {
  if (std::getenv("REFUSE_TRACE") != nullptr) return new Failure{"somebody else traces"};
  args->profiler->calls += ", start";
  return nullptr;
}

Failure* stop(ProfilerArgs* args) {
  args->profiler->calls += ", stop";
  return nullptr;
}

// As the header asks: first the size, then the data.
Failure* collect(DataArgs* args) {
  const std::string& calls = args->profiler->calls;
  if (args->buffer != nullptr) std::memcpy(args->buffer, calls.data(), calls.size());
  args->size = calls.size();
  return nullptr;
}

const Functions functions{
    sizeof(Functions),
    nullptr,
    [](ErrorArgs* args) { delete args->error; },
    [](MessageArgs* args) {
      args->message = args->error->message.data();
      args->size = args->error->message.size();
    },
    [](CodeArgs* args) -> Failure* {
      args->code = 9;
      return nullptr;
    },
    create,
    destroy,
    start,
    stop,
    collect,
};

struct Extension {
  PJRT_Extension_Base base;
  const Functions* functions;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  void* wrapped = dlopen(std::getenv("WRAPPED_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  if (wrapped == nullptr) return nullptr;
  const auto* api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(wrapped, "GetPjrtApi"))();
  static Extension extension{{sizeof(Extension), PJRT_Extension_Type_Profiler, nullptr},
                             &functions};
  static std::vector<char> copy(reinterpret_cast<const char*>(api),
                                reinterpret_cast<const char*>(api) + api->struct_size);
  auto* result = reinterpret_cast<PJRT_Api*>(copy.data());
  extension.base.next = api->extension_start;
  result->extension_start = &extension.base;
  return result;
}
