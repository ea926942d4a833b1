// See abandoned.h.
#include "abandoned.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace torch_tpu::pjrt {

namespace {

// Completions of one device. What has happened is dropped when somebody asks, and whenever there
// are twice as many as were left the last time, so that each costs a constant time.
class Completions {
 public:
  void add(std::shared_ptr<Completion> completion) {
    std::lock_guard guard(mutex_);
    completions_.push_back(std::move(completion));
    if (completions_.size() >= sweep_at_) sweep();
  }
  std::vector<std::shared_ptr<Completion>> pending() {
    std::lock_guard guard(mutex_);
    sweep();
    return completions_;
  }

 private:
  static constexpr size_t kFewest = 64;

  void sweep() {
    std::erase_if(completions_, [](const auto& completion) { return completion->happened(); });
    sweep_at_ = std::max(kFewest, 2 * completions_.size());
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Completion>> completions_;
  size_t sweep_at_ = kFewest;
};

// Never destroyed: arrays may die after the statics.
Completions& completions_of(int device) {
  static auto* mutex = new std::mutex;
  static auto* devices = new std::map<int, Completions>;
  std::lock_guard guard(*mutex);
  return (*devices)[device];
}

}  // namespace

Completion::~Completion() {
  PJRT_ARGS(PJRT_Event_Destroy_Args, args);
  args.event = event_;
  api_.call_quiet(&PJRT_Api::PJRT_Event_Destroy, "PJRT_Event_Destroy", args);
}

bool Completion::happened() const noexcept {
  PJRT_ARGS(PJRT_Event_IsReady_Args, args);
  args.event = event_;
  args.is_ready = true;  // if it cannot be asked, waiting is of no use either
  api_.call_quiet(&PJRT_Api::PJRT_Event_IsReady, "PJRT_Event_IsReady", args);
  return args.is_ready;
}

void Completion::await() const noexcept {
  PJRT_ARGS(PJRT_Event_Await_Args, args);
  args.event = event_;
  api_.call_quiet(&PJRT_Api::PJRT_Event_Await, "PJRT_Event_Await", args);
}

void on_completion(const std::shared_ptr<Completion>& completion, std::function<void()> done) {
  struct Call {
    std::shared_ptr<Completion> completion;  // lives until it has happened
    std::function<void()> done;
  };
  auto call = std::make_unique<Call>(Call{completion, std::move(done)});
  PJRT_ARGS(PJRT_Event_OnReady_Args, args);
  args.event = completion->event_;
  args.user_arg = call.get();
  args.callback = [](PJRT_Error* error, void* argument) {
    std::unique_ptr<Call> owned(static_cast<Call*>(argument));
    owned->done();
    if (error == nullptr) return;
    PJRT_ARGS(PJRT_Error_Destroy_Args, destroy);
    destroy.error = error;
    owned->completion->api_->PJRT_Error_Destroy(&destroy);
  };
  PJRT_CALL(completion->api_, PJRT_Event_OnReady, args);
  (void)call.release();  // owned by the callback from here on
}

void abandon(const PluginApi& api, PJRT_Buffer* array, int device) noexcept {
  PJRT_ARGS(PJRT_Buffer_ReadyEvent_Args, args);
  args.buffer = array;
  api.call_quiet(&PJRT_Api::PJRT_Buffer_ReadyEvent, "PJRT_Buffer_ReadyEvent", args);
  if (args.event == nullptr) return;  // its contents are another's
  auto completion = std::make_shared<Completion>(api, args.event);
  if (!completion->happened()) completions_of(device).add(std::move(completion));
}

std::vector<std::shared_ptr<Completion>> abandoned(int device) {
  return completions_of(device).pending();
}

}  // namespace torch_tpu::pjrt
