// See region.h. Recording a call, finding the program of a region, running it.
#include "region.h"

#include <set>

#include "python_lock.h"

namespace torch_tpu {

namespace {

// Numbers of these types are packed, in this order; torch_tpu/program/fused.py has the same list.
constexpr std::array kPacks{pjrt::ElementType::kS64, pjrt::ElementType::kF64,
                            pjrt::ElementType::kU64};

int pack_of(const Operand& number) {
  if (number.length == 0) return -1;
  auto found = std::find(kPacks.begin(), kPacks.end(), number.type);
  return found == kPacks.end() ? -1 : static_cast<int>(found - kPacks.begin());
}

// The numbers of a region as the program takes them.
struct Numbers {
  std::vector<std::vector<char>> packs = std::vector<std::vector<char>>(kPacks.size());
  std::vector<size_t> alone;         // numbers that are parameters of their own
  std::vector<RegionSource> places;  // per number; a parameter counts from the first after arrays

  Numbers(const std::vector<Operand>& numbers, int64_t arrays) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      int pack = pack_of(numbers[i]);
      if (pack < 0) {
        places.push_back({kInput, arrays + static_cast<int64_t>(alone.size()), 0});
        alone.push_back(i);
        continue;
      }
      auto& bytes = packs[static_cast<size_t>(pack)];
      places.push_back({kNumber, pack, static_cast<int64_t>(bytes.size() / sizeof(int64_t))});
      bytes.insert(bytes.end(), numbers[i].data, numbers[i].data + numbers[i].bytes);
    }
  }
};

// The programs of all regions seen, by what they do. A set of calls has several if different
// results of it were wanted.
class Programs {
 public:
  using Found = std::shared_ptr<const RegionProgram>;

  static Programs& get() {
    static auto* programs = new Programs;
    return *programs;
  }

  // The program that computes `live`, and perhaps a little more.
  Found find(const Key& key, const std::vector<std::pair<int32_t, int32_t>>& live) {
    std::lock_guard guard(mutex_);
    Structure* structure = find_structure(key);
    if (structure == nullptr) return nullptr;
    Found best;
    size_t fewest = SIZE_MAX;
    for (const Found& program : structure->programs) {
      bool enough =
          std::includes(program->live.begin(), program->live.end(), live.begin(), live.end());
      if (enough && program->live.size() < fewest) {
        fewest = program->live.size();
        best = program;
      }
    }
    // Which results are still referred to may vary a little with the timing of other threads; a
    // program that computes some more is no reason to compile.
    bool close = fewest - live.size() <= live.size() / 4 + 1;
    return best && (close || structure->programs.size() >= kMostVariants) ? best : nullptr;
  }

  // What a program that is built for `live` should compute: if there have been many sets of results
  // already, all that was ever wanted, so that it is the last one.
  std::vector<std::pair<int32_t, int32_t>> wanted(
      const Key& key, const std::vector<std::pair<int32_t, int32_t>>& live) {
    std::lock_guard guard(mutex_);
    Structure* structure = find_structure(key);
    if (structure == nullptr || structure->programs.size() < kMostVariants) return live;
    std::set<std::pair<int32_t, int32_t>> all(live.begin(), live.end());
    for (const Found& program : structure->programs) {
      all.insert(program->live.begin(), program->live.end());
    }
    return {all.begin(), all.end()};
  }

  Found insert(const Key& key, RegionProgram program) {
    auto added = std::make_shared<const RegionProgram>(std::move(program));
    std::unordered_multimap<uint64_t, std::unique_ptr<Structure>> given_up;
    std::lock_guard guard(mutex_);
    if (++count_ > Cache::most() / 4) {
      given_up.swap(structures_);
      count_ = 1;
    }
    Structure* structure = find_structure(key);
    if (structure == nullptr) {
      auto fresh = std::make_unique<Structure>();
      fresh->key.assign(key.words().begin(), key.words().end());
      structure = structures_.emplace(key.hash(), std::move(fresh))->second.get();
    }
    structure->programs.push_back(added);
    return added;
  }

 private:
  static constexpr size_t kMostVariants = 4;

  struct Structure {
    std::vector<int64_t> key;
    std::vector<Found> programs;
  };

  Structure* find_structure(const Key& key) {
    auto [first, last] = structures_.equal_range(key.hash());
    for (auto it = first; it != last; ++it) {
      if (key.words() == c10::ArrayRef<int64_t>(it->second->key)) return it->second.get();
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::unordered_multimap<uint64_t, std::unique_ptr<Structure>> structures_;
  size_t count_ = 0;
};

}  // namespace

// ---- recording ---------------------------------------------------------------------------------

int64_t Region::number_source(Operand operand) {
  numbers_.push_back(std::move(operand));
  return source(kNumber, static_cast<int64_t>(numbers_.size()) - 1);
}

void Region::record(const Entry& entry, Operands& operands, SourceLine line,
                    c10::SmallVectorImpl<pjrt::BufferRef>& results) {
  auto index = static_cast<int64_t>(nodes_.size());
  Node node;
  node.entry = entry.shared_from_this();
  node.line = line;
  key_.push(static_cast<int64_t>(entry.id));
  for (int32_t position : entry.operands) {
    Operand& operand = operands[static_cast<size_t>(position)];
    int64_t from = 0;
    pjrt::Buffer* array = operand.array.get();
    if (array == nullptr) {
      from = number_source(operand);
    } else if (array->source() == this && array->deferred()) {
      from = source(kResult, array->place() & 0xffffffff, array->place() >> 32);
    } else {
      auto [known, fresh] = known_inputs_.try_emplace(array, static_cast<int64_t>(inputs_.size()));
      if (fresh) {
        inputs_.push_back(operand.array);
        bytes_ += array->bytes();
      }
      from = source(kInput, known->second);
    }
    node.sources.push_back(from);
    key_.push(from);
  }
  auto& client = Runtime::get().client();
  results.resize(entry.output_bytes.size());
  for (size_t i = 0; i < results.size(); ++i) {
    int64_t place = index | static_cast<int64_t>(i) << 32;
    results[i] = pjrt::BufferRef(
        new pjrt::Buffer(&client, shared_from_this(), place, device_, entry.output_bytes[i]));
    node.outputs.push_back(results[i]);
  }
  nodes_.push_back(std::move(node));
}

int64_t Region::retained() const {
  int64_t bytes = 0;
  for (const auto& input : inputs_) {
    if (input->referenced_exactly(1)) bytes += input->bytes();
  }
  return bytes;
}

// ---- running -----------------------------------------------------------------------------------

void Region::run(FlushCause cause) {
  std::shared_ptr<Region> alive = shared_from_this();
  WithoutPython released;  // who runs the region may need the GIL to compile
  std::unique_lock lock(mutex_);
  if (state_ == kRunning && runner_ == std::this_thread::get_id()) {
    throw pjrt::Error(13, "a region of deferred operators needs its own result");
  }
  changed_.wait(lock, [&] { return state_ != kRunning; });
  if (state_ == kRecorded) {
    state_ = kRunning;
    runner_ = std::this_thread::get_id();
    lock.unlock();
    std::exception_ptr error;
    try {
      execute(cause);
    } catch (const pjrt::Error&) {
      error = std::current_exception();
    } catch (...) {
      own_failure_ = true;
      error = std::current_exception();
    }
    if (!interrupted_) forget();
    lock.lock();
    if (interrupted_) {
      // Ctrl-C while the program was compiled: nothing ran, and who asks next tries again.
      interrupted_ = own_failure_ = false;
      state_ = kRecorded;
      changed_.notify_all();
      std::rethrow_exception(error);
    }
    error_ = error;
    state_ = kDone;
    changed_.notify_all();
  }
  // An error of an earlier region was raised when that one ran.
  if (error_ && (own_failure_ || cause == FlushCause::kValue)) std::rethrow_exception(error_);
}

std::vector<Region::Place> Region::live_results() const {
  std::vector<Place> live;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (size_t j = 0; j < nodes_[i].outputs.size(); ++j) {
      // One reference is ours: without another, nobody can ever ask for it.
      if (!nodes_[i].outputs[j]->referenced_exactly(1)) live.emplace_back(i, j);
    }
  }
  return live;
}

void Region::execute(FlushCause cause) {
  FlushStats& stats = FlushStats::get();
  ++stats.causes[static_cast<size_t>(cause)];
  stats.operators += size();
  stats.last = size();
  if (size() > stats.largest) stats.largest = size();
  auto live = live_results();
  if (live.empty()) {
    ++stats.unused;
    return;
  }
  try {
    // What earlier regions compute. If one failed, so does what depends on it, and nothing else.
    for (const auto& input : inputs_) input->raw();
  } catch (const pjrt::Error&) {
    return one_by_one();
  }
  try {
    fused(live);
  } catch (const std::exception& error) {
    if (interrupted_) throw;
    ++stats.one_by_one;
    const auto* failed = dynamic_cast<const pjrt::Error*>(&error);
    if (failed != nullptr && failed->out_of_memory()) {
      ++Runtime::get().client().memory(device_).retries;
    }
    TORCH_WARN("a region of ", size(), " deferred operators could not run as one program (",
               error.what(), "); they run one by one");
    one_by_one();
  }
}

void Region::fused(const std::vector<Place>& live) {
  Numbers numbers(numbers_, static_cast<int64_t>(inputs_.size()));
  Programs::Found program = Programs::get().find(key_, live);
  if (program) {
    ++FlushStats::get().hits;
  } else {
    ++FlushStats::get().misses;
    std::vector<RegionCall> calls;
    for (const Node& node : nodes_) {
      RegionCall call{node.entry->source.get(), {}};
      for (int64_t from : node.sources) {
        int64_t first = first_of(from);
        call.sources.push_back(kind_of(from) == kNumber
                                   ? numbers.places[static_cast<size_t>(first)]
                                   : RegionSource{kind_of(from), first, second_of(from)});
      }
      calls.push_back(std::move(call));
    }
    auto parameters = static_cast<int64_t>(inputs_.size() + numbers.alone.size());
    auto wanted = Programs::get().wanted(key_, live);
    RegionProgram built = build_region(calls, parameters, wanted);
    if (built.interrupted) {
      interrupted_ = true;
      std::rethrow_exception(built.interrupted);
    }
    for (auto [node, result] : wanted) {
      built.output_bytes.push_back(
          nodes_[static_cast<size_t>(node)].entry->output_bytes[static_cast<size_t>(result)]);
    }
    built.live = std::move(wanted);
    program = Programs::get().insert(key_, std::move(built));
  }

  std::vector<pjrt::BufferRef> made;  // keeps the numbers alive
  std::vector<pjrt::Buffer*> arguments;
  for (const auto& input : inputs_) arguments.push_back(input.get());
  for (size_t i : numbers.alone) {
    made.push_back(numbers_[i].on(device_));
    arguments.push_back(made.back().get());
  }
  for (size_t i = 0; i < kPacks.size(); ++i) {
    const auto& bytes = numbers.packs[i];
    if (bytes.empty()) continue;
    int64_t count = static_cast<int64_t>(bytes.size() / sizeof(int64_t));
    made.push_back(Runtime::get().client().from_host(bytes.data(), kPacks[i], {&count, 1},
                                                     static_cast<int64_t>(bytes.size()), device_));
    arguments.push_back(made.back().get());
  }
  std::vector<int64_t> keep;
  std::vector<pjrt::Buffer*> donated;
  for (auto [input, result] : program->donations) {
    const auto& array = inputs_[static_cast<size_t>(input)];
    if (array->referenced_exactly(1)) {
      donated.push_back(array.get());
    } else {
      keep.push_back(input);
    }
  }
  std::vector<pjrt::BufferRef> results(program->live.size());
  {
    Launch launch(program->name, device_);
    program->executable->execute(device_, arguments, keep, donated, program->output_bytes,
                                 results.data(), launch.watch());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto [node, result] = program->live[i];
    nodes_[static_cast<size_t>(node)].outputs[static_cast<size_t>(result)]->take_over(
        *results[i].get());
  }
}

pjrt::BufferRef Region::operand_array(int64_t from) {
  auto first = static_cast<size_t>(first_of(from));
  switch (kind_of(from)) {
    case kResult: {
      const auto& output = nodes_[first].outputs[static_cast<size_t>(second_of(from))];
      if (output->deferred()) std::rethrow_exception(failed_);
      return output;
    }
    case kInput:
      return inputs_[first];
    case kNumber:
      break;
  }
  return numbers_[first].on(device_);
}

void Region::run_alone(Node& node) {
  std::vector<pjrt::BufferRef> operands;
  std::vector<pjrt::Buffer*> arguments;
  for (int64_t from : node.sources) {
    operands.push_back(operand_array(from));
    operands.back()->raw();  // throws if that failed, here or in another region
    arguments.push_back(operands.back().get());
  }
  try {
    std::vector<int64_t> keep(node.entry->donations.begin(), node.entry->donations.end());
    std::vector<pjrt::BufferRef> results(node.outputs.size());
    const pjrt::Executable& program = node.entry->program();
    {
      Launch launch(node.entry->name, device_);
      program.execute(device_, arguments, keep, {}, node.entry->output_bytes, results.data(),
                      launch.watch());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      results[i]->await();
      node.outputs[i]->take_over(*results[i].get());
    }
  } catch (const pjrt::Error& error) {
    own_failure_ = true;
    std::string line = node.line.text();
    throw pjrt::Error(error.code(),
                      std::string(error.what()) + " (in the deferred " + node.entry->label +
                          (line.empty() ? ")" : " recorded at " + line + ")"),
                      error.device(), error.bytes());
  }
}

// Every program alone, as Strict does it: an error is then that of one call and names its line, and
// what does not depend on it is computed.
void Region::one_by_one() {
  std::unordered_map<int64_t, size_t> last_use;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (int64_t from : nodes_[i].sources) last_use[from] = i;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    try {
      run_alone(node);
    } catch (const pjrt::Error&) {
      if (!failed_) failed_ = std::current_exception();
    }
    for (int64_t from : node.sources) {
      if (kind_of(from) != kResult || last_use[from] != i) continue;
      auto& output =
          nodes_[static_cast<size_t>(first_of(from))].outputs[static_cast<size_t>(second_of(from))];
      if (output && output->referenced_exactly(1)) output = {};
    }
  }
  if (failed_) std::rethrow_exception(failed_);
}

// Nothing is needed any more; the arrays keep the region itself alive.
void Region::forget() {
  std::vector<Node> nodes;
  std::vector<pjrt::BufferRef> inputs;
  std::vector<Operand> numbers;
  nodes.swap(nodes_);
  inputs.swap(inputs_);
  numbers.swap(numbers_);
  known_inputs_.clear();
}

}  // namespace torch_tpu
