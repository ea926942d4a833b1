// The process-wide runtime: the PJRT client, the current device, small constant operands.
//
// Starting it is lazy (first use of a tpu) because `import torch` loads this library. The plugin
// and its options are chosen in Python (torch_tpu/api/plugin.py); everything after that is C++.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "../pjrt/client.h"

namespace torch_tpu {

// A lock for a few instructions.
class SpinLock {
 public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

class Runtime {
 public:
  // The running runtime; starts it on first use. Throws c10::Error if it cannot start.
  static Runtime& get();
  // Whether it has been started.
  static bool running() { return instance_.load(std::memory_order_acquire) != nullptr; }
  // How to choose the plugin: called once, must return (path, options). Set by bind.cc.
  using Chooser = std::function<std::pair<std::string, std::map<std::string, pjrt::Option>>()>;
  static void set_chooser(Chooser chooser);

  // How many devices there will be, for questions asked before the runtime has to start.
  static std::atomic<int> expected_devices;

  pjrt::Client& client() { return *client_; }
  int device_count() const { return client_->device_count(); }
  // Whether programs can call ATen's CPU kernels (host_kernels.h).
  bool host_kernels() const { return host_kernels_; }

  // An operand holding `dims.size()`-dimensional data of at most kMaxConstant bytes. Recently used
  // values are kept on the device, so that a repeated scalar costs no transfer.
  pjrt::BufferRef constant(pjrt::ElementType type, std::span<const int64_t> dims, const void* data,
                           size_t bytes, int device);

  static constexpr size_t kMaxConstant = 128;

 private:
  explicit Runtime(pjrt::Client* client);

  struct Slot {
    uint64_t hash = 0;
    uint32_t bytes = 0;
    std::array<char, kMaxConstant> data;
    pjrt::BufferRef buffer;
  };
  struct ConstantCache {
    SpinLock lock;
    std::vector<Slot> slots;
  };

  static std::atomic<Runtime*> instance_;
  pjrt::Client* client_;
  const bool host_kernels_;
  std::vector<std::unique_ptr<ConstantCache>> constants_;
};

// The calling thread's current device index.
int current_device();
void set_current_device(int device);
// `index` itself, or the current device for -1; throws if there is no such device.
int checked_device(int64_t index);

// Runs `body` and turns pjrt::Error into the torch exception users catch: OutOfMemoryError for
// exhausted memory, RuntimeError otherwise. `what` names the operation. No cell may be taken: the
// message about memory takes the GIL.
[[noreturn]] void rethrow(const pjrt::Error& error, const std::string& what);
template <class Body>
auto guarded(const char* what, Body&& body) {
  try {
    return body();
  } catch (const pjrt::Error& error) {
    rethrow(error, what);
  }
}

}  // namespace torch_tpu
