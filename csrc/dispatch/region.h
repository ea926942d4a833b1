// A region: calls that were recorded and become one program. See deferred.h for when.
#pragma once

#include <condition_variable>
#include <unordered_map>

#include "deferred.h"
#include "source_line.h"

namespace torch_tpu {

// Where an operand comes from; torch_tpu/program/fused.py numbers them alike. A number is known by
// its place among those of the region, and to Python by its pack and its start there.
enum SourceKind : int64_t { kResult, kInput, kNumber };

class Region final : public pjrt::Deferred, public std::enable_shared_from_this<Region> {
 public:
  explicit Region(int device) : device_(device) {}

  // ---- recording: with the lock of the region's recorder held ----
  void record(const Entry& entry, Operands& operands, SourceLine line,
              c10::SmallVectorImpl<pjrt::BufferRef>& results);
  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }
  // Bytes of arrays that nobody but this region refers to.
  int64_t retained() const;
  // Bytes of all arrays that it refers to.
  int64_t bytes() const { return bytes_; }

  // ---- running: once nothing is recorded any more ----
  void compute() override;
  // Runs the region unless that has happened; throws if it failed, now or earlier.
  void run(FlushCause cause);

 private:
  struct Node {
    std::shared_ptr<const Entry> entry;
    c10::SmallVector<int64_t, 6> sources;  // of its operands, as `source` encodes them
    c10::SmallVector<pjrt::BufferRef, 2> outputs;
    SourceLine line;
  };
  static int64_t source(SourceKind kind, int64_t first, int64_t second = 0) {
    return kind | first << 2 | second << 34;
  }
  static int64_t first_of(int64_t source) { return (source >> 2) & 0xffffffff; }
  static int64_t second_of(int64_t source) { return source >> 34; }
  static SourceKind kind_of(int64_t source) { return static_cast<SourceKind>(source & 3); }

  using Place = std::pair<int32_t, int32_t>;  // node, result

  void execute(FlushCause cause);
  void fused(const std::vector<Place>& live);
  void one_by_one();
  void run_alone(Node& node);
  std::vector<Place> live_results() const;
  int64_t number_source(Operand operand);
  pjrt::BufferRef operand_array(int64_t source);
  void forget();

  const int device_;
  Key key_;
  std::vector<Node> nodes_;
  std::vector<pjrt::BufferRef> inputs_;
  std::unordered_map<const pjrt::Buffer*, int64_t> known_inputs_;
  std::vector<Operand> numbers_;
  int64_t bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  enum { kRecorded, kRunning, kDone } state_ = kRecorded;
  std::thread::id runner_;
  std::exception_ptr error_;
  std::exception_ptr failed_;  // the first error of calls that ran one by one
  bool own_failure_ = false;   // not only what depends on a region that failed
  bool interrupted_ = false;
};

// The program of a set of calls, for the results in `live`.
struct RegionProgram {
  std::shared_ptr<pjrt::Executable> executable;
  std::vector<std::pair<int32_t, int32_t>> live;
  std::vector<std::pair<int32_t, int32_t>> donations;  // input, result that may take its memory
  std::vector<int64_t> output_bytes;
  ProgramName name;
  std::exception_ptr interrupted;  // a KeyboardInterrupt that came while it was built
};

// One operand of a call as Python describes it: (kind, node or input or pack, result or start).
using RegionSource = std::array<int64_t, 3>;
struct RegionCall {
  void* lowered;  // Python: program.Lowered
  std::vector<RegionSource> sources;
};
// torch_tpu.dispatch.deferred.build_region; in miss.cc.
RegionProgram build_region(const std::vector<RegionCall>& calls, int64_t inputs,
                           const std::vector<std::pair<int32_t, int32_t>>& live);

}  // namespace torch_tpu
