// See deferred.h. Recorders, one per device: where calls go, and when a region is full.
#include "deferred.h"

#include "region.h"

namespace torch_tpu {

namespace {

std::atomic<int> mode{static_cast<int>(EagerMode::kStrict)};

// Finds out that a program repeats itself, so that regions are closed at the end of a round of it.
// Without that, a loop that nobody reads from would be cut where regions are full, at other places
// in every round, and compile new programs for a long time.
class Rhythm {
 public:
  void add(uint64_t entry) {
    if (history_.size() == kMost) history_.erase(history_.begin(), history_.begin() + kMost / 2);
    if (period_ > 0 && history_[history_.size() - period_] != entry) period_ = 0;
    history_.push_back(entry);
    ++since_;
  }
  // A region was closed for a reason of the program's.
  void restart() { since_ = 0; }
  // Whether a round ends here, or as many as make a region worth its program.
  bool ends() {
    if (period_ == 0 && ++unknown_ % kLookEvery == 0) detect();
    if (period_ == 0) return false;
    int64_t round = period_ * std::max<int64_t>(1, kWorthwhile / period_);
    if (since_ < round) return false;
    since_ = 0;
    return true;
  }

 private:
  // Looks for the period that explains most of what came last.
  void detect() {
    auto n = static_cast<int64_t>(history_.size());
    auto at = [&](int64_t i) { return history_[static_cast<size_t>(n - 1 - i)]; };
    // Z-function of the reversed history: how far it agrees with itself shifted by p.
    std::vector<int64_t> z(static_cast<size_t>(n), 0);
    int64_t left = 0;
    int64_t right = 0;
    int64_t best = 0;
    for (int64_t p = 1; p < n; ++p) {
      int64_t& agreed = z[static_cast<size_t>(p)];
      if (p < right) agreed = std::min(right - p, z[static_cast<size_t>(p - left)]);
      while (p + agreed < n && at(agreed) == at(p + agreed)) ++agreed;
      if (p + agreed > right) {
        left = p;
        right = p + agreed;
      }
      if (agreed >= std::max(p, kCertain) && p + agreed > best) {
        best = p + agreed;
        period_ = p;
      }
    }
  }

  static constexpr size_t kMost = 8192;
  static constexpr int64_t kCertain = 48;     // calls that agree before a period is believed
  static constexpr int64_t kWorthwhile = 64;  // calls
  static constexpr int64_t kLookEvery = 32;   // calls
  std::vector<uint64_t> history_;
  int64_t period_ = 0;
  int64_t since_ = 0;
  int64_t unknown_ = 0;  // calls without a known period
};

struct Recorder {
  std::mutex mutex;
  std::shared_ptr<Region> region;
  Rhythm rhythm;
  int64_t looked_at = 0;  // bytes of the region when it was last asked what it retains

  // Takes the region out. With the mutex held.
  std::shared_ptr<Region> close(FlushCause cause) {
    bool own = cause == FlushCause::kValue || cause == FlushCause::kSynchronize;
    if (own) rhythm.restart();
    looked_at = 0;
    return std::exchange(region, nullptr);
  }

  // Why the region is to be closed before the next call is recorded. With the mutex held.
  std::optional<FlushCause> due() {
    if (!region) return std::nullopt;
    const DeferLimits& limits = DeferLimits::get();
    int64_t most = limits.operators.load(std::memory_order_relaxed);
    if (rhythm.ends()) return FlushCause::kRepetition;
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
  recorder.rhythm.add(entry.id);
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
