// Cells: allocation of addresses, the list of live cells, wrapping arrays as tensors. See
// storage.h.
#include "storage.h"

#include <ATen/EmptyTensor.h>
#include <sys/mman.h>

#include <bit>
#include <condition_variable>

#include "../dispatch/deferred.h"
#include "history.h"

namespace torch_tpu {

namespace {

// Hands out ranges of one large reservation that is never mapped. Ranges are powers of two of at
// least 64 bytes, kept in free lists by size.
class AddressSpace {
 public:
  AddressSpace() {
    for (size_t bits = 46; bits >= 40; --bits) {
      void* base = mmap(nullptr, size_t{1} << bits, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base != MAP_FAILED) {
        next_ = static_cast<char*>(base);
        end_ = next_ + (size_t{1} << bits);
        return;
      }
    }
    TORCH_CHECK(false, "cannot reserve address space for tpu storages");
  }

  char* take(int size_class) {
    std::lock_guard guard(lock_);
    auto& list = free_[size_class];
    if (!list.empty()) {
      char* address = list.back();
      list.pop_back();
      return address;
    }
    size_t size = size_t{1} << size_class;
    TORCH_CHECK_WITH(OutOfMemoryError, static_cast<size_t>(end_ - next_) >= size,
                     "tpu address space exhausted");
    char* address = next_;
    next_ += size;
    return address;
  }

  void give(char* address, int size_class) {
    std::lock_guard guard(lock_);
    free_[size_class].push_back(address);
  }

  static int class_of(size_t nbytes) {
    return std::max(6, static_cast<int>(std::bit_width(nbytes - 1)));
  }

 private:
  SpinLock lock_;
  char* next_ = nullptr;
  char* end_ = nullptr;
  std::array<std::vector<char*>, 64> free_;
};

AddressSpace& addresses() {
  static auto* space = new AddressSpace;
  return *space;
}

// Live cells of one device: an intrusive list, for synchronisation and memory reports.
struct LiveCells {
  SpinLock lock;
  Cell head;
  LiveCells() { head.previous = head.next = &head; }
};

constexpr int kMaxDevices = 256;

LiveCells& live_cells(int device) {
  static auto* lists = new std::array<LiveCells, kMaxDevices>;
  return (*lists)[device];
}

}  // namespace

void release_cell(void* context) {
  auto* cell = static_cast<Cell*>(context);
  {
    LiveCells& live = live_cells(cell->device);
    std::lock_guard guard(live.lock);
    if (cell->owners.fetch_sub(1) > 1) return;
    cell->previous->next = cell->next;
    cell->next->previous = cell->previous;
  }
  if (memory_history() == MemoryHistory::kAll && cell->nbytes > 0) {
    record_event({MemoryEvent::kFreed, reinterpret_cast<uintptr_t>(cell->address), cell->nbytes,
                  cell->device, 0, cell->made});
  }
  if (cell->address != nullptr) addresses().give(cell->address, cell->size_class);
  delete cell;
}

Cell* adopt_cell(c10::StorageImpl* storage) {
  int device = storage->device().index();
  auto* data = static_cast<char*>(storage->mutable_data());
  Cell* found = nullptr;
  if (data != nullptr) {
    LiveCells& live = live_cells(device);
    std::lock_guard guard(live.lock);
    for (Cell* cell = live.head.next; cell != &live.head; cell = cell->next) {
      if (cell->address == data) found = cell;
    }
    if (found != nullptr) found->owners.fetch_add(1);
  }
  if (found == nullptr) {
    TORCH_CHECK(storage->nbytes() == 0,
                "a tpu tensor was made from a pointer that is not the start "
                "of a tpu storage; device memory has no host address");
    storage->set_data_ptr_noswap(make_cell(0, device));
    return cell_of(storage);
  }
  storage->set_data_ptr_noswap(
      {data, found, &release_cell,
       c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device))});
  return found;
}

c10::DataPtr make_cell(size_t nbytes, int device) {
  Runtime& runtime = Runtime::get();
  int64_t limit = runtime.client().memory(device).limit.load(std::memory_order_relaxed);
  // Beyond the limit there is no need to wait for the first write.
  if (nbytes > static_cast<size_t>(limit)) {
    runtime.client().require(device, static_cast<int64_t>(std::min<size_t>(nbytes, INT64_MAX)));
  }
  auto* cell = new Cell;
  cell->device = device;
  cell->nbytes = nbytes;
  cell->made = making_line();
  if (nbytes > 0) {
    cell->size_class = AddressSpace::class_of(nbytes);
    cell->address = addresses().take(cell->size_class);
  }
  LiveCells& live = live_cells(device);
  {
    std::lock_guard guard(live.lock);
    cell->next = live.head.next;
    cell->previous = &live.head;
    live.head.next->previous = cell;
    live.head.next = cell;
  }
  if (memory_history() == MemoryHistory::kAll && nbytes > 0) {
    record_event({MemoryEvent::kMade, reinterpret_cast<uintptr_t>(cell->address), nbytes, device, 0,
                  cell->made});
  }
  return {cell->address, cell, &release_cell,
          c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device))};
}

at::Tensor wrap(pjrt::BufferRef array, c10::ScalarType dtype, c10::ArrayRef<int64_t> dims,
                c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides, int64_t nbytes,
                int device) {
  c10::DataPtr data = make_cell(nbytes, device);
  auto* cell = static_cast<Cell*>(data.get_context());
  cell->buffer = std::move(array);
  cell->dtype = dtype;
  cell->dims.assign(dims.begin(), dims.end());
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                       std::move(data), device_allocator(), true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

void for_each_cell(int device, const std::function<void(Cell&)>& visit) {
  LiveCells& live = live_cells(device);
  std::lock_guard guard(live.lock);
  for (Cell* cell = live.head.next; cell != &live.head; cell = cell->next) visit(*cell);
}

namespace {

// Callbacks of `when_ready` that are still to come, by device.
struct Callbacks {
  std::mutex mutex;
  std::condition_variable changed;
  std::array<int64_t, kMaxDevices> outstanding{};
};

Callbacks& callbacks() {
  static auto* instance = new Callbacks;
  return *instance;
}

// `done`, which `synchronize` waits for from now on.
std::function<void()> awaited(size_t device, std::function<void()> done) {
  std::lock_guard guard(callbacks().mutex);
  ++callbacks().outstanding[device];
  return [device, done = std::move(done)] {
    done();
    std::lock_guard guard(callbacks().mutex);
    --callbacks().outstanding[device];
    callbacks().changed.notify_all();
  };
}

}  // namespace

void when_ready(pjrt::Buffer& array, std::function<void()> done) {
  array.on_ready(awaited(static_cast<size_t>(array.device()), std::move(done)));
}

void when_happened(const std::shared_ptr<pjrt::Completion>& completion, int device,
                   std::function<void()> done) {
  pjrt::on_completion(completion, awaited(static_cast<size_t>(device), std::move(done)));
}

std::vector<pjrt::BufferRef> pending_arrays(int device) {
  guarded("the deferred operators", [&] { flush(device, FlushCause::kSynchronize); });
  std::vector<pjrt::BufferRef> held;
  for_each_cell(device, [&](Cell& cell) {
    if (auto array = cell.array()) held.push_back(std::move(array));
  });
  std::vector<pjrt::BufferRef> pending;
  for (auto& array : held) {
    // What is still deferred failed, which is said to whoever asks for it.
    if (!array->deferred() && !array->ready()) pending.push_back(std::move(array));
  }
  return pending;
}

void synchronize(int device) {
  if (!Runtime::running()) return;
  for (auto& array : pending_arrays(device)) {
    guarded("synchronize", [&] { array->await(); });
  }
  for (auto& completion : pjrt::abandoned(device)) completion->await();
  std::unique_lock lock(callbacks().mutex);
  callbacks().changed.wait(
      lock, [&] { return callbacks().outstanding[static_cast<size_t>(device)] == 0; });
}

}  // namespace torch_tpu
