// Execution of cache entries; see entry.h.
#include "deferred.h"
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
               c10::SmallVectorImpl<pjrt::BufferRef>& results, TakenCells& taken) {
  if (entry.deferrable && deferring()) return defer(entry, operands, device, results);
  c10::SmallVector<pjrt::Buffer*, 8> arguments;
  for (int32_t index : entry.operands) {
    arguments.push_back(operands[index].on(device).get());
    arguments.back()->raw();  // computes it, so that nothing pending refers to it any more
  }

  c10::SmallVector<int64_t, 4> keep;
  c10::SmallVector<pjrt::Buffer*, 4> donated;
  c10::SmallVector<const Operand*, 4> owners;
  for (int32_t argument : entry.donations) {
    const Operand& operand = operands[entry.operands[argument]];
    // Without a cell the caller has taken the array itself: the operand is its only owner.
    bool sole = operand.cell != nullptr ? taken.take(operand.cell, operand.array)
                                        : operand.array->referenced_exactly(1);
    if (sole) {
      donated.push_back(operand.array.get());
      if (operand.cell != nullptr) owners.push_back(&operand);
    } else {
      keep.push_back(argument);
    }
  }
  results.resize(entry.output_bytes.size());
  try {
    const pjrt::Executable& program = entry.program();
    Launch launch(entry.name, device);
    program.execute(device, {arguments.data(), arguments.size()}, {keep.data(), keep.size()},
                    {donated.data(), donated.size()}, entry.output_bytes, results.data(),
                    launch.watch());
    if (eager_mode() == EagerMode::kDebug) {
      for (const auto& result : results) result->await();
    }
  } catch (const pjrt::Error&) {
    taken.restore(owners);
    throw;
  }
}

}  // namespace torch_tpu
