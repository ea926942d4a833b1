// The caches of all kernels together: how many entries there are, and giving them up. See entry.h.
#include <unordered_set>

#include "entry.h"

namespace torch_tpu {

namespace {

struct Caches {
  std::mutex mutex;
  std::unordered_set<Cache*> all;
  std::vector<std::shared_ptr<Entry>> retired;
  std::atomic<bool> has_retired{false};
  std::atomic<size_t> entries{0};
  std::atomic<int> calls{0};
};

Caches& caches() {
  static auto* instance = new Caches;
  return *instance;
}

// With the mutex held.
void retire(std::unordered_multimap<uint64_t, std::shared_ptr<Entry>> entries) {
  Caches& state = caches();
  state.entries.fetch_sub(entries.size());
  for (auto& [hash, entry] : entries) state.retired.push_back(std::move(entry));
  state.has_retired.store(!state.retired.empty());
}

void free_retired() {
  Caches& state = caches();
  std::vector<std::shared_ptr<Entry>> freed;  // after the lock is released
  std::lock_guard guard(state.mutex);
  // Nobody can find a retired entry any more, so only a call that began earlier may hold one.
  if (state.calls.load() != 1) return;
  freed.swap(state.retired);
  state.has_retired.store(false);
}

}  // namespace

uint64_t Entry::next_id() {
  static std::atomic<uint64_t> count{0};
  return count.fetch_add(1) + 1;
}

Cache::Cache() {
  Caches& state = caches();
  std::lock_guard guard(state.mutex);
  state.all.insert(this);
}

Cache::~Cache() {
  Caches& state = caches();
  std::lock_guard guard(state.mutex);
  state.all.erase(this);
  clear();
}

const Entry* Cache::insert(const Key& key, std::shared_ptr<Entry> entry) {
  entry->key.assign(key.words().begin(), key.words().end());
  entry->landmark = key.hash();
  for (char letter : entry->label) {
    entry->landmark = (entry->landmark ^ static_cast<unsigned char>(letter)) * 0x100000001b3ull;
  }
  std::unique_lock guard(mutex_);
  auto it = entries_.emplace(key.hash(), std::move(entry));
  caches().entries.fetch_add(1);
  return it->second.get();
}

void Cache::clear() {
  decltype(entries_) given_up;
  {
    std::unique_lock guard(mutex_);
    recent_.store(nullptr);
    given_up.swap(entries_);
  }
  if (!given_up.empty()) retire(std::move(given_up));
}

size_t Cache::total() { return caches().entries.load(); }

void Cache::clear_all() {
  Caches& state = caches();
  std::lock_guard guard(state.mutex);
  for (Cache* cache : state.all) cache->clear();
}

CallScope::CallScope() {
  Caches& state = caches();
  bool alone = state.calls.fetch_add(1) == 0;
  if (alone && state.has_retired.load(std::memory_order_relaxed)) free_retired();
}

CallScope::~CallScope() { caches().calls.fetch_sub(1); }

}  // namespace torch_tpu
