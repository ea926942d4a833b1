// Device guard, streams and events.
//
// PJRT orders work by data dependence, so streams carry no ordering of their own: any number of
// them exists as identities, and whatever one stream wrote, another may read. An event stands for
// all work that was pending on its device when it was recorded.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <condition_variable>

#include "storage.h"

namespace torch_tpu {

namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;

class Event {
 public:
  explicit Event(int device) : device_(device) {}

  static void record(std::shared_ptr<Event>& event) {
    auto pending = pending_arrays(event->device_);
    auto abandoned = pjrt::abandoned(event->device_);
    auto fresh = std::make_shared<Event>(event->device_);
    fresh->remaining_ = static_cast<int64_t>(pending.size() + abandoned.size()) + 1;
    for (auto& array : pending) {
      when_ready(*array.get(), [fresh] { fresh->finish_one(); });
    }
    for (auto& completion : abandoned) {
      when_happened(completion, event->device_, [fresh] { fresh->finish_one(); });
    }
    fresh->finish_one();
    event = fresh;
  }

  bool done() {
    std::lock_guard guard(mutex_);
    return remaining_ == 0;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return remaining_ == 0; });
  }
  double milliseconds_to(const Event& later) const {
    return std::chrono::duration<double, std::milli>(later.time_ - time_).count();
  }

 private:
  void finish_one() {
    std::lock_guard guard(mutex_);
    if (--remaining_ == 0) {
      time_ = std::chrono::steady_clock::now();
      changed_.notify_all();
    }
  }

  int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t remaining_ = 0;
  std::chrono::steady_clock::time_point time_;
};

using EventHandle = std::shared_ptr<Event>;

EventHandle& handle(void* event) { return *static_cast<EventHandle*>(event); }

thread_local std::vector<c10::StreamId> current_streams;

c10::StreamId& current_stream(c10::DeviceIndex device) {
  size_t index = device < 0 ? current_device() : device;
  if (current_streams.size() <= index) current_streams.resize(index + 1, 0);
  return current_streams[index];
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kTpu; }

  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device previous = getDevice();
    if (device.index() != previous.index()) setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override {
    return {kTpu, static_cast<c10::DeviceIndex>(current_device())};
  }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      set_current_device(device.index());
    } catch (const c10::Error& error) {
      TORCH_WARN("cannot make ", device, " current: ", error.what_without_backtrace());
    } catch (const std::exception& error) {
      TORCH_WARN("cannot make ", device, " current: ", error.what());
    }
  }

  c10::Stream getStream(c10::Device device) const override {
    return stream(device, current_stream(device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<c10::StreamId> next{1};
    return stream(device, next.fetch_add(1));
  }
  c10::Stream exchangeStream(c10::Stream value) const override {
    auto& current = current_stream(value.device_index());
    c10::Stream previous = stream(value.device(), current);
    current = value.id();
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream value) const override {
    return reinterpret_cast<void*>(value.id());
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    // Autograd asks in every program, also in those that never use a tpu.
    if (!Runtime::running()) return static_cast<c10::DeviceIndex>(Runtime::expected_devices.load());
    try {
      return static_cast<c10::DeviceIndex>(Runtime::get().device_count());
    } catch (const std::exception&) {
      return 0;  // noexcept by contract: a runtime that cannot start has no devices
    }
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    auto& types = capability.capability_data.supported_scalar_types;
#define LIVES_ON_TPU(_, dtype) \
  types.has_##dtype =          \
      element_type_or_invalid(c10::ScalarType::dtype) != pjrt::ElementType::kInvalid;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(LIVES_ON_TPU)
#undef LIVES_ON_TPU
    return capability;
  }

  void record(void** event, const c10::Stream& value, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    int device = checked_device(value.device_index());
    if (*event == nullptr) *event = new EventHandle(std::make_shared<Event>(device));
    Event::record(handle(*event));
  }
  void block(void*, const c10::Stream&) const override {}  // data dependence already orders work
  bool queryEvent(void* event) const override { return event == nullptr || handle(event)->done(); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<EventHandle*>(event);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) EventHandle(handle(event))->wait();
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(first != nullptr && second != nullptr,
                "Both events must be recorded before calculating elapsed time");
    synchronizeEvent(first);
    synchronizeEvent(second);
    return handle(first)->milliseconds_to(*handle(second));
  }

  bool queryStream(const c10::Stream& value) const override {
    if (!Runtime::running()) return true;
    int device = checked_device(value.device_index());
    return pending_arrays(device).empty() && pjrt::abandoned(device).empty();
  }
  void synchronizeStream(const c10::Stream& value) const override {
    synchronize(checked_device(value.device_index()));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    synchronize(checked_device(device));
  }
  bool isStreamCapturing(const c10::Stream&) const override { return false; }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

 private:
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    auto index =
        static_cast<c10::DeviceIndex>(device.index() < 0 ? current_device() : device.index());
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kTpu, index), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

}  // namespace torch_tpu
