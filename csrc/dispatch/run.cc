// Execution of cache entries; see entry.h.
#include "entry.h"

namespace torch_tpu {

const pjrt::BufferRef& Operand::on(int device) {
  if (!array) {
    c10::SmallVector<int64_t, 1> dims;
    if (length >= 0) dims.push_back(length);
    auto& runtime = Runtime::get();
    std::span<const int64_t> shape(dims.data(), dims.size());
    array = cached ? runtime.constant(type, shape, data, bytes, device)
                   : runtime.client().from_host(data, type, shape, bytes, device);
  }
  return array;
}

void run_entry(const Entry& entry, Operands& operands, int device,
               c10::SmallVectorImpl<pjrt::BufferRef>& results, bool may_donate) {
  c10::SmallVector<pjrt::Buffer*, 8> arguments;
  for (int32_t index : entry.operands) arguments.push_back(operands[index].on(device).get());

  // An array may be donated if only its cell and this call refer to it, and this call only once.
  c10::SmallVector<int64_t, 4> keep;
  c10::SmallVector<pjrt::Buffer*, 4> donated;
  for (const Donation& donation : entry.donations) {
    pjrt::Buffer* array = arguments[donation.argument];
    if (may_donate && array->referenced_exactly(2)) {
      donated.push_back(array);
    } else {
      keep.push_back(donation.argument);
    }
  }
  results.resize(entry.output_bytes.size());
  entry.program->execute(device, {arguments.data(), arguments.size()}, {keep.data(), keep.size()},
                         {donated.data(), donated.size()}, entry.output_bytes, results.data());
}

}  // namespace torch_tpu
