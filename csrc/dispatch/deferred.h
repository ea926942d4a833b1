// DeferAndFuse: calls are recorded, and run together as one program when a value is needed.
//
// A deferred call is one whose entry is found and whose results are made as in the other modes,
// only that its program is not run: the results are arrays without contents (pjrt::Deferred). So
// views, writes in place and metadata need no second implementation. What is recorded is cut into
// regions (region.h); when and why a region is closed is decided here.
#pragma once

#include "entry.h"

namespace torch_tpu {

enum class EagerMode : int { kStrict, kDebug, kDeferAndFuse };

EagerMode eager_mode();
// Closes all regions if the mode changes.
void set_eager_mode(EagerMode mode);
inline bool deferring() { return eager_mode() == EagerMode::kDeferAndFuse; }

// Why a region was closed.
enum class FlushCause : int {
  kValue,        // somebody needs a value
  kSynchronize,  // torch.tpu.synchronize, or the mode changed
  kOperators,    // as many operators as a region may have
  kBytes,        // it keeps as much memory as it may
  kRepetition,   // a landmark of a program that does not read, so that its rounds are cut alike
  kThread,       // another thread goes on, as backward does: the device need not wait for it
  kCount,
};

// What happened to regions in this process; torch.tpu.flush_stats() shows it.
struct FlushStats {
  std::array<std::atomic<int64_t>, static_cast<size_t>(FlushCause::kCount)> causes{};
  std::atomic<int64_t> operators{0};  // recorded and handed over
  std::atomic<int64_t> largest{0};    // operators of one region
  std::atomic<int64_t> last{0};
  std::atomic<int64_t> unused{0};  // regions nobody needed anything of
  std::atomic<int64_t> hits{0};
  std::atomic<int64_t> misses{0};
  std::atomic<int64_t> one_by_one{0};  // regions that ran operator by operator after an error

  static FlushStats& get();
};

// How large a region may get; set from the environment (torch_tpu/config.py).
struct DeferLimits {
  std::atomic<int64_t> operators{512};
  std::atomic<int64_t> bytes{int64_t{1} << 30};  // of arrays that only the region refers to

  static DeferLimits& get();
};

// Records the call of `entry` instead of running it; `results` as in `run_entry`.
void defer(const Entry& entry, Operands& operands, int device,
           c10::SmallVectorImpl<pjrt::BufferRef>& results);

// Closes the region of `device`, or of all devices (-1), and hands it over to the device.
void flush(int device, FlushCause cause);

}  // namespace torch_tpu
