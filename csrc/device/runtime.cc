// See runtime.h.
#include "runtime.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <cstring>

#include "history.h"
#include "host_kernels.h"

namespace torch_tpu {

std::atomic<Runtime*> Runtime::instance_{nullptr};

namespace {

// Never destroyed: it holds a Python object, and Python is gone when statics are destroyed.
Runtime::Chooser& chooser() {
  static auto* instance = new Runtime::Chooser;
  return *instance;
}

std::mutex& start_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::atomic<bool> forked{false};
thread_local int this_device = 0;

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t hash = seed * 0x9E3779B97F4A7C15ull + bytes;
  while (bytes > 0) {
    uint64_t word = 0;
    size_t n = bytes < 8 ? bytes : 8;
    std::memcpy(&word, p, n);
    hash = (hash ^ word) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
    p += n;
    bytes -= n;
  }
  return hash;
}

}  // namespace

std::atomic<int> Runtime::expected_devices{1};

void Runtime::set_chooser(Chooser value) { chooser() = std::move(value); }

Runtime::Runtime(pjrt::Client* client)
    : client_(client), host_kernels_(pjrt::register_host_kernel(*client, &run_host_kernel)) {
  for (int i = 0; i < client->device_count(); ++i) {
    constants_.push_back(std::make_unique<ConstantCache>());
    constants_.back()->slots.resize(512);
  }
}

Runtime& Runtime::get() {
  TORCH_CHECK(
      !forked.load(std::memory_order_relaxed),
      "Cannot use a tpu in a forked subprocess after the parent has initialised it. Use the "
      "'spawn' start method of multiprocessing");
  if (Runtime* running = instance_.load(std::memory_order_acquire)) return *running;
  // The choice is made before taking the lock: it runs Python, which may need the GIL that another
  // thread waiting here could hold.
  TORCH_CHECK(chooser(), "torch_tpu is not set up: import torch_tpu first");
  auto [path, options] = chooser()();
  std::lock_guard guard(start_mutex());
  if (Runtime* running = instance_.load(std::memory_order_acquire)) return *running;
  try {
    auto* runtime = new Runtime(pjrt::Client::create(path, options));
    pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
    instance_.store(runtime, std::memory_order_release);
    return *runtime;
  } catch (const pjrt::Error& error) {
    TORCH_CHECK(false, "the tpu runtime cannot start: ", error.what(),
                ". Set TORCH_TPU_PJRT_PLUGIN to a working PJRT plugin, or unset it to use the "
                "installed xla-cpu-pjrt");
  }
}

pjrt::BufferRef Runtime::constant(pjrt::ElementType type, std::span<const int64_t> dims,
                                  const void* data, size_t bytes, int device) {
  TORCH_INTERNAL_ASSERT(bytes <= kMaxConstant);
  ConstantCache& cache = *constants_[device];
  // Rank and type are part of the identity: the same bytes can mean a scalar or a vector.
  uint64_t seed = static_cast<uint64_t>(type) * 64 + dims.size() + 1;
  uint64_t hash = hash_bytes(data, bytes, seed);
  Slot& slot = cache.slots[hash % cache.slots.size()];
  {
    std::lock_guard guard(cache.lock);
    if (slot.hash == hash && slot.bytes == bytes && slot.buffer &&
        std::memcmp(slot.data.data(), data, bytes) == 0) {
      return slot.buffer;
    }
  }
  auto buffer = client_->from_host(data, type, dims, static_cast<int64_t>(bytes), device);
  buffer->mark_donated();  // shared constants are ours, not the user's memory
  std::lock_guard guard(cache.lock);
  slot.hash = hash;
  slot.bytes = static_cast<uint32_t>(bytes);
  std::memcpy(slot.data.data(), data, bytes);
  slot.buffer = buffer;
  return buffer;
}

int current_device() { return this_device; }

void set_current_device(int device) { this_device = checked_device(device); }

int checked_device(int64_t index) {
  if (index < 0) return this_device;
  int count = Runtime::get().device_count();
  TORCH_CHECK(index < count, "invalid device ordinal tpu:", index, ": this process has ", count,
              count == 1 ? " tpu device" : " tpu devices",
              " (TORCH_TPU_CPU_DEVICES sets their number on the CPU plugin)");
  return static_cast<int>(index);
}

namespace {

[[noreturn]] void out_of_memory(const pjrt::Error& error, const std::string& what) {
  int device = error.device() >= 0 ? error.device() : this_device;
  pjrt::MemoryCounters& memory = Runtime::get().client().memory(device);
  memory.ooms.fetch_add(1);
  // As in PyTorch's traces, the address of such an event is what was free.
  auto free = std::max<int64_t>(0, memory.limit.load() - memory.bytes.current());
  record_event({MemoryEvent::kOutOfMemory, static_cast<uintptr_t>(free),
                static_cast<size_t>(error.bytes()), device, 0, making_line()});
  TORCH_CHECK_WITH(OutOfMemoryError, false, "tpu out of memory in ", what, ": ", error.what(),
                   largest_arrays(device));
}

}  // namespace

void rethrow(const pjrt::Error& error, const std::string& what) {
  if (error.out_of_memory()) {
    out_of_memory(error, what);
  }
  throw_host_error(error.what());
  TORCH_CHECK(false, what, " failed on tpu: ", error.what());
}

}  // namespace torch_tpu
