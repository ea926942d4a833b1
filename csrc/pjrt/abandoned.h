// Arrays that were given up before they were computed. Nobody holds them, but the device is still
// at work on them, and who waits for the device waits for that too: `f(x); synchronize()`.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "client.h"

namespace torch_tpu::pjrt {

// The moment when an array is computed, or cannot be: what failed is nobody's concern any more.
class TORCH_TPU_API Completion {
 public:
  Completion(const PluginApi& api, PJRT_Event* event) : api_(api), event_(event) {}
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool happened() const noexcept;
  void await() const noexcept;

 private:
  friend void on_completion(const std::shared_ptr<Completion>&, std::function<void()>);

  const PluginApi& api_;
  PJRT_Event* event_;
};

// Calls `done`, on a thread of the plugin's or at once, when it has happened.
TORCH_TPU_API void on_completion(const std::shared_ptr<Completion>& completion,
                                 std::function<void()> done);

// To be called before `array` of `device` is destroyed. Keeps its completion if that is to come.
void abandon(const PluginApi& api, PJRT_Buffer* array, int device) noexcept;

// The completions to come of what was abandoned on `device`.
TORCH_TPU_API std::vector<std::shared_ptr<Completion>> abandoned(int device);

}  // namespace torch_tpu::pjrt
