// Running compiled programs. See client.h.
#include <array>

#include "client.h"

namespace torch_tpu::pjrt {

Executable::Executable(Client* client, PJRT_LoadedExecutable* raw, size_t outputs)
    : client_(client), raw_(raw), outputs_(outputs) {}

Executable::~Executable() {
  PJRT_ARGS(PJRT_LoadedExecutable_Destroy_Args, args);
  args.executable = raw_;
  client_->api().call_quiet(&PJRT_Api::PJRT_LoadedExecutable_Destroy,
                            "PJRT_LoadedExecutable_Destroy", args);
}

void Executable::execute(int device, std::span<Buffer* const> arguments,
                         std::span<const int64_t> keep, std::span<Buffer* const> donated,
                         std::span<const int64_t> output_bytes, BufferRef* outputs) const {
  constexpr size_t kInline = 16;
  std::array<PJRT_Buffer*, kInline> inline_in;
  std::array<PJRT_Buffer*, kInline> inline_out;
  std::vector<PJRT_Buffer*> heap_in;
  std::vector<PJRT_Buffer*> heap_out;
  PJRT_Buffer** in = inline_in.data();
  PJRT_Buffer** out = inline_out.data();
  if (arguments.size() > kInline) {
    heap_in.resize(arguments.size());
    in = heap_in.data();
  }
  if (outputs_ > kInline) {
    heap_out.resize(outputs_);
    out = heap_out.data();
  }
  for (size_t i = 0; i < arguments.size(); ++i) in[i] = arguments[i]->raw();

  int64_t total = 0;
  for (int64_t bytes : output_bytes) total += bytes;
  for (const Buffer* buffer : donated) total -= buffer->bytes();
  client_->require(device, total);

  PJRT_ARGS(PJRT_ExecuteOptions, options);
  options.non_donatable_input_indices = keep.data();
  options.num_non_donatable_input_indices = keep.size();
  PJRT_ARGS(PJRT_LoadedExecutable_Execute_Args, args);
  args.executable = raw_;
  args.options = &options;
  PJRT_Buffer* const* argument_list = in;
  args.argument_lists = &argument_list;
  args.num_devices = 1;
  args.num_args = arguments.size();
  args.output_lists = &out;
  args.execute_device = client_->device(device);
  PJRT_CALL(client_->api(), PJRT_LoadedExecutable_Execute, args);
  for (Buffer* buffer : donated) buffer->mark_donated();
  for (size_t i = 0; i < outputs_; ++i) {
    outputs[i] = BufferRef(new Buffer(client_, out[i], device, output_bytes[i]));
  }
}

std::string Executable::serialize() const {
  PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable_Args, get);
  get.loaded_executable = raw_;
  PJRT_CALL(client_->api(), PJRT_LoadedExecutable_GetExecutable, get);
  PJRT_ARGS(PJRT_Executable_Serialize_Args, args);
  args.executable = get.executable;
  PJRT_CALL(client_->api(), PJRT_Executable_Serialize, args);
  std::string data(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  PJRT_ARGS(PJRT_Executable_Destroy_Args, destroy);
  destroy.executable = get.executable;
  client_->api().call_quiet(&PJRT_Api::PJRT_Executable_Destroy, "PJRT_Executable_Destroy", destroy);
  return data;
}

}  // namespace torch_tpu::pjrt
