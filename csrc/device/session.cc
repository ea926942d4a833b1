// Hands what was recorded (profiler.h) over to Kineto, the tracer behind torch.profiler: one
// activity for an execution on the device and one for its launch on the host, linked to the
// operator call. Compiled with USE_KINETO; Kineto's headers come with torch.
#include <c10/core/Allocator.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <algorithm>

#include "../pjrt/listener.h"
#include "profiler.h"

namespace torch_tpu {

namespace {

using libkineto::ActivityType;
using Activity = libkineto::GenericTraceActivity;

constexpr auto kOnDevice = ActivityType::CONCURRENT_KERNEL;
constexpr auto kOnHost = ActivityType::PRIVATEUSE1_RUNTIME;
// Our numbers, which PyTorch must not take for those of operator calls.
constexpr int32_t kFirstNumber = 1 << 30;
constexpr int32_t kComputeLane = 0;

void report_memory(void* array, int64_t bytes, int64_t allocated, int device) {
  if (!c10::memoryProfilingEnabled()) return;  // not by this thread
  auto total = static_cast<size_t>(allocated);
  c10::reportMemoryUsageToProfiler(
      array, bytes, total, total,
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)));
}

// A device does one program at a time here: one that was launched while another ran began when that
// one ended. Orders by end and returns when each began.
std::vector<int64_t> begin_times(std::vector<Execution>& executions) {
  std::sort(executions.begin(), executions.end(), [](const Execution& a, const Execution& b) {
    return std::tie(a.device, a.ended) < std::tie(b.device, b.ended);
  });
  std::vector<int64_t> begins;
  for (size_t i = 0; i < executions.size(); ++i) {
    bool first = i == 0 || executions[i - 1].device != executions[i].device;
    int64_t free = first ? 0 : executions[i - 1].ended;
    begins.push_back(std::max(executions[i].launched, free));
  }
  return begins;
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(bool executions) : executions_(executions) {}
  ~Session() override {
    if (status_ == libkineto::TraceStatus::RECORDING) stop();
  }

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    pjrt::memory_listener.store(&report_memory);
    if (!executions_) return;
    recording_ = std::make_shared<Recording>();
    Recording::begin(recording_);
  }

  void stop() override {
    status_ = libkineto::TraceStatus::PROCESSING;
    pjrt::memory_listener.store(nullptr);
    if (!recording_) return;
    Recording::end();
    if (!recording_->wait()) errors_.push_back("tpu: programs still ran when the profiler gave up");
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t start, int64_t end) override {
    if (!recording_) return;
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start, end, "tpu");
    size_t lost = 0;
    auto executions = recording_->executions(lost);
    if (lost > 0) errors_.push_back("tpu: no times of " + std::to_string(lost) + " programs");
    auto begins = begin_times(executions);
    for (size_t i = 0; i < executions.size(); ++i) {
      auto number = kFirstNumber + static_cast<int32_t>(i);
      const auto* call = executions[i].call == 0 ? nullptr : linked(executions[i].call);
      log(logger, on_host(executions[i], number, call));
      log(logger, on_device(executions[i], begins[i], number, call));
    }
    buffer_->gpuOpCount = static_cast<int>(executions.size());
    name_devices(logger, executions, start);
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t call) override { push_call(static_cast<int32_t>(call)); }
  void popCorrelationId() override { pop_call(); }
  void pushUserCorrelationId(uint64_t call) override { push_call(static_cast<int32_t>(call)); }
  void popUserCorrelationId() override { pop_call(); }

 private:
  Activity activity(ActivityType type, const std::string& name, int32_t number,
                    const libkineto::ITraceActivity* call) const {
    Activity made(buffer_->span, type, name);
    made.id = number;
    made.linked = call;
    made.flow.id = static_cast<uint32_t>(number);
    made.flow.type = libkineto::kLinkAsyncCpuGpu;
    return made;
  }

  Activity on_host(const Execution& execution, int32_t number,
                   const libkineto::ITraceActivity* call) const {
    Activity made = activity(kOnHost, "tpuExecute", number, call);
    made.startTime = execution.launched;
    made.endTime = std::max(execution.returned, execution.launched);
    made.device = libkineto::processId();
    made.resource = made.threadId = execution.thread;
    made.flow.start = 1;
    return made;
  }

  Activity on_device(const Execution& execution, int64_t begin, int32_t number,
                     const libkineto::ITraceActivity* call) const {
    Activity made = activity(kOnDevice, execution.name.title, number, call);
    made.startTime = begin;
    made.endTime = execution.ended;
    made.device = execution.device;
    made.resource = kComputeLane;
    made.addMetadata("device", execution.device);
    made.addMetadata("correlation", number);
    made.addMetadata("queued us", (begin - execution.launched) / 1000);
    made.addMetadataQuoted("operators", execution.name.operators);
    return made;
  }

  void log(libkineto::ActivityLogger& logger, Activity activity) {
    buffer_->emplace_activity(std::move(activity));
    buffer_->activities.back()->log(logger);
  }

  // The lanes of the trace.
  static void name_devices(libkineto::ActivityLogger& logger,
                           const std::vector<Execution>& executions, int64_t time) {
    for (size_t i = 0; i < executions.size(); ++i) {
      int device = executions[i].device;
      if (i > 0 && executions[i - 1].device == device) continue;
      std::string name = "tpu:" + std::to_string(device);
      logger.handleDeviceInfo({device, device + libkineto::kExceedMaxPid, name, name}, time);
      logger.handleResourceInfo({kComputeLane, kComputeLane, device, "programs"}, time);
    }
  }

  const bool executions_;
  std::shared_ptr<Recording> recording_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::vector<std::string> errors_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "tpu";
    return name;
  }
  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types{kOnDevice, kOnHost};
    return types;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config&) override {
    return std::make_unique<Session>(types.contains(kOnDevice));
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }
};

}  // namespace

void register_profiler() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      [] { return std::make_unique<Profiler>(); });
}

}  // namespace torch_tpu
