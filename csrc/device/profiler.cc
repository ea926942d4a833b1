// See profiler.h. The recording of executions; handing it over to Kineto is in session.cc.
#include "profiler.h"

#include <ThreadUtil.h>
#include <c10/util/ApproximateClock.h>

#include <chrono>

#include "../dispatch/python_lock.h"

namespace torch_tpu {

std::atomic<bool> profiling{false};

namespace {

std::mutex current_mutex;
std::shared_ptr<Recording>& current_recording() {
  static auto* recording = new std::shared_ptr<Recording>;
  return *recording;
}
// Counts runs of the profiler, so that threads know what they hold of an earlier one.
std::atomic<uint64_t> run{0};

struct Calls {
  uint64_t run = 0;
  std::vector<int32_t> stack;

  std::vector<int32_t>& now() {
    uint64_t present = torch_tpu::run.load(std::memory_order_relaxed);
    if (run != present) stack.clear();
    run = present;
    return stack;
  }
};
thread_local Calls calls;

}  // namespace

void push_call(int32_t call) { calls.now().push_back(call); }

void pop_call() {
  auto& stack = calls.now();
  if (!stack.empty()) stack.pop_back();  // empty: it was pushed before the profiler was on
}

int32_t current_call() {
  const auto& stack = calls.now();
  return stack.empty() ? 0 : stack.back();
}

// ---- the recording -------------------------------------------------------------------------

// Reports the end of an execution: when it is called, or when the last copy of it is dropped.
class Recording::Completion {
 public:
  Completion(std::shared_ptr<Recording> recording, size_t place)
      : recording_(std::move(recording)), place_(place) {}
  ~Completion() { recording_->complete(place_, ended_); }
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  void operator()() { ended_ = c10::getTime(); }

 private:
  std::shared_ptr<Recording> recording_;
  size_t place_;
  int64_t ended_ = 0;
};

std::shared_ptr<Recording> Recording::current() {
  std::lock_guard guard(current_mutex);
  return current_recording();
}

void Recording::begin(std::shared_ptr<Recording> recording) {
  std::lock_guard guard(current_mutex);
  current_recording() = std::move(recording);
  ++run;
  profiling.store(true);
}

void Recording::end() {
  std::lock_guard guard(current_mutex);
  profiling.store(false);
  current_recording() = nullptr;
}

size_t Recording::add(const ProgramName& name, int device) {
  Execution execution{name, device, current_call(), libkineto::systemThreadId(), c10::getTime()};
  std::lock_guard guard(mutex_);
  executions_.push_back(std::move(execution));
  return executions_.size() - 1;
}

void Recording::launched(size_t place) {
  int64_t now = c10::getTime();
  std::lock_guard guard(mutex_);
  executions_[place].returned = now;
}

std::function<void()> Recording::when_ended(size_t place) {
  {
    std::lock_guard guard(mutex_);
    ++pending_;
  }
  auto completion = std::make_shared<Completion>(shared_from_this(), place);
  return [completion = std::move(completion)] { (*completion)(); };
}

void Recording::complete(size_t place, int64_t ended) {
  std::lock_guard guard(mutex_);
  executions_[place].ended = ended;
  if (--pending_ == 0) changed_.notify_all();
}

bool Recording::wait() {
  // The profiler has synchronised the device: what is missing are calls of threads that are late.
  constexpr auto kLongest = std::chrono::seconds(30);
  WithoutPython released;
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kLongest, [&] { return pending_ == 0; });
}

std::vector<Execution> Recording::executions(size_t& lost) {
  std::lock_guard guard(mutex_);
  std::vector<Execution> ended;
  for (const Execution& execution : executions_) {
    if (execution.ended != 0) ended.push_back(execution);
  }
  lost = executions_.size() - ended.size();
  return ended;
}

// ---- a launch ------------------------------------------------------------------------------

void Launch::start(const ProgramName& name, int device) {
  recording_ = Recording::current();
  if (recording_) place_ = recording_->add(name, device);
}

}  // namespace torch_tpu
