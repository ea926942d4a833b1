// What torch.profiler shows of the device: every execution of a program, and the memory of arrays.
//
// `Recording` collects while the profiler is on; session.cc hands it over to Kineto, PyTorch's
// tracer. Every execution belongs to the operator call during which it was launched, whose number
// Kineto pushes and pops on the calling thread. Off, a launch costs one relaxed load.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../pjrt/listener.h"

namespace torch_tpu {

// What a program is, for people.
struct ProgramName {
  std::string title;      // the operator it is for, or the graph with its modules and operators
  std::string operators;  // all operators in it
};

// One run of a program. Times are nanoseconds since the epoch.
struct Execution {
  ProgramName name;
  int device = 0;
  int32_t call = 0;      // the operator call that launched it, 0 if there is none
  int32_t thread = 0;    // that launched it, as Kineto numbers threads
  int64_t launched = 0;  // the host began to hand it over
  int64_t returned = 0;  // the host was done with that
  int64_t ended = 0;     // the device was done with it; 0: not yet, or nobody can tell
};

// The executions of one run of the profiler.
class Recording : public std::enable_shared_from_this<Recording> {
 public:
  // The one that is under way, if any.
  static std::shared_ptr<Recording> current();
  static void begin(std::shared_ptr<Recording> recording);
  // Nothing more is added to the current one.
  static void end();

  // Notes a launch by this thread, now; returns its place.
  size_t add(const ProgramName& name, int device);
  void launched(size_t place);
  // What is to be called when the execution has ended.
  std::function<void()> when_ended(size_t place);

  // Waits, without the GIL, until every execution has ended; false if that takes too long.
  bool wait();
  // Those that ended, and how many did not or cannot be told.
  std::vector<Execution> executions(size_t& lost);

 private:
  class Completion;
  void complete(size_t place, int64_t ended);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Execution> executions_;
  size_t pending_ = 0;
};

extern std::atomic<bool> profiling;

// A launch of a program: it is recorded if the profiler is on.
class Launch final : public pjrt::Watch {
 public:
  Launch(const ProgramName& name, int device) {
    if (profiling.load(std::memory_order_relaxed)) start(name, device);
  }
  // For `Executable::execute`.
  Watch* watch() { return recording_ ? this : nullptr; }
  void launched() override { recording_->launched(place_); }
  std::function<void()> done() override { return recording_->when_ended(place_); }

 private:
  void start(const ProgramName& name, int device);

  std::shared_ptr<Recording> recording_;
  size_t place_ = 0;
};

// The operator calls that are under way on this thread, innermost last, as the profiler numbers
// them. Numbers of an earlier run of the profiler are forgotten.
void push_call(int32_t call);
void pop_call();
int32_t current_call();

// Makes the device known to PyTorch's profiler.
void register_profiler();

}  // namespace torch_tpu
