// Running compiled programs. See client.h.
#include <array>

#include "client.h"
#include "listener.h"

namespace torch_tpu::pjrt {

namespace {

// Room for the arrays of a call, on the stack unless there are many.
class Slots {
 public:
  explicit Slots(size_t count) : many_(count > kInline ? count : 0) {}
  PJRT_Buffer** data() { return many_.empty() ? few_.data() : many_.data(); }

 private:
  static constexpr size_t kInline = 16;
  std::array<PJRT_Buffer*, kInline> few_;
  std::vector<PJRT_Buffer*> many_;
};

void notify(const PluginApi& api, PJRT_Event* complete, Watch& watch) {
  try {
    when_happened(api, complete, watch.done());
  } catch (const Error&) {
    return;  // the program runs all the same, and nobody will know when it has
  }
}

}  // namespace

Executable::Executable(Client* client, PJRT_LoadedExecutable* raw, size_t outputs)
    : client_(client), raw_(raw), outputs_(outputs) {
  client_->programs_.fetch_add(1);
}

Executable::~Executable() {
  client_->programs_.fetch_sub(1);
  PJRT_ARGS(PJRT_LoadedExecutable_Destroy_Args, args);
  args.executable = raw_;
  client_->api().call_quiet(&PJRT_Api::PJRT_LoadedExecutable_Destroy,
                            "PJRT_LoadedExecutable_Destroy", args);
}

void Executable::execute(int device, std::span<Buffer* const> arguments,
                         std::span<const int64_t> keep, std::span<Buffer* const> donated,
                         std::span<const int64_t> output_bytes, BufferRef* outputs,
                         Watch* watch) const {
  Slots in(arguments.size());
  Slots out(outputs_);
  for (size_t i = 0; i < arguments.size(); ++i) in.data()[i] = arguments[i]->raw();

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
  PJRT_Buffer* const* argument_list = in.data();
  PJRT_Buffer** output_list = out.data();
  args.argument_lists = &argument_list;
  args.num_devices = 1;
  args.num_args = arguments.size();
  args.output_lists = &output_list;
  args.execute_device = client_->device(device);
  PJRT_Event* complete = nullptr;
  if (watch != nullptr) args.device_complete_events = &complete;
  client_->allocating(device, total,
                      [&] { PJRT_CALL(client_->api(), PJRT_LoadedExecutable_Execute, args); });
  if (watch != nullptr) watch->launched();
  for (Buffer* buffer : donated) buffer->mark_donated();
  for (size_t i = 0; i < outputs_; ++i) {
    outputs[i] = BufferRef(new Buffer(client_, out.data()[i], device, output_bytes[i]));
  }
  if (complete != nullptr) notify(client_->api(), complete, *watch);
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
