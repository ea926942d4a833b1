// The device allocator (statistics over cells) and the pinned host allocator.
//
// Allocating makes an uninitialised cell and takes no device memory; memory is taken when a program
// writes the cell. The statistics therefore count device arrays, as torch.tpu.memory_allocated
// shows.
#include "allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdlib>
#include <map>

#include "storage.h"

namespace torch_tpu {

namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;
constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::CachingAllocator::Stat to_stat(const pjrt::Counter& counter) {
  c10::CachingAllocator::Stat stat;
  stat.current = counter.current();
  stat.peak = counter.peak();
  stat.allocated = counter.added();
  stat.freed = counter.removed();
  return stat;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    return guarded("aten::empty", [&] { return make_cell(nbytes, current_device()); });
  }

  // Device pointers are not addresses, so raw allocation cannot be offered.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "tpu memory has no host address: copy tensors with copy_ instead");
  }

  bool initialized() override { return Runtime::running(); }

  void emptyCache(c10::MempoolId_t) override {}

  // Programs hold references to what they read until they are done, on every stream.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  // Arrays are neither split nor kept after use, so that what is allocated is what is active,
  // reserved and asked for, and an array is a segment.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto& memory = Runtime::get().client().memory(checked_device(device));
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* array : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                        &stats.requested_bytes}) {
      (*array)[kAll] = to_stat(memory.bytes);
    }
    for (auto* array : {&stats.allocation, &stats.segment, &stats.active}) {
      (*array)[kAll] = to_stat(memory.arrays);
    }
    stats.num_ooms = memory.ooms.load();
    stats.num_alloc_retries = memory.retries.load();
    stats.num_device_alloc = memory.arrays.added();
    stats.num_device_free = memory.arrays.removed();
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    Runtime::get().client().memory(checked_device(device)).reset_sums();
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    Runtime::get().client().memory(checked_device(device)).reset_peaks();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto& memory = Runtime::get().client().memory(checked_device(device));
    int64_t free = std::max<int64_t>(0, memory.limit.load() - memory.bytes.current());
    return {static_cast<size_t>(free), static_cast<size_t>(memory.total)};
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
    counters().add(static_cast<int64_t>(nbytes));
    return {pointer, pointer, &remove, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &remove; }
  void copy_data(void* to, const void* from, std::size_t n) const override { memcpy(to, from, n); }
  // Host copies are synchronous (the source may be reused at once), so there is nothing to track.
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    at::HostStats stats;
    stats.active_bytes = stats.allocated_bytes = to_stat(counters().bytes);
    stats.active_requests = stats.allocations = to_stat(counters().arrays);
    stats.num_host_alloc = counters().arrays.added();
    stats.num_host_free = counters().arrays.removed();
    return stats;
  }
  void reset_accumulated_stats() override { counters().reset_sums(); }
  void reset_peak_stats() override { counters().reset_peaks(); }

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
      auto block = blocks().find(reinterpret_cast<uintptr_t>(pointer));
      counters().remove(static_cast<int64_t>(block->second));
      blocks().erase(block);
    }
    std::free(pointer);
  }
  static std::mutex& mutex() {
    static auto* instance = new std::mutex;
    return *instance;
  }
  static pjrt::MemoryCounters& counters() {
    static auto* instance = new pjrt::MemoryCounters;
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
at::HostAllocator* pinned_allocator() { return &the_pinned_allocator; }
bool is_pinned(const void* pointer) { return PinnedAllocator::owns(pointer); }

}  // namespace torch_tpu
