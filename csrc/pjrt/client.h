// Client, buffers and executables over one PJRT plugin.
//
// `Client` is made once per process and never destroyed (plugins are not safe to unload). `Buffer`
// is a reference-counted device array; `Executable` a compiled program for one device, runnable on
// any device of the client. Device memory is counted here, per device, in logical bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api.h"
#include "named_value.h"

namespace torch_tpu::pjrt {

// Values equal PJRT_Buffer_Type (checked in client.cc).
enum class ElementType : int {
  kInvalid = 0,
  kPred,
  kS8,
  kS16,
  kS32,
  kS64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kF32,
  kF64,
  kBF16,
  kC64,
  kC128,
  kF8E5M2,
  kF8E4M3FN,
};

// A quantity that goes up and down, its peak, and the sums of what was added and removed.
class TORCH_TPU_API Counter {
 public:
  void add(int64_t amount);
  void remove(int64_t amount) { current_.fetch_sub(amount, std::memory_order_relaxed); }

  int64_t current() const { return current_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  int64_t added() const { return added_.load(std::memory_order_relaxed); }
  int64_t removed() const { return before_.load(std::memory_order_relaxed) + added() - current(); }
  void reset_peak() { peak_.store(current()); }
  void reset_sums();

 private:
  std::atomic<int64_t> current_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> added_{0};
  std::atomic<int64_t> before_{0};  // what was there when the sums began
};

struct TORCH_TPU_API MemoryCounters {
  Counter bytes;                    // of live arrays
  Counter arrays;                   // that have bytes
  std::atomic<int64_t> ooms{0};     // errors raised because memory was exhausted
  std::atomic<int64_t> retries{0};  // times that less memory was tried after it was exhausted
  int64_t total = 0;                // what the device has, or TORCH_TPU_MEMORY_LIMIT
  std::atomic<int64_t> limit{0};    // what may be used of it

  void add(int64_t size);
  void remove(int64_t size);
  void reset_peaks();
  void reset_sums();
};

class Client;
class Watch;

// A number of bytes, for people.
TORCH_TPU_API std::string shown(int64_t bytes);

// What computes arrays that are not computed yet when they are handed out.
class TORCH_TPU_API Deferred {
 public:
  virtual ~Deferred() = default;
  // Gives every array that is still wanted its contents, or throws why it cannot, each time.
  virtual void compute() = 0;
};

// An owned device array. Thread-safe reference count; destroyed with its last reference.
//
// A deferred array has a size and a place in what will compute it, and no contents before somebody
// asks for `raw()`.
class TORCH_TPU_API Buffer {
 public:
  Buffer(Client* client, PJRT_Buffer* raw, int device, int64_t bytes);
  Buffer(Client* client, std::shared_ptr<Deferred> source, int64_t place, int device,
         int64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  // Whether exactly `count` references exist.
  bool referenced_exactly(int count) const {
    return references_.load(std::memory_order_acquire) == count;
  }

  // The array; computes it first if it is deferred.
  PJRT_Buffer* raw() {
    PJRT_Buffer* raw = raw_.load(std::memory_order_acquire);
    return raw != nullptr ? raw : computed();
  }
  bool deferred() const { return raw_.load(std::memory_order_acquire) == nullptr; }
  const Deferred* source() const { return source_.get(); }
  int64_t place() const { return place_; }
  // Gives a deferred array the contents of `computed`, which nobody else may use.
  void take_over(Buffer& computed);
  int device() const { return device_; }
  int64_t bytes() const { return bytes_; }

  // Waits until the contents are computed; throws Error if computing them failed.
  void await();
  // Whether `await` would return at once. Remembers a positive answer.
  bool ready();
  // Calls `done` once, from a runtime thread, when the contents are computed (or failed).
  void on_ready(std::function<void()> done);
  // Copies the dense row-major contents to `destination` (at least bytes() long), blocking.
  void to_host(void* destination);
  // A copy on another device.
  Buffer* copy_to(int device);
  // The memory went to the output of an execution: stop counting it.
  void mark_donated();

 private:
  PJRT_Buffer* computed();

  Client* client_;
  std::atomic<PJRT_Buffer*> raw_;
  std::shared_ptr<Deferred> source_;
  int64_t place_ = 0;
  int device_;
  int64_t bytes_;
  std::atomic<int> references_{1};
  std::atomic<bool> ready_{false};
};

// Owning pointer to a Buffer.
class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* owned) : pointer_(owned) {}  // takes over the caller's reference
  BufferRef(const BufferRef& other) : pointer_(other.pointer_) {
    if (pointer_) pointer_->retain();
  }
  BufferRef(BufferRef&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~BufferRef() {
    if (pointer_) pointer_->release();
  }
  Buffer* get() const { return pointer_; }
  Buffer* operator->() const { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }

 private:
  Buffer* pointer_ = nullptr;
};

class TORCH_TPU_API Executable {
 public:
  Executable(Client* client, PJRT_LoadedExecutable* raw, size_t outputs);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  size_t output_count() const { return outputs_; }
  // Runs on `device` and returns without waiting. `keep` lists the argument indices that must not
  // be donated although the program could; `donated` are the buffers whose memory the outputs take
  // over. `output_bytes` are the logical sizes of the outputs, which are handed out as owned
  // buffers in `outputs`. `watch` may be null; see listener.h.
  void execute(int device, std::span<Buffer* const> arguments, std::span<const int64_t> keep,
               std::span<Buffer* const> donated, std::span<const int64_t> output_bytes,
               BufferRef* outputs, Watch* watch = nullptr) const;
  std::string serialize() const;

 private:
  Client* client_;
  PJRT_LoadedExecutable* raw_;
  size_t outputs_;
};

struct DeviceInfo {
  int id = 0;
  std::string kind;
};

class TORCH_TPU_API Client {
 public:
  // Loads the plugin at `path` and starts a client with plugin-specific `options`. Throws Error.
  static Client* create(const std::string& path, const std::map<std::string, Option>& options);

  const PluginApi& api() const { return api_; }
  int device_count() const { return static_cast<int>(devices_.size()); }
  const DeviceInfo& device_info(int device) const { return infos_.at(device); }
  const std::string& platform() const { return platform_; }
  const std::string& platform_version() const { return platform_version_; }
  MemoryCounters& memory(int device) { return *memory_.at(device); }
  PJRT_Device* device(int index) const { return devices_[index]; }

  // Copies dense row-major host data to a device. The data may be changed after the call.
  BufferRef from_host(const void* data, ElementType type, std::span<const int64_t> dims,
                      int64_t bytes, int device);
  // Compiles StableHLO (MLIR text or bytecode) with a serialized CompileOptionsProto.
  std::unique_ptr<Executable> compile(const std::string& code, const std::string& options);
  std::unique_ptr<Executable> deserialize(const std::string& data);
  // Throws Error(RESOURCE_EXHAUSTED) if `bytes` more do not fit the limit of `device`.
  void require(int device, int64_t bytes) const;
  // Runs `body`, by which the plugin needs `bytes` on `device`. An error that says that it has no
  // memory for them gets these facts, and stays what it is otherwise.
  template <class Body>
  void allocating(int device, int64_t bytes, Body&& body) const {
    try {
      body();
    } catch (const Error& error) {
      if (!error.out_of_memory() || error.device() >= 0) throw;
      refused(error, device, bytes);
    }
  }
  int64_t compile_count() const { return compiles_.load(); }
  // How many executables there are.
  int64_t program_count() const { return programs_.load(); }

 private:
  explicit Client(PluginApi api) : api_(api) {}
  void describe(size_t most_devices);
  std::unique_ptr<Executable> wrap(PJRT_LoadedExecutable* raw);
  [[noreturn]] void refused(const Error& error, int device, int64_t bytes) const;
  std::string usage(int device) const;

  PluginApi api_;
  PJRT_Client* client_ = nullptr;
  std::vector<PJRT_Device*> devices_;
  std::vector<DeviceInfo> infos_;
  std::vector<std::unique_ptr<MemoryCounters>> memory_;
  std::string platform_;
  std::string platform_version_;
  std::atomic<int64_t> compiles_{0};
  std::atomic<int64_t> programs_{0};
  friend class Executable;  // counts itself
};

// Gives host memory that was freed back to the system (the CPU plugin's arrays are there).
TORCH_TPU_API void return_memory();

}  // namespace torch_tpu::pjrt
