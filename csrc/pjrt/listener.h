// Being told what devices do: when a program has run, and how the memory of arrays changes.
//
// What is done with it is the listener's business (csrc/device/profiler.cc). While nobody listens,
// an array costs one relaxed load more.
#pragma once

#include <atomic>
#include <functional>

#include "api.h"

namespace torch_tpu::pjrt {

// One array more, of `bytes` bytes, or one less (negative); `allocated` bytes are in use then. On
// any thread.
using MemoryListener = void (*)(void* array, int64_t bytes, int64_t allocated, int device);

TORCH_TPU_API extern std::atomic<MemoryListener> memory_listener;

// Who wants to know about one execution (Executable::execute).
class TORCH_TPU_API Watch {
 public:
  virtual ~Watch() = default;
  // The plugin has taken the program over.
  virtual void launched() = 0;
  // What to call once it has run; dropped without a call if nobody will know.
  virtual std::function<void()> done() = 0;
};

// Calls `done` once, from a runtime thread or this one, when `event` has happened (or failed), and
// frees the event. If the plugin refuses, throws without calling.
void when_happened(const PluginApi& api, PJRT_Event* event, std::function<void()> done);

}  // namespace torch_tpu::pjrt
