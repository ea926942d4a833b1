// See internal.h.
#include "internal.h"

#include <ATen/MemoryOverlap.h>

#include "miss.h"

namespace torch_tpu {

namespace {

Cache& internal_cache() {
  static auto* cache = new Cache;
  return *cache;
}

Key start(Internal kind, c10::ScalarType dtype, c10::ArrayRef<int64_t> dims) {
  Key key;
  key.push(static_cast<int64_t>(kind));
  key.push(static_cast<int64_t>(dtype));
  key.push(static_cast<int64_t>(dims.size()));
  key.push(dims);
  return key;
}

pjrt::BufferRef run_unguarded(const Entry& entry, Operands& operands, int device) {
  c10::SmallVector<pjrt::BufferRef, 2> results;
  TakenCells none;
  run_entry(entry, operands, device, results, none);
  return std::move(results[0]);
}

pjrt::BufferRef run_internal(const char* what, const Entry& entry, Operands& operands, int device) {
  return guarded(what, [&] { return run_unguarded(entry, operands, device); });
}

// The array of a cell at one moment.
struct Snapshot {
  pjrt::BufferRef array;
  c10::ScalarType dtype;
  Dims dims;

  explicit Snapshot(Cell& cell) {
    CellLock guard(cell);
    array = cell.buffer;
    dtype = cell.dtype;
    dims = cell.dims;
  }
};

// Replaces the array of `cell` by the result of `entry`, whose first operand (if any) is that
// array, with nobody between reading and writing. Returns false, having done nothing, if the array
// is no longer that of `before`. The entry must be at hand: nothing may wait while the cell is
// taken; therefore pjrt::Error is thrown as it is, once the cell is released.
bool update_cell(Cell* cell, Snapshot& before, const Entry& entry, Operands& operands,
                 c10::ScalarType dtype, c10::ArrayRef<int64_t> dims) {
  if (!cell->take(before.array.get(), 0)) return false;
  if (before.array) operands[0].array = std::move(before.array);
  pjrt::BufferRef updated;
  try {
    updated = run_unguarded(entry, operands, cell->device);
  } catch (...) {
    cell->put_back(entry.operands.empty() ? pjrt::BufferRef() : operands[0].array);
    throw;
  }
  cell->replace(std::move(updated), dtype, dims);
  return true;
}

int64_t product(c10::ArrayRef<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

}  // namespace

void push_plan(Key& key, const ViewPlan& plan, const at::Tensor& tensor) {
  key.push(static_cast<int64_t>(plan.kind));
  key.push(static_cast<int64_t>(tensor.dim()));
  key.push(tensor.sizes());
  if (plan.kind == ViewPlan::kSlice) {
    key.push(static_cast<int64_t>(plan.dims.size()));
    for (const Dims* part : {&plan.dims, &plan.counts, &plan.steps, &plan.places}) key.push(*part);
  } else if (plan.kind == ViewPlan::kGather) {
    key.push(tensor.strides());
  }
}

const Entry& internal_entry(const Key& key) {
  Cache& cache = internal_cache();
  if (const Entry* entry = cache.find(key)) return *entry;
  return *build_once(cache, key, [&] { return build_internal(key.words()); });
}

pjrt::BufferRef readable_array(const at::Tensor& tensor, Dims* dims) {
  Runtime::get();  // raises in a forked child, where the arrays of the parent are dead
  Cell* cell = cell_of(tensor);
  c10::ScalarType to = tensor.scalar_type();
  for (;;) {
    Snapshot now(*cell);
    if (now.array && now.dtype == to) {
      if (dims) *dims = now.dims;
      return now.array;
    }
    CallScope scope;
    element_type(to);  // refuses dtypes XLA does not have
    auto nbytes = static_cast<int64_t>(tensor.storage().nbytes());
    auto width = static_cast<int64_t>(c10::elementSize(to));
    TORCH_CHECK(nbytes % width == 0, "a storage of ", nbytes, " bytes cannot be read as ", to,
                " on tpu: its size must be a multiple of ", width);
    Dims shape{nbytes / width};
    if (covers_storage(tensor)) shape.assign(tensor.sizes().begin(), tensor.sizes().end());
    Operands operands;
    Key key;
    bool now_empty = !now.array;
    if (now_empty) {
      key = start(Internal::kZeros, to, shape);
    } else {
      key = start(Internal::kRetype, now.dtype, now.dims);
      key.push(static_cast<int64_t>(to));
      key.push(static_cast<int64_t>(shape.size()));
      key.push(shape);
      operands.push_back(Operand::of_array(now.array));
    }
    const Entry& entry = internal_entry(key);
    guarded(now_empty ? "filling uninitialised memory" : "reading memory as another dtype",
            [&] { update_cell(cell, now, entry, operands, to, shape); });
  }
}

pjrt::BufferRef dense_array(const at::Tensor& tensor, bool exact_dims) {
  Dims dims;
  pjrt::BufferRef array = readable_array(tensor, &dims);
  bool whole = covers_storage(tensor);
  if (whole && (!exact_dims || c10::ArrayRef<int64_t>(dims) == tensor.sizes())) return array;
  CallScope scope;
  ViewPlan plan;
  if (!whole) plan = plan_view(dims, tensor.sizes(), tensor.strides(), tensor.storage_offset());
  Key key = start(Internal::kRead, tensor.scalar_type(), dims);
  push_plan(key, plan, tensor);
  Operands operands;
  operands.push_back(Operand::of_array(std::move(array)));
  if (!whole) operands.push_back(Operand::of_words(plan.starts));
  return run_internal("reading a view", internal_entry(key), operands, tensor.device().index());
}

void check_writable(const at::Tensor& tensor) {
  TORCH_CHECK(at::has_internal_overlap(tensor.unsafeGetTensorImpl()) != at::MemOverlap::Yes,
              "unsupported operation: more than one element of the written-to tensor refers to a "
              "single memory location. Please clone() the tensor before performing the operation.");
}

void write_array(const at::Tensor& tensor, pjrt::BufferRef value) {
  if (tensor.numel() == 0) return;
  Cell* cell = cell_of(tensor);
  if (covers_storage(tensor)) {
    cell->replace(std::move(value), tensor.scalar_type(), tensor.sizes());
    return;
  }
  check_writable(tensor);
  CallScope scope;
  for (;;) {
    readable_array(tensor, nullptr);  // gives the array the tensor's dtype
    Snapshot now(*cell);
    if (!now.array || now.dtype != tensor.scalar_type()) continue;
    Dims dims = now.dims;
    ViewPlan plan = plan_view(dims, tensor.sizes(), tensor.strides(), tensor.storage_offset());
    Key key = start(Internal::kWrite, tensor.scalar_type(), dims);
    push_plan(key, plan, tensor);
    Operands operands;
    operands.push_back(Operand());
    operands.push_back(Operand::of_array(value));
    operands.push_back(Operand::of_words(plan.starts));
    const Entry& entry = internal_entry(key);
    bool written = guarded("writing a view", [&] {
      return update_cell(cell, now, entry, operands, tensor.scalar_type(), dims);
    });
    if (written) return;
  }
}

pjrt::BufferRef resized_array(const at::Tensor& tensor, int64_t length) {
  CallScope scope;
  Dims dims;
  Operands operands;
  operands.push_back(Operand::of_array(readable_array(tensor, &dims)));
  Key key = start(Internal::kResize, tensor.scalar_type(), dims);
  key.push(length);
  return run_internal("aten::resize_", internal_entry(key), operands, tensor.device().index());
}

void resize_storage(c10::StorageImpl* storage, size_t nbytes) {
  size_t old_bytes = storage->nbytes();
  if (nbytes == old_bytes) return;
  CallScope scope;
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  Cell* old = cell_of(storage);
  int device = old->device;
  c10::DataPtr data = guarded("aten::resize_", [&] { return make_cell(nbytes, device); });
  auto* fresh = static_cast<Cell*>(data.get_context());
  pjrt::BufferRef array = old->array();
  if (array && nbytes > 0) {
    auto width = static_cast<int64_t>(c10::elementSize(old->dtype));
    TORCH_CHECK(nbytes % width == 0, "cannot resize a tpu storage of ", old->dtype, " to ", nbytes,
                " bytes: the size must be a multiple of ", width);
    Key key = start(Internal::kResize, old->dtype, old->dims);
    Dims shape{static_cast<int64_t>(nbytes) / width};
    key.push(shape[0]);
    Operands operands;
    operands.push_back(Operand::of_array(std::move(array)));
    fresh->replace(run_internal("aten::resize_", internal_entry(key), operands, device), old->dtype,
                   shape);
  }
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(nbytes);
}

void resize_tensor(const at::Tensor& tensor, c10::ArrayRef<int64_t> sizes) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  size_t needed = (impl->storage_offset() + product(sizes)) * impl->itemsize();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) resize_storage(storage, needed);
}

}  // namespace torch_tpu
