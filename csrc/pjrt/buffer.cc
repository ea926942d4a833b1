// Device arrays: readiness, host copies out, device-to-device copies. See client.h.
#include "abandoned.h"
#include "client.h"
#include "listener.h"

namespace torch_tpu::pjrt {

namespace {

// Owns a PJRT_Event.
class Event {
 public:
  Event(const PluginApi& api, PJRT_Event* raw) : api_(api), raw_(raw) {}
  ~Event() {
    PJRT_ARGS(PJRT_Event_Destroy_Args, args);
    args.event = raw_;
    api_.call_quiet(&PJRT_Api::PJRT_Event_Destroy, "PJRT_Event_Destroy", args);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void await() const {
    PJRT_ARGS(PJRT_Event_Await_Args, args);
    args.event = raw_;
    PJRT_CALL(api_, PJRT_Event_Await, args);
  }
  bool ready() const {
    PJRT_ARGS(PJRT_Event_IsReady_Args, args);
    args.event = raw_;
    PJRT_CALL(api_, PJRT_Event_IsReady, args);
    return args.is_ready;
  }

 private:
  const PluginApi& api_;
  PJRT_Event* raw_;
};

PJRT_Event* ready_event(const PluginApi& api, PJRT_Buffer* buffer) {
  PJRT_ARGS(PJRT_Buffer_ReadyEvent_Args, args);
  args.buffer = buffer;
  PJRT_CALL(api, PJRT_Buffer_ReadyEvent, args);
  return args.event;
}

// Counts the memory of an array that is there from now on (negative: gone).
void count(Client* client, int device, PJRT_Buffer* array, int64_t bytes) {
  MemoryCounters& memory = client->memory(device);
  bytes < 0 ? memory.remove(-bytes) : memory.add(bytes);
  MemoryListener listener = memory_listener.load(std::memory_order_relaxed);
  if (listener != nullptr && bytes != 0) listener(array, bytes, memory.bytes.current(), device);
}

}  // namespace

std::atomic<MemoryListener> memory_listener{nullptr};

Buffer::Buffer(Client* client, PJRT_Buffer* raw, int device, int64_t bytes)
    : client_(client), raw_(raw), device_(device), bytes_(bytes) {
  count(client_, device_, raw, bytes_);
}

Buffer::Buffer(Client* client, std::shared_ptr<Deferred> source, int64_t place, int device,
               int64_t bytes)
    : client_(client),
      raw_(nullptr),
      source_(std::move(source)),
      place_(place),
      device_(device),
      bytes_(bytes) {}

Buffer::~Buffer() {
  PJRT_Buffer* raw = raw_.load(std::memory_order_acquire);
  if (raw == nullptr) return;  // never computed, or its contents are another's now
  count(client_, device_, raw, -bytes_);
  bool donated = bytes_ == 0;
  if (!donated && !ready_.load(std::memory_order_acquire)) abandon(client_->api(), raw, device_);
  PJRT_ARGS(PJRT_Buffer_Destroy_Args, args);
  args.buffer = raw;
  client_->api().call_quiet(&PJRT_Api::PJRT_Buffer_Destroy, "PJRT_Buffer_Destroy", args);
}

PJRT_Buffer* Buffer::computed() {
  try {
    source_->compute();
  } catch (...) {
    // What failed may be another array of the same source.
    if (deferred()) throw;
  }
  PJRT_Buffer* raw = raw_.load(std::memory_order_acquire);
  if (raw == nullptr) throw Error(13, "a deferred array was not computed");
  return raw;
}

void Buffer::take_over(Buffer& computed) {
  raw_.store(computed.raw_.exchange(nullptr), std::memory_order_release);
}

void Buffer::mark_donated() {
  count(client_, device_, raw_.load(std::memory_order_relaxed), -bytes_);
  bytes_ = 0;
}

void Buffer::await() {
  if (ready_.load(std::memory_order_acquire)) return;
  client_->allocating(device_, bytes_,
                      [&] { Event(client_->api(), ready_event(client_->api(), raw())).await(); });
  ready_.store(true, std::memory_order_release);
}

bool Buffer::ready() {
  if (ready_.load(std::memory_order_acquire)) return true;
  if (!Event(client_->api(), ready_event(client_->api(), raw())).ready()) return false;
  ready_.store(true, std::memory_order_release);
  return true;
}

namespace {

struct ReadyCallback {
  const PluginApi* api;
  PJRT_Event* event;
  std::function<void()> done;
};

void run_ready_callback(PJRT_Error* error, void* argument) {
  std::unique_ptr<ReadyCallback> callback(static_cast<ReadyCallback*>(argument));
  callback->done();
  if (error != nullptr) {
    PJRT_ARGS(PJRT_Error_Destroy_Args, args);
    args.error = error;
    (*callback->api)->PJRT_Error_Destroy(&args);
  }
  PJRT_ARGS(PJRT_Event_Destroy_Args, args);
  args.event = callback->event;
  callback->api->call_quiet(&PJRT_Api::PJRT_Event_Destroy, "PJRT_Event_Destroy", args);
}

}  // namespace

void when_happened(const PluginApi& api, PJRT_Event* event, std::function<void()> done) {
  auto callback = std::make_unique<ReadyCallback>(&api, event, std::move(done));
  PJRT_ARGS(PJRT_Event_OnReady_Args, args);
  args.event = event;
  args.callback = &run_ready_callback;
  args.user_arg = callback.get();
  PJRT_CALL(api, PJRT_Event_OnReady, args);
  (void)callback.release();  // owned by the callback from here on
}

void Buffer::on_ready(std::function<void()> done) {
  const PluginApi& api = client_->api();
  when_happened(api, ready_event(api, raw()), std::move(done));
}

void Buffer::to_host(void* destination) {
  // An array that could not be computed reports its own error rather than that of the copy.
  await();
  PJRT_ARGS(PJRT_Buffer_ToHostBuffer_Args, args);
  args.src = raw();
  args.dst = destination;
  args.dst_size = static_cast<size_t>(bytes_);
  PJRT_CALL(client_->api(), PJRT_Buffer_ToHostBuffer, args);
  Event(client_->api(), args.event).await();
}

Buffer* Buffer::copy_to(int device) {
  client_->require(device, bytes_);
  PJRT_ARGS(PJRT_Buffer_CopyToDevice_Args, args);
  args.buffer = raw();
  args.dst_device = client_->device(device);
  client_->allocating(device, bytes_,
                      [&] { PJRT_CALL(client_->api(), PJRT_Buffer_CopyToDevice, args); });
  return new Buffer(client_, args.dst_buffer, device, bytes_);
}

}  // namespace torch_tpu::pjrt
