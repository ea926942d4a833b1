// What is in device memory and where it was made: for snapshots and for errors about memory.
//
// Shapes and sizes of live arrays are always known. The user's line that made a tensor is looked up
// only while recording is on, since that takes the GIL and a walk over the frames of the thread;
// with `kAll` every allocation and release is kept as an event, too, up to a number of them.
#pragma once

#include <chrono>

#include "storage.h"

namespace torch_tpu {

enum class MemoryHistory : int { kOff, kLines, kAll };

struct MemoryEvent {
  enum Action : int { kMade, kFreed, kOutOfMemory } action;
  uintptr_t address = 0;
  size_t bytes = 0;
  int device = 0;
  int64_t microseconds = 0;  // since the epoch
  SourceLine line;
};

// One array that a storage holds.
struct LiveArray {
  uintptr_t address = 0;  // of the storage
  int64_t bytes = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  Dims dims;
  bool deferred = false;  // not computed yet, so it takes no memory yet
  SourceLine line;
};

void set_memory_history(MemoryHistory wanted, size_t most_events);
void clear_events();
MemoryHistory memory_history();
// Forgets the oldest event beyond the bound. Needs no GIL.
void record_event(MemoryEvent event);
std::vector<MemoryEvent> recorded_events(int device);

// The line that makes tensors in this thread now, if lines are recorded.
//
// An operator looks it up before it takes any cell, because nobody may wait for the GIL while
// holding one.
SourceLine making_line();
class MakingLine {
 public:
  MakingLine();
  ~MakingLine();
  MakingLine(const MakingLine&) = delete;
  MakingLine& operator=(const MakingLine&) = delete;

 private:
  bool outermost_ = false;
};

// The arrays that storages of `device` hold, each once, largest first.
std::vector<LiveArray> live_arrays(int device);
// The largest of them as the end of an error message.
std::string largest_arrays(int device);

}  // namespace torch_tpu
