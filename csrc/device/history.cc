// See history.h.
#include "history.h"

#include <algorithm>
#include <deque>
#include <unordered_set>

namespace torch_tpu {

namespace {

std::atomic<int> level{static_cast<int>(MemoryHistory::kOff)};

struct Events {
  SpinLock lock;
  std::deque<MemoryEvent> kept;
  size_t most = 0;
};

Events& events() {
  static auto* instance = new Events;
  return *instance;
}

thread_local bool line_known = false;
thread_local SourceLine known_line;

constexpr size_t kShownArrays = 8;

std::string describe(const LiveArray& array) {
  std::string text(c10::getDtypeNames(array.dtype).first);
  text += "[";
  for (size_t i = 0; i < array.dims.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(array.dims[i]);
  }
  text += "] " + pjrt::shown(array.bytes);
  std::string line = array.line.text();
  return line.empty() ? text : text + " made at " + line;
}

}  // namespace

void set_memory_history(MemoryHistory wanted, size_t most_events) {
  Events& state = events();
  std::lock_guard guard(state.lock);
  state.most = most_events;
  while (state.kept.size() > most_events) state.kept.pop_front();
  level.store(static_cast<int>(wanted));
}

void clear_events() {
  Events& state = events();
  std::lock_guard guard(state.lock);
  state.kept.clear();
}

MemoryHistory memory_history() {
  return static_cast<MemoryHistory>(level.load(std::memory_order_relaxed));
}

void record_event(MemoryEvent event) {
  if (memory_history() != MemoryHistory::kAll) return;
  auto now = std::chrono::system_clock::now().time_since_epoch();
  event.microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  Events& state = events();
  std::lock_guard guard(state.lock);
  if (state.most == 0) return;
  if (state.kept.size() >= state.most) state.kept.pop_front();
  state.kept.push_back(event);
}

std::vector<MemoryEvent> recorded_events(int device) {
  Events& state = events();
  std::vector<MemoryEvent> found;
  std::lock_guard guard(state.lock);
  std::copy_if(state.kept.begin(), state.kept.end(), std::back_inserter(found),
               [&](const MemoryEvent& event) { return event.device == device; });
  return found;
}

SourceLine making_line() {
  if (memory_history() == MemoryHistory::kOff) return {};
  return line_known ? known_line : SourceLine::here();
}

MakingLine::MakingLine() {
  if (memory_history() == MemoryHistory::kOff || line_known) return;
  known_line = SourceLine::here();
  outermost_ = line_known = true;
}

MakingLine::~MakingLine() {
  if (outermost_) line_known = false;
}

std::vector<LiveArray> live_arrays(int device) {
  std::vector<LiveArray> found;
  std::vector<pjrt::BufferRef> held;  // let go after the list of cells is unlocked
  for_each_cell(device, [&](Cell& cell) {
    std::lock_guard guard(cell.lock);
    if (!cell.buffer) return;
    held.push_back(cell.buffer);
    found.push_back({reinterpret_cast<uintptr_t>(cell.address), cell.buffer->bytes(), cell.dtype,
                     cell.dims, false, cell.made});
  });
  std::unordered_set<const pjrt::Buffer*> seen;
  std::vector<LiveArray> once;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!seen.insert(held[i].get()).second) continue;
    found[i].deferred = held[i]->deferred();
    once.push_back(std::move(found[i]));
  }
  std::stable_sort(once.begin(), once.end(), [](const LiveArray& one, const LiveArray& other) {
    return one.bytes > other.bytes;
  });
  return once;
}

std::string largest_arrays(int device) {
  std::vector<LiveArray> arrays = live_arrays(device);
  std::erase_if(arrays, [](const LiveArray& array) { return array.deferred; });
  if (arrays.empty()) return ". No tensor is in memory.";
  size_t count = std::min(arrays.size(), kShownArrays);
  std::string text = ". The largest of the " + std::to_string(arrays.size()) + " tensors there:";
  for (size_t i = 0; i < count; ++i) text += "\n  " + describe(arrays[i]);
  if (memory_history() == MemoryHistory::kOff) {
    text += "\n(torch.tpu.memory._record_memory_history() makes later errors name the lines.)";
  }
  return text;
}

}  // namespace torch_tpu
