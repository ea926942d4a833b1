// What the cache holds for a key: the program, which operands it takes, what its results are.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "../device/profiler.h"
#include "key.h"

namespace torch_tpu {

struct OutputSpec {
  bool defined = true;   // false: the operator returns an undefined tensor here
  bool computed = true;  // false: an empty tensor, not an output of the program
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  Dims sizes;
  Dims strides;
  Dims dims;  // of the array: `sizes` in the order of the strides
  int64_t nbytes = 0;
};

constexpr int32_t kConstantGroup = -2;

struct Entry : std::enable_shared_from_this<Entry> {
  const uint64_t id = next_id();  // of this process
  std::vector<int64_t> key;
  uint64_t landmark = 0;           // of what is called: the same in every process
  std::string label;               // what the program is for, for people
  ProgramName name;                // of its executions, in the profiler
  bool runs = false;               // whether there is a program
  bool deferrable = false;         // whether the program may become part of a larger one
  std::shared_ptr<void> source;    // the program before it is compiled (Python: program.Lowered)
  std::vector<int32_t> operands;   // argument i of the program is operands[i] of the call
  std::vector<int32_t> donations;  // arguments of the program whose memory a result may take over
  std::vector<OutputSpec> outputs;
  std::vector<int64_t> output_bytes;  // of the computed outputs, in order
  std::vector<int32_t> groups;        // per result: -1 for a tensor, n for a list of n, or:
  std::vector<int64_t> constants;     // integer results (kConstantGroup), in order
  std::shared_ptr<void> python;       // when set, a Python callable that runs the call instead

  // The compiled program; compiles it on first use.
  const pjrt::Executable& program() const {
    const auto* ready = ready_.load(std::memory_order_acquire);
    return ready != nullptr ? *ready : compile();
  }

 private:
  static uint64_t next_id();
  const pjrt::Executable& compile() const;  // in miss.cc

  mutable std::atomic<const pjrt::Executable*> ready_{nullptr};
  mutable std::shared_ptr<pjrt::Executable> compiled_;
};

// key → entry. Entries are valid until the call that found them ends (CallScope).
//
// A process cannot keep any number of programs: each takes memory mappings, of which Linux gives a
// process 65,530. When all caches together hold `most()`, all are emptied; what is needed again
// comes from the compilation cache.
class Cache {
 public:
  Cache();
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  const Entry* find(const Key& key) const {
    const Entry* recent = recent_.load(std::memory_order_acquire);
    if (recent != nullptr && key.words() == c10::ArrayRef<int64_t>(recent->key)) return recent;
    std::shared_lock guard(mutex_);
    auto [first, last] = entries_.equal_range(key.hash());
    for (auto it = first; it != last; ++it) {
      if (key.words() == c10::ArrayRef<int64_t>(it->second->key)) {
        recent_.store(it->second.get(), std::memory_order_release);
        return it->second.get();
      }
    }
    return nullptr;
  }
  const Entry* insert(const Key& key, std::shared_ptr<Entry> entry);
  size_t size() const {
    std::shared_lock guard(mutex_);
    return entries_.size();
  }

  // Of all caches of the process: how many entries there may be, and are.
  static size_t most() { return most_.load(std::memory_order_relaxed); }
  static void keep(size_t most) { most_.store(most); }
  static size_t total();
  static void clear_all();

 private:
  void clear();  // with the mutex of all caches held

  inline static std::atomic<size_t> most_{4000};
  mutable std::atomic<const Entry*> recent_{nullptr};
  mutable std::shared_mutex mutex_;
  std::unordered_multimap<uint64_t, std::shared_ptr<Entry>> entries_;
};

// A call that looks entries up and runs them. What caches have given up is freed at the start of a
// call while no other is under way.
class CallScope {
 public:
  CallScope();
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
};

// The cells whose arrays a running call has taken to donate them. Until their results are written,
// nobody else reads those storages. If the call fails, what is left of the arrays goes back.
class TakenCells {
 public:
  TakenCells() = default;
  ~TakenCells() {
    for (auto& [cell, array] : cells_) cell->put_back(std::move(array));
  }
  TakenCells(const TakenCells&) = delete;
  TakenCells& operator=(const TakenCells&) = delete;

  // Takes the array of `cell` if only the cell and one operand refer to it.
  bool take(Cell* cell, const pjrt::BufferRef& array) {
    if (!cell->take(array.get(), 2)) return false;
    cells_.emplace_back(cell, pjrt::BufferRef());
    return true;
  }
  // The program never ran: the arrays are as they were. They go back at once, since who hears of
  // the error may wait for the GIL.
  void restore(c10::ArrayRef<const Operand*> operands) {
    for (size_t i = 0; i < cells_.size(); ++i) cells_[i].first->put_back(operands[i]->array);
    cells_.clear();
  }
  // The results are written, which released the cells.
  void dismiss() { cells_.clear(); }

 private:
  c10::SmallVector<std::pair<Cell*, pjrt::BufferRef>, 2> cells_;
};

// Runs the program of `entry`; `results` receives its computed outputs in order. Operands that the
// program may overwrite are donated if nobody else refers to them; their cells stay taken until
// their results are written.
void run_entry(const Entry& entry, Operands& operands, int device,
               c10::SmallVectorImpl<pjrt::BufferRef>& results, TakenCells& taken);

}  // namespace torch_tpu
