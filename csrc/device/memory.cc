// What Python may see of memory: counters, limits, live arrays and events. torch_tpu/api/memory.py
// gives them the names that users know.
#include "memory.h"

#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

#include "../dispatch/internal.h"
#include "history.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

pjrt::MemoryCounters& counters(int device) {
  return Runtime::get().client().memory(checked_device(device));
}

template <class Stat>
py::dict stat_of(const Stat& current, const Stat& peak, const Stat& allocated, const Stat& freed) {
  py::dict result;
  result["current"] = current;
  result["peak"] = peak;
  result["allocated"] = allocated;
  result["freed"] = freed;
  return result;
}

py::dict stat_of(const pjrt::Counter& counter) {
  return stat_of(counter.current(), counter.peak(), counter.added(), counter.removed());
}

py::dict memory_stats(int device) {
  const auto& memory = counters(device);
  py::dict result;
  result["bytes"] = stat_of(memory.bytes);
  result["arrays"] = stat_of(memory.arrays);
  result["ooms"] = memory.ooms.load();
  result["retries"] = memory.retries.load();
  result["total"] = memory.total;
  result["limit"] = memory.limit.load();
  return result;
}

py::dict pinned_stats() {
  at::HostStats stats = pinned_allocator()->get_stats();
  auto one = [](const c10::CachingAllocator::Stat& stat) {
    return stat_of(stat.current, stat.peak, stat.allocated, stat.freed);
  };
  py::dict result;
  result["bytes"] = one(stats.allocated_bytes);
  result["blocks"] = one(stats.allocations);
  return result;
}

py::object place(const SourceLine& line) {
  if (line.code == nullptr) return py::none();
  return py::make_tuple(line.file(), line.number(), line.function());
}

py::list live(int device) {
  py::list result;
  for (const LiveArray& array : live_arrays(checked_device(device))) {
    py::dict one;
    one["address"] = array.address;
    one["bytes"] = array.bytes;
    one["dtype"] = py::reinterpret_borrow<py::object>(
        reinterpret_cast<PyObject*>(torch::getTHPDtype(array.dtype)));
    one["shape"] = py::tuple(py::cast(std::vector<int64_t>(array.dims.begin(), array.dims.end())));
    one["deferred"] = array.deferred;
    one["place"] = place(array.line);
    result.append(one);
  }
  return result;
}

py::list memory_events(int device) {
  py::list result;
  for (const MemoryEvent& event : recorded_events(checked_device(device))) {
    result.append(py::make_tuple(static_cast<int>(event.action), event.address, event.bytes,
                                 event.microseconds, place(event.line)));
  }
  return result;
}

}  // namespace

void bind_memory(py::module_& m) {
  m.def("memory_stats", &memory_stats);
  m.def("reset_peak_memory", [](int device) { counters(device).reset_peaks(); });
  m.def("reset_accumulated_memory", [](int device) { counters(device).reset_sums(); });
  m.def("set_memory_limit", [](int device, int64_t bytes) { counters(device).limit.store(bytes); });
  m.def("pinned_stats", &pinned_stats);
  m.def("reset_pinned_peak", [] { pinned_allocator()->reset_peak_stats(); });
  m.def("reset_pinned_sums", [] { pinned_allocator()->reset_accumulated_stats(); });
  m.def("return_memory", [] {
    py::gil_scoped_release released;
    pjrt::return_memory();
  });
  m.def("live_arrays", &live);
  m.def("memory_events", &memory_events);
  m.def("clear_memory_events", &clear_events);
  m.def("record_memory", [](int what, size_t most_events) {
    set_memory_history(static_cast<MemoryHistory>(what), most_events);
  });
  m.def("recording_memory", [] { return static_cast<int>(memory_history()); });
}

}  // namespace torch_tpu
