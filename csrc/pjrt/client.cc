// The client: devices, host copies in, compilation. See client.h.
#include "client.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>

namespace torch_tpu::pjrt {

static_assert(static_cast<int>(ElementType::kPred) == PJRT_Buffer_Type_PRED);
static_assert(static_cast<int>(ElementType::kS64) == PJRT_Buffer_Type_S64);
static_assert(static_cast<int>(ElementType::kU64) == PJRT_Buffer_Type_U64);
static_assert(static_cast<int>(ElementType::kF16) == PJRT_Buffer_Type_F16);
static_assert(static_cast<int>(ElementType::kF64) == PJRT_Buffer_Type_F64);
static_assert(static_cast<int>(ElementType::kBF16) == PJRT_Buffer_Type_BF16);
static_assert(static_cast<int>(ElementType::kC128) == PJRT_Buffer_Type_C128);
static_assert(static_cast<int>(ElementType::kF8E5M2) == PJRT_Buffer_Type_F8E5M2);
static_assert(static_cast<int>(ElementType::kF8E4M3FN) == PJRT_Buffer_Type_F8E4M3FN);

void Counter::add(int64_t amount) {
  int64_t now = current_.fetch_add(amount, std::memory_order_relaxed) + amount;
  added_.fetch_add(amount, std::memory_order_relaxed);
  int64_t seen = peak_.load(std::memory_order_relaxed);
  while (now > seen && !peak_.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void Counter::reset_sums() {
  added_.store(0);
  before_.store(current());
}

void MemoryCounters::add(int64_t size) {
  if (size == 0) return;
  bytes.add(size);
  arrays.add(1);
}

void MemoryCounters::remove(int64_t size) {
  if (size == 0) return;
  bytes.remove(size);
  arrays.remove(1);
}

void MemoryCounters::reset_peaks() {
  bytes.reset_peak();
  arrays.reset_peak();
}

void MemoryCounters::reset_sums() {
  bytes.reset_sums();
  arrays.reset_sums();
  ooms.store(0);
  retries.store(0);
}

namespace {

int64_t physical_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

// XLA's CPU plugin takes its arrays from malloc and gives them back when they die. By default glibc
// hands large ones to the system at once, and every use of new ones costs a page fault per 4 KiB:
// more than computing them (measured: 8 MiB of products took 7.4 ms instead of 0.8). So freed
// memory is kept for the next array, up to a bound; `return_memory` hands it back.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that glibc takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace

void return_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// The CPU plugin makes this many devices unless told otherwise.
constexpr int64_t kDefaultCpuDevices = 4;

Client* Client::create(const std::string& path, const std::map<std::string, Option>& options) {
  std::vector<PJRT_NamedValue> values;
  int64_t limit = 0;
  size_t wanted = SIZE_MAX;
  for (const auto& [name, option] : options) {
    if (name == "memory_limit") {  // ours, not the plugin's
      limit = std::get<int64_t>(option);
      continue;
    }
    if (name == "cpu_device_count") {
      wanted = static_cast<size_t>(std::get<int64_t>(option));
      // The plugin logs a line to stderr when it gets this option, so it gets it only if needed;
      // fewer devices than it has are had by ignoring the rest.
      if (wanted <= kDefaultCpuDevices) continue;
    }
    values.push_back(named_value(name, option));
  }
  auto client = std::unique_ptr<Client>(new Client(PluginApi::load(path)));
  PJRT_ARGS(PJRT_Client_Create_Args, args);
  args.create_options = values.data();
  args.num_options = values.size();
  PJRT_CALL(client->api_, PJRT_Client_Create, args);
  client->client_ = args.client;
  client->describe(wanted);
  if (client->platform_ == "cpu") keep_freed_memory();
  for (auto& counters : client->memory_) {
    if (limit > 0) counters->total = limit;
    counters->limit.store(counters->total);
  }
  return client.release();
}

void Client::describe(size_t most_devices) {
  PJRT_ARGS(PJRT_Client_PlatformName_Args, name);
  name.client = client_;
  PJRT_CALL(api_, PJRT_Client_PlatformName, name);
  platform_.assign(name.platform_name, name.platform_name_size);
  PJRT_ARGS(PJRT_Client_PlatformVersion_Args, version);
  version.client = client_;
  PJRT_CALL(api_, PJRT_Client_PlatformVersion, version);
  platform_version_.assign(version.platform_version, version.platform_version_size);
  PJRT_ARGS(PJRT_Client_AddressableDevices_Args, list);
  list.client = client_;
  PJRT_CALL(api_, PJRT_Client_AddressableDevices, list);
  size_t count = std::min(list.num_addressable_devices, most_devices);
  for (size_t i = 0; i < count; ++i) {
    PJRT_Device* device = list.addressable_devices[i];
    PJRT_ARGS(PJRT_Device_GetDescription_Args, description);
    description.device = device;
    PJRT_CALL(api_, PJRT_Device_GetDescription, description);
    PJRT_ARGS(PJRT_DeviceDescription_Id_Args, id);
    id.device_description = description.device_description;
    PJRT_CALL(api_, PJRT_DeviceDescription_Id, id);
    PJRT_ARGS(PJRT_DeviceDescription_Kind_Args, kind);
    kind.device_description = description.device_description;
    PJRT_CALL(api_, PJRT_DeviceDescription_Kind, kind);
    devices_.push_back(device);
    infos_.push_back({id.id, std::string(kind.device_kind, kind.device_kind_size)});
    memory_.push_back(std::make_unique<MemoryCounters>());
    PJRT_ARGS(PJRT_Device_MemoryStats_Args, stats);
    stats.device = device;
    try {
      PJRT_CALL(api_, PJRT_Device_MemoryStats, stats);
      if (stats.bytes_limit_is_set) memory_.back()->total = stats.bytes_limit;
    } catch (const Error&) {
      // The CPU plugin does not implement this call: its devices share the machine's memory.
      memory_.back()->total = physical_memory();
    }
    if (memory_.back()->total <= 0) memory_.back()->total = physical_memory();
  }
}

BufferRef Client::from_host(const void* data, ElementType type, std::span<const int64_t> dims,
                            int64_t bytes, int device) {
  require(device, bytes);
  PJRT_ARGS(PJRT_Client_BufferFromHostBuffer_Args, args);
  args.client = client_;
  args.data = data;
  args.type = static_cast<PJRT_Buffer_Type>(type);
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = devices_.at(device);
  allocating(device, bytes, [&] { PJRT_CALL(api_, PJRT_Client_BufferFromHostBuffer, args); });
  if (args.done_with_host_buffer != nullptr) {
    PJRT_ARGS(PJRT_Event_Destroy_Args, event);
    event.event = args.done_with_host_buffer;
    api_.call_quiet(&PJRT_Api::PJRT_Event_Destroy, "PJRT_Event_Destroy", event);
  }
  return BufferRef(new Buffer(this, args.buffer, device, bytes));
}

std::unique_ptr<Executable> Client::compile(const std::string& code, const std::string& options) {
  PJRT_Program program = mlir_program(code);
  PJRT_ARGS(PJRT_Client_Compile_Args, args);
  args.client = client_;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  PJRT_CALL(api_, PJRT_Client_Compile, args);
  compiles_.fetch_add(1);
  return wrap(args.executable);
}

std::unique_ptr<Executable> Client::deserialize(const std::string& data) {
  PJRT_ARGS(PJRT_Executable_DeserializeAndLoad_Args, args);
  args.client = client_;
  args.serialized_executable = data.data();
  args.serialized_executable_size = data.size();
  PJRT_CALL(api_, PJRT_Executable_DeserializeAndLoad, args);
  return wrap(args.loaded_executable);
}

std::unique_ptr<Executable> Client::wrap(PJRT_LoadedExecutable* raw) {
  PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable_Args, get);
  get.loaded_executable = raw;
  PJRT_CALL(api_, PJRT_LoadedExecutable_GetExecutable, get);
  PJRT_ARGS(PJRT_Executable_NumOutputs_Args, outputs);
  outputs.executable = get.executable;
  PJRT_CALL(api_, PJRT_Executable_NumOutputs, outputs);
  PJRT_ARGS(PJRT_Executable_Destroy_Args, destroy);
  destroy.executable = get.executable;
  api_.call_quiet(&PJRT_Api::PJRT_Executable_Destroy, "PJRT_Executable_Destroy", destroy);
  return std::make_unique<Executable>(this, raw, outputs.num_outputs);
}

// "40 bytes", "4194304 bytes (4.0 MiB)", "34359738368 bytes (32.0 GiB)".
std::string shown(int64_t bytes) {
  std::string text = std::to_string(bytes) + " bytes";
  if (bytes < (1 << 20)) return text;
  static constexpr const char* kUnits[] = {"MiB", "GiB", "TiB", "PiB", "EiB"};
  int shift = 20;
  while (bytes >> shift >= 1024) shift += 10;
  int64_t tenths = ((bytes >> (shift - 10) & 1023) * 10) >> 10;
  return text + " (" + std::to_string(bytes >> shift) + "." + std::to_string(tenths) + " " +
         kUnits[shift / 10 - 2] + ")";
}

std::string Client::usage(int device) const {
  const MemoryCounters& counters = *memory_.at(device);
  return "; " + shown(counters.bytes.current()) + " are in use of a limit of " +
         shown(counters.limit.load());
}

void Client::require(int device, int64_t bytes) const {
  const MemoryCounters& counters = *memory_.at(device);
  int64_t free = counters.limit.load(std::memory_order_relaxed) - counters.bytes.current();
  if (bytes <= free) return;
  throw Error(
      Error::kOutOfMemory,
      "tried to allocate " + shown(bytes) + " on tpu:" + std::to_string(device) + usage(device),
      device, bytes);
}

void Client::refused(const Error& error, int device, int64_t bytes) const {
  throw Error(Error::kOutOfMemory,
              "the plugin could not allocate " + shown(bytes) +
                  " and what computing them takes on tpu:" + std::to_string(device) +
                  usage(device) + ". It says: " + error.what(),
              device, bytes);
}

}  // namespace torch_tpu::pjrt
