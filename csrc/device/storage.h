// What stands behind a tpu tensor's storage: a cell holding one device array that can be replaced.
//
// A `Cell` is the context of the storage's DataPtr, so ordinary StorageImpl/TensorImpl objects
// carry it. The array covers the whole storage: product(dims) * itemsize(dtype) == storage nbytes;
// or it has slack: a flat array, row-major, that is longer than the storage (csrc/dispatch/flat.h).
// A cell without an array is uninitialised; its first full write gives it dtype and dims. `address`
// is a unique reserved (never mapped) address range, so that data_ptr() identifies storages and
// pointer arithmetic on it is valid, while dereferencing it faults.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <thread>

#include "../dispatch/source_line.h"
#include "../pjrt/abandoned.h"
#include "allocator.h"
#include "dtype.h"
#include "runtime.h"

namespace torch_tpu {

using Dims = c10::SmallVector<int64_t, 6>;

struct Cell {
  mutable SpinLock lock;
  // A writer has taken the array out and will replace it or put it back. Never while it waits for
  // the GIL or for another cell, so readers may simply wait.
  bool taken = false;
  pjrt::BufferRef buffer;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  Dims dims;
  int device = 0;
  std::atomic<int> owners{1};  // storages over this cell: more than one after from_blob
  int size_class = -1;
  char* address = nullptr;
  size_t nbytes = 0;  // of the storage
  SourceLine made;    // if lines are recorded (history.h)
  Cell* previous = nullptr;
  Cell* next = nullptr;

  pjrt::BufferRef array() const {
    std::lock_guard guard(lock);
    return buffer;
  }
  // Takes the array out if it still is `expected` and has `references` owners; the caller must
  // `replace` it or `put_back`. Whoever reads or writes the storage meanwhile waits.
  bool take(const pjrt::Buffer* expected, int references) {
    std::lock_guard guard(lock);
    if (taken || buffer.get() != expected) return false;
    if (expected != nullptr && references > 0 && !expected->referenced_exactly(references)) {
      return false;
    }
    buffer = {};
    taken = true;
    return true;
  }
  void put_back(pjrt::BufferRef array) {
    std::lock_guard guard(lock);
    if (!taken) return;  // already replaced
    buffer = std::move(array);
    taken = false;
  }
  // Replaces the array; every alias of the storage sees it.
  void replace(pjrt::BufferRef array, c10::ScalarType type, c10::ArrayRef<int64_t> shape) {
    std::lock_guard guard(lock);
    taken = false;
    std::swap(buffer, array);  // the old one is freed after the lock is released
    dtype = type;
    if (c10::ArrayRef<int64_t>(dims) != shape) dims.assign(shape.begin(), shape.end());
  }
};

// Holds a cell's lock while its array is in place.
class CellLock {
 public:
  explicit CellLock(Cell& cell) : cell_(cell) {
    cell_.lock.lock();
    while (cell_.taken) {
      cell_.lock.unlock();
      std::this_thread::yield();
      cell_.lock.lock();
    }
  }
  ~CellLock() { cell_.lock.unlock(); }
  CellLock(const CellLock&) = delete;
  CellLock& operator=(const CellLock&) = delete;

 private:
  Cell& cell_;
};

// A new uninitialised cell for `nbytes`, as a DataPtr that owns it. Throws pjrt::Error if `nbytes`
// is more than may be used of the device.
c10::DataPtr make_cell(size_t nbytes, int device);

void release_cell(void* cell);
// Makes a storage that was built over the data pointer of a tpu storage (at::from_blob, as
// torch.save and torch.load do) share that storage's cell. Throws if there is none.
Cell* adopt_cell(c10::StorageImpl* storage);

inline Cell* cell_of(c10::StorageImpl* storage) {
  const c10::DataPtr& data = storage->data_ptr();
  if (data.get_deleter() != &release_cell) return adopt_cell(storage);
  return static_cast<Cell*>(data.get_context());
}
inline Cell* cell_of(const at::TensorBase& tensor) {
  return cell_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

// A new tensor over a fresh cell holding `array`, whose dims are `dims`.
at::Tensor wrap(pjrt::BufferRef array, c10::ScalarType dtype, c10::ArrayRef<int64_t> dims,
                c10::ArrayRef<int64_t> sizes, c10::ArrayRef<int64_t> strides, int64_t nbytes,
                int device);

// Whether `tensor` is its whole storage in row-major order.
inline bool covers_storage(const at::TensorBase& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return impl->is_contiguous() && impl->storage_offset() == 0 &&
         static_cast<size_t>(impl->numel()) * impl->itemsize() == impl->unsafe_storage().nbytes();
}

// Calls `visit` on every live cell of `device`. Cells cannot die meanwhile.
void for_each_cell(int device, const std::function<void(Cell&)>& visit);
// The arrays of `device` that are not known to be computed yet; hands over what is deferred first.
std::vector<pjrt::BufferRef> pending_arrays(int device);
// Calls `done` from a runtime thread when `array` is computed; `synchronize` waits for that, too.
void when_ready(pjrt::Buffer& array, std::function<void()> done);
// The same for an array of `device` that was given up.
void when_happened(const std::shared_ptr<pjrt::Completion>& completion, int device,
                   std::function<void()> done);
// Waits for all work on `device`.
void synchronize(int device);

}  // namespace torch_tpu
