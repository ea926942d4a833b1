// The device allocator (statistics over cells) and the pinned host allocator.
//
// Allocating makes an uninitialised cell and takes no device memory; memory is taken when a program
// writes the cell. The statistics therefore count device arrays, as torch.tpu.memory_allocated
// shows.
#include "allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdlib>
#include <unordered_map>

#include "storage.h"

namespace torch_tpu {

namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override { return make_cell(nbytes, current_device()); }

  // Device pointers are not addresses, so raw allocation cannot be offered.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "tpu memory has no host address: copy tensors with copy_ instead");
  }

  bool initialized() override { return Runtime::running(); }

  void emptyCache(c10::MempoolId_t) override {}

  // Programs hold references to what they read until they are done, on every stream.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto& memory = Runtime::get().client().memory(checked_device(device));
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto fill = [](c10::CachingAllocator::StatArray& array, int64_t current, int64_t peak,
                   int64_t allocated, int64_t freed) {
      auto& stat = array[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
      stat.current = current;
      stat.peak = peak;
      stat.allocated = allocated;
      stat.freed = freed;
    };
    int64_t bytes = memory.allocated.load();
    int64_t peak = memory.peak.load();
    for (auto* array : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                        &stats.requested_bytes}) {
      fill(*array, bytes, peak, 0, 0);
    }
    int64_t made = memory.allocations.load();
    int64_t freed = memory.frees.load();
    fill(stats.allocation, made - freed, made - freed, made, freed);
    fill(stats.active, made - freed, made - freed, made, freed);
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    auto& memory = Runtime::get().client().memory(checked_device(device));
    int64_t live = memory.allocations.load() - memory.frees.load();
    memory.allocations.store(live);
    memory.frees.store(0);
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    auto& memory = Runtime::get().client().memory(checked_device(device));
    memory.peak.store(memory.allocated.load());
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto& memory = Runtime::get().client().memory(checked_device(device));
    int64_t free = std::max<int64_t>(0, memory.limit - memory.allocated.load());
    return {static_cast<size_t>(free), static_cast<size_t>(memory.limit)};
  }
};

DeviceAllocator the_device_allocator;
REGISTER_ALLOCATOR(kTpu, &the_device_allocator);

// Pinned memory: ordinary aligned host memory, remembered so that is_pinned() can tell.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) return {nullptr, nullptr, &remove, c10::Device(c10::DeviceType::CPU)};
    void* pointer = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&pointer, 64, nbytes) == 0,
                     "cannot allocate ", nbytes, " bytes of pinned host memory");
    std::lock_guard guard(mutex());
    blocks()[reinterpret_cast<uintptr_t>(pointer)] = nbytes;
    return {pointer, pointer, &remove, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &remove; }
  void copy_data(void* to, const void* from, std::size_t n) const override { memcpy(to, from, n); }
  // Host copies are synchronous (the source may be reused at once), so there is nothing to track.
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  static bool owns(const void* pointer) {
    std::lock_guard guard(mutex());
    auto address = reinterpret_cast<uintptr_t>(pointer);
    auto after = blocks().upper_bound(address);
    if (after == blocks().begin()) return false;
    --after;
    return address < after->first + after->second;
  }

 private:
  static void remove(void* pointer) {
    if (pointer == nullptr) return;
    {
      std::lock_guard guard(mutex());
      blocks().erase(reinterpret_cast<uintptr_t>(pointer));
    }
    std::free(pointer);
  }
  static std::mutex& mutex() {
    static auto* instance = new std::mutex;
    return *instance;
  }
  static std::map<uintptr_t, size_t>& blocks() {
    static auto* instance = new std::map<uintptr_t, size_t>;
    return *instance;
  }
};

PinnedAllocator the_pinned_allocator;
REGISTER_HOST_ALLOCATOR(kTpu, &the_pinned_allocator);

}  // namespace

c10::Allocator* device_allocator() { return &the_device_allocator; }
c10::Allocator* pinned_allocator() { return &the_pinned_allocator; }
bool is_pinned(const void* pointer) { return PinnedAllocator::owns(pointer); }

}  // namespace torch_tpu
