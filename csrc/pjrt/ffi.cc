// See ffi.h.
//
// The plugin package ships pjrt_c_api.h only, so the structs of two more public C interfaces are
// declared here, as far as they are needed: the PJRT FFI extension, version 2, and XLA's FFI C API,
// version 0.1. Both grow at the end of their structs and check `struct_size`.
#include "ffi.h"

#include <atomic>
#include <exception>
#include <string>

namespace torch_tpu::pjrt {

namespace {

// ---- the PJRT extension --------------------------------------------------------------------

struct RegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
constexpr size_t kRegisterHandlerArgsSize = offsetof(RegisterHandlerArgs, traits) + sizeof(int);

struct Extension {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(RegisterHandlerArgs*);
};

// ---- XLA's FFI -----------------------------------------------------------------------------

constexpr int kMajor = 0;
constexpr int kMinor = 1;

struct FfiError;

struct FfiExtension {
  size_t struct_size;
  int type;
  FfiExtension* next;
};
constexpr int kMetadata = 1;

struct FfiVersion {
  size_t struct_size;
  FfiExtension* extensions;
  int major;
  int minor;
};

struct FfiMetadata {
  size_t struct_size;
  FfiVersion version;
  uint32_t traits;
};

struct FfiMetadataExtension {
  FfiExtension base;
  FfiMetadata* metadata;
};

struct FfiErrorArgs {
  size_t struct_size;
  FfiExtension* extensions;
  const char* message;
  int code;
};
constexpr int kInvalidArgument = 3;

struct FfiApi {
  size_t struct_size;
  FfiExtension* extensions;
  FfiVersion version;
  void* internal;
  FfiError* (*create_error)(FfiErrorArgs*);
};

struct FfiBuffer {
  size_t struct_size;
  FfiExtension* extensions;
  int type;  // numbers as PJRT_Buffer_Type except for complex and bfloat16
  void* data;
  int64_t rank;
  int64_t* dims;
};
constexpr int kBuffer = 1;  // the kind of an argument or result

struct FfiString {
  const char* data;
  size_t size;
};
constexpr int kString = 4;  // the kind of an attribute

struct FfiList {  // arguments and results
  size_t struct_size;
  FfiExtension* extensions;
  int64_t size;
  int* kinds;
  void** items;
};

struct FfiAttributes {
  size_t struct_size;
  FfiExtension* extensions;
  int64_t size;
  int* kinds;
  FfiString** names;
  void** items;
};

struct FfiCall {
  size_t struct_size;
  FfiExtension* extensions;
  const FfiApi* api;
  void* context;
  int stage;
  FfiList arguments;
  FfiList results;
  FfiAttributes attributes;
};
constexpr int kExecute = 3;

ElementType element_type(int number) {
  switch (number) {
    case 15:
      return ElementType::kC64;
    case 16:
      return ElementType::kBF16;
    case 18:
      return ElementType::kC128;
    case 19:
      return ElementType::kF8E5M2;
    case 20:
      return ElementType::kF8E4M3FN;
    default:
      break;
  }
  if (number >= 1 && number <= 12) return static_cast<ElementType>(number);
  throw Error(12, "a host kernel was given element type " + std::to_string(number));
}

// ---- the registered function ---------------------------------------------------------------

std::atomic<HostKernel> registered{nullptr};

std::vector<HostArray> arrays(const FfiList& list) {
  std::vector<HostArray> result;
  result.reserve(list.size);
  for (int64_t i = 0; i < list.size; ++i) {
    if (list.kinds[i] != kBuffer) throw Error(12, "a host kernel was given something not an array");
    const auto* buffer = static_cast<const FfiBuffer*>(list.items[i]);
    result.push_back({element_type(buffer->type),
                      {buffer->dims, static_cast<size_t>(buffer->rank)},
                      buffer->data});
  }
  return result;
}

std::string_view view(const FfiString& text) { return {text.data, text.size}; }

void execute(const FfiCall& frame) {
  HostCall call{arrays(frame.arguments), arrays(frame.results), {}};
  const FfiAttributes& attributes = frame.attributes;
  for (int64_t i = 0; i < attributes.size; ++i) {
    if (attributes.kinds[i] != kString) continue;
    const auto* value = static_cast<const FfiString*>(attributes.items[i]);
    call.attributes.emplace_back(view(*attributes.names[i]), view(*value));
  }
  registered.load(std::memory_order_acquire)(call);
}

FfiError* failure(const FfiCall& frame, const char* message) {
  FfiErrorArgs args{sizeof(FfiErrorArgs), nullptr, message, kInvalidArgument};
  args.struct_size = offsetof(FfiErrorArgs, code) + sizeof(int);
  return frame.api->create_error(&args);
}

// The plugin calls this once to ask for its version, and then for every call of a program.
FfiError* handler(FfiCall* frame) noexcept {
  FfiExtension* extension = frame->extensions;
  while (extension != nullptr && extension->type != kMetadata) extension = extension->next;
  if (extension != nullptr) {
    FfiMetadata* metadata = reinterpret_cast<FfiMetadataExtension*>(extension)->metadata;
    metadata->version.major = kMajor;
    metadata->version.minor = kMinor;
    metadata->traits = 0;
    return nullptr;
  }
  if (frame->stage != kExecute) return nullptr;
  try {
    execute(*frame);
    return nullptr;
  } catch (const std::exception& error) {
    return failure(*frame, error.what());
  } catch (...) {
    return failure(*frame, "a host kernel threw something that is not an exception");
  }
}

const Extension* find_extension(const PluginApi& api) {
  const PJRT_Extension_Base* extension = api->extension_start;
  while (extension != nullptr && extension->type != PJRT_Extension_Type_FFI) {
    extension = extension->next;
  }
  if (extension == nullptr || extension->struct_size < sizeof(Extension)) return nullptr;
  return reinterpret_cast<const Extension*>(extension);
}

}  // namespace

std::string_view HostCall::attribute(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return value;
  }
  throw Error(3, "a call of " + std::string(kHostKernelTarget) + " lacks " + std::string(name));
}

bool register_host_kernel(const Client& client, HostKernel kernel) {
  if (client.platform() != "cpu") return false;
  const Extension* extension = find_extension(client.api());
  if (extension == nullptr || extension->register_handler == nullptr) return false;
  constexpr std::string_view kPlatform = "Host";  // XLA's name of the CPU
  registered.store(kernel, std::memory_order_release);
  RegisterHandlerArgs args{};
  args.struct_size = kRegisterHandlerArgsSize;
  args.target_name = kHostKernelTarget.data();
  args.target_name_size = kHostKernelTarget.size();
  args.handler = reinterpret_cast<void*>(&handler);
  args.platform_name = kPlatform.data();
  args.platform_name_size = kPlatform.size();
  try {
    client.api().check(extension->register_handler(&args), "PJRT_FFI_Register_Handler");
  } catch (const Error&) {
    return false;  // a plugin of another version of the extension, which struct_size tells
  }
  return true;
}

}  // namespace torch_tpu::pjrt
