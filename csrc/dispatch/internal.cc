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

pjrt::BufferRef run_internal(const Key& key, Operands& operands, int device, bool may_donate) {
  const Entry& entry = internal_entry(key);
  c10::SmallVector<pjrt::BufferRef, 2> results;
  guarded("a view program", [&] { run_entry(entry, operands, device, results, may_donate); });
  return std::move(results[0]);
}

int64_t product(c10::ArrayRef<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

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

}  // namespace

const Entry& internal_entry(const Key& key) {
  Cache& cache = internal_cache();
  if (const Entry* entry = cache.find(key)) return *entry;
  return *build_once(cache, key, [&] { return build_internal(key.words()); });
}

pjrt::BufferRef readable_array(const at::Tensor& tensor, Dims* dims) {
  Cell* cell = cell_of(tensor);
  pjrt::BufferRef array;
  c10::ScalarType from;
  {
    std::lock_guard guard(cell->lock);
    array = cell->buffer;
    from = cell->dtype;
    if (dims) *dims = cell->dims;
    if (array && from == tensor.scalar_type()) return array;
  }
  c10::ScalarType to = tensor.scalar_type();
  element_type(to);  // refuses dtypes XLA does not have
  auto nbytes = static_cast<int64_t>(tensor.storage().nbytes());
  auto width = static_cast<int64_t>(c10::elementSize(to));
  TORCH_CHECK(nbytes % width == 0, "a storage of ", nbytes, " bytes cannot be read as ", to,
              " on tpu: its size must be a multiple of ", width);
  Dims shape;
  if (covers_storage(tensor)) {
    shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  } else {
    shape = {nbytes / width};
  }
  Operands operands;
  Key key;
  if (!array) {
    key = start(Internal::kZeros, to, shape);
  } else {
    Dims old;
    {
      std::lock_guard guard(cell->lock);
      old = cell->dims;
    }
    key = start(Internal::kRetype, from, old);
    key.push(static_cast<int64_t>(to));
    key.push(static_cast<int64_t>(shape.size()));
    key.push(shape);
    operands.push_back(Operand::of_array(std::move(array)));
  }
  array = run_internal(key, operands, cell->device, false);
  cell->replace(array, to, shape);
  if (dims) *dims = shape;
  return array;
}

pjrt::BufferRef dense_array(const at::Tensor& tensor, bool exact_dims) {
  Dims dims;
  pjrt::BufferRef array = readable_array(tensor, &dims);
  bool whole = covers_storage(tensor);
  if (whole && (!exact_dims || c10::ArrayRef<int64_t>(dims) == tensor.sizes())) return array;
  ViewPlan plan;
  if (!whole) plan = plan_view(dims, tensor.sizes(), tensor.strides(), tensor.storage_offset());
  Key key = start(Internal::kRead, tensor.scalar_type(), dims);
  push_plan(key, plan, tensor);
  Operands operands;
  operands.push_back(Operand::of_array(std::move(array)));
  if (!whole) operands.push_back(Operand::of_words(plan.starts));
  return run_internal(key, operands, tensor.device().index(), false);
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
  Dims dims;
  pjrt::BufferRef base = readable_array(tensor, &dims);
  ViewPlan plan = plan_view(dims, tensor.sizes(), tensor.strides(), tensor.storage_offset());
  Key key = start(Internal::kWrite, tensor.scalar_type(), dims);
  push_plan(key, plan, tensor);
  Operands operands;
  operands.push_back(Operand::of_array(std::move(base)));
  operands.push_back(Operand::of_array(std::move(value)));
  operands.push_back(Operand::of_words(plan.starts));
  auto updated = run_internal(key, operands, tensor.device().index(), true);
  cell->replace(std::move(updated), tensor.scalar_type(), dims);
}

void resize_storage(c10::StorageImpl* storage, size_t nbytes) {
  size_t old_bytes = storage->nbytes();
  if (nbytes == old_bytes) return;
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  Cell* old = cell_of(storage);
  int device = old != nullptr ? old->device : storage->device().index();
  c10::DataPtr data = make_cell(nbytes, device);
  auto* fresh = static_cast<Cell*>(data.get_context());
  pjrt::BufferRef array = old != nullptr ? old->array() : pjrt::BufferRef();
  if (array && nbytes > 0) {
    auto width = static_cast<int64_t>(c10::elementSize(old->dtype));
    TORCH_CHECK(nbytes % width == 0, "cannot resize a tpu storage of ", old->dtype, " to ", nbytes,
                " bytes: the size must be a multiple of ", width);
    Key key = start(Internal::kResize, old->dtype, old->dims);
    Dims shape{static_cast<int64_t>(nbytes) / width};
    key.push(shape[0]);
    Operands operands;
    operands.push_back(Operand::of_array(std::move(array)));
    fresh->replace(run_internal(key, operands, device, false), old->dtype, shape);
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
