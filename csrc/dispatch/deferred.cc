// See deferred.h. Recorders, one per device: where calls go, and when a region is full.
#include "deferred.h"

#include <deque>
#include <thread>

#include "region.h"

namespace torch_tpu {

namespace {

std::atomic<int> mode{static_cast<int>(EagerMode::kStrict)};

// Finds places to close a region that depend on what is recorded and not on where the region began.
//
// A loop that nobody reads from, cut after a number of calls, would be cut at another place in
// every round, and compile new programs for a long time. So it is cut at landmarks: where the last
// few calls have the smallest hash among those of the last `kSight` calls. A round, however long,
// has its landmarks where the round before had them.
class Landmarks {
 public:
  void add(const Entry& entry) {
    std::copy(last_.begin() + 1, last_.end(), last_.begin());
    last_.back() = entry.landmark;
    uint64_t hash = 0;
    for (uint64_t word : last_) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 29;
    }
    while (!minima_.empty() && minima_.back().second > hash) minima_.pop_back();
    minima_.emplace_back(count_, hash);
    while (minima_.front().first <= count_ - kSight) minima_.pop_front();
    here_ = minima_.front().second == hash;
    ++count_;
    ++since_;
  }
  // The program itself closed a region.
  void restart() { since_ = 0; }
  // Whether a region of `size` calls should be closed here. A program that reads its results now
  // and then closes its regions itself, so that it is given time to.
  bool reached(int64_t size) const { return here_ && since_ >= kPatience && size >= kWorthwhile; }

 private:
  static constexpr int64_t kSight = 512;
  static constexpr int64_t kPatience = 256;   // calls since the program last closed a region
  static constexpr int64_t kWorthwhile = 64;  // calls that are worth a program
  std::array<uint64_t, 4> last_{};
  std::deque<std::pair<int64_t, uint64_t>> minima_;  // ascending, in place and in hash
  int64_t count_ = 0;
  int64_t since_ = 0;
  bool here_ = false;
};

struct Recorder {
  static constexpr int64_t kWorthStarting = 16;  // calls; below, one program is better than two

  std::mutex mutex;
  std::shared_ptr<Region> region;
  Landmarks landmarks;
  std::thread::id last;   // who recorded the last call
  int64_t looked_at = 0;  // bytes of the region when it was last asked what it retains

  // Takes the region out. With the mutex held.
  std::shared_ptr<Region> close(FlushCause cause) {
    bool own = cause == FlushCause::kValue || cause == FlushCause::kSynchronize ||
               cause == FlushCause::kThread;
    if (own) landmarks.restart();
    looked_at = 0;
    return std::exchange(region, nullptr);
  }

  // Why the region is to be closed before the next call is recorded. With the mutex held.
  std::optional<FlushCause> due() {
    if (!region) return std::nullopt;
    // Autograd runs backward, and gives back to the optimiser, by a change of threads. It is at the
    // same place in every step, and the device can begin with what there is.
    bool turn = last != std::this_thread::get_id();
    if (turn && region->size() >= kWorthStarting) return FlushCause::kThread;
    const DeferLimits& limits = DeferLimits::get();
    int64_t most = limits.operators.load(std::memory_order_relaxed);
    if (landmarks.reached(region->size())) return FlushCause::kRepetition;
    if (region->size() >= most) return FlushCause::kOperators;
    int64_t bytes = limits.bytes.load(std::memory_order_relaxed);
    if (region->bytes() - looked_at >= bytes) {
      int64_t retained = region->retained();
      if (retained >= bytes) return FlushCause::kBytes;
      looked_at = region->bytes() - retained;
    }
    return std::nullopt;
  }
};

Recorder& recorder_of(int device) {
  static auto* recorders = new std::array<Recorder, 256>;
  return (*recorders)[static_cast<size_t>(device)];
}

}  // namespace

EagerMode eager_mode() { return static_cast<EagerMode>(mode.load(std::memory_order_relaxed)); }

void set_eager_mode(EagerMode wanted) {
  auto before = static_cast<EagerMode>(mode.exchange(static_cast<int>(wanted)));
  if (before != wanted) flush(-1, FlushCause::kSynchronize);
}

FlushStats& FlushStats::get() {
  static auto* stats = new FlushStats;
  return *stats;
}

DeferLimits& DeferLimits::get() {
  static auto* limits = new DeferLimits;
  return *limits;
}

void defer(const Entry& entry, Operands& operands, int device,
           c10::SmallVectorImpl<pjrt::BufferRef>& results) {
  SourceLine line = SourceLine::here();
  Recorder& recorder = recorder_of(device);
  std::unique_lock lock(recorder.mutex);
  if (std::optional<FlushCause> cause = recorder.due()) {
    std::shared_ptr<Region> full = recorder.close(*cause);
    // Nothing is compiled or waited for with the lock held.
    lock.unlock();
    full->run(*cause);
    lock.lock();
  }
  if (!recorder.region) recorder.region = std::make_shared<Region>(device);
  recorder.region->record(entry, operands, line, results);
  recorder.landmarks.add(entry);
  recorder.last = std::this_thread::get_id();
}

void flush(int device, FlushCause cause) {
  if (!Runtime::running()) return;
  int first = device < 0 ? 0 : device;
  int last = device < 0 ? Runtime::get().device_count() - 1 : device;
  for (int i = first; i <= last; ++i) {
    Recorder& recorder = recorder_of(i);
    std::shared_ptr<Region> region;
    {
      std::lock_guard guard(recorder.mutex);
      region = recorder.close(cause);
    }
    if (region) region->run(cause);
  }
}

void Region::compute() {
  Recorder& recorder = recorder_of(device_);
  std::shared_ptr<Region> self;
  {
    std::lock_guard guard(recorder.mutex);
    if (recorder.region.get() == this) self = recorder.close(FlushCause::kValue);
  }
  run(FlushCause::kValue);
}

}  // namespace torch_tpu
