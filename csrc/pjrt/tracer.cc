// See tracer.h.
#include "tracer.h"

#include <cstddef>

namespace torch_tpu::pjrt {

// ---- the extension, by the declarations of version 1 of XLA's plugin profiler
// --------------------
//
// Its calls take structs that begin with their own size, and return an error or null.

namespace {

struct ErrorArgs {  // to free an error
  size_t struct_size;
  void* priv;
  void* error;
};

struct ErrorMessageArgs {
  size_t struct_size;
  void* priv;
  const void* error;
  const char* message;
  size_t message_size;
};

struct ErrorCodeArgs {
  size_t struct_size;
  void* priv;
  const void* error;
  int code;
};
constexpr size_t kErrorCodeArgsSize = offsetof(ErrorCodeArgs, code) + sizeof(int);

struct CreateArgs {
  size_t struct_size;
  const char* options;
  size_t options_size;
  void* profiler;
};

struct ProfilerArgs {  // of start, stop and destroy
  size_t struct_size;
  void* profiler;
};

struct DataArgs {
  size_t struct_size;
  void* profiler;
  uint8_t* buffer;
  size_t size;
};

}  // namespace

struct PluginProfiler {
  size_t struct_size;
  void* priv;
  void (*error_destroy)(ErrorArgs*);
  void (*error_message)(ErrorMessageArgs*);
  void* (*error_code)(ErrorCodeArgs*);
  void* (*create)(CreateArgs*);
  void* (*destroy)(ProfilerArgs*);
  void* (*start)(ProfilerArgs*);
  void* (*stop)(ProfilerArgs*);
  void* (*collect)(DataArgs*);
};

namespace {

struct Extension {
  PJRT_Extension_Base base;
  const PluginProfiler* api;
};

template <class Args>
Args sized() {
  Args args{};
  args.struct_size = sizeof(Args);
  return args;
}

const PluginProfiler* find_profiler(const Client& client) {
  const PJRT_Extension_Base* extension = client.api()->extension_start;
  while (extension != nullptr && extension->type != PJRT_Extension_Type_Profiler) {
    extension = extension->next;
  }
  if (extension == nullptr || extension->struct_size < sizeof(Extension)) return nullptr;
  const PluginProfiler* api = reinterpret_cast<const Extension*>(extension)->api;
  // A plugin may give the extension without the functions.
  return api != nullptr && api->struct_size >= sizeof(PluginProfiler) ? api : nullptr;
}

// Throws the error (and frees it) unless it is null.
void check(const PluginProfiler& api, void* error, const char* call) {
  if (error == nullptr) return;
  auto message = sized<ErrorMessageArgs>();
  message.error = error;
  api.error_message(&message);
  std::string text = "the plugin's profiler: " + std::string(call) + ": " +
                     std::string(message.message, message.message_size);
  auto code = sized<ErrorCodeArgs>();
  code.struct_size = kErrorCodeArgsSize;
  code.error = error;
  api.error_code(&code);
  auto destroy = sized<ErrorArgs>();
  destroy.error = error;
  api.error_destroy(&destroy);
  throw Error(code.code, text);
}

ProfilerArgs of(void* profiler) {
  auto args = sized<ProfilerArgs>();
  args.profiler = profiler;
  return args;
}

}  // namespace

bool Tracer::supported(const Client& client) { return find_profiler(client) != nullptr; }

Tracer::Tracer(const Client& client, const std::string& options) : api_(find_profiler(client)) {
  constexpr int kUnimplemented = 12;
  if (api_ == nullptr) {
    throw Error(kUnimplemented,
                "the plugin for " + client.platform() + " has no profiler extension");
  }
  auto args = sized<CreateArgs>();
  args.options = options.data();
  args.options_size = options.size();
  check(*api_, api_->create(&args), "create");
  profiler_ = args.profiler;
}

Tracer::~Tracer() {
  auto args = of(profiler_);
  void* error = api_->destroy(&args);
  if (error == nullptr) return;
  auto destroy = sized<ErrorArgs>();
  destroy.error = error;
  api_->error_destroy(&destroy);
}

void Tracer::start() {
  auto args = of(profiler_);
  check(*api_, api_->start(&args), "start");
}

void Tracer::stop() {
  auto args = of(profiler_);
  check(*api_, api_->stop(&args), "stop");
}

std::string Tracer::data() {
  auto args = sized<DataArgs>();
  args.profiler = profiler_;
  check(*api_, api_->collect(&args), "collect");
  if (args.size == 0) return {};
  // Plugins either lend a buffer of theirs or say the size of the one they want.
  if (args.buffer != nullptr) return {reinterpret_cast<const char*>(args.buffer), args.size};
  std::string data(args.size, '\0');
  args.buffer = reinterpret_cast<uint8_t*>(data.data());
  check(*api_, api_->collect(&args), "collect");
  return data;
}

}  // namespace torch_tpu::pjrt
