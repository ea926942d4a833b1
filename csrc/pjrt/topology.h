// Devices that need not be attached, and programs compiled for them.
//
// A plugin describes a topology by its name ("v6e:2x2") and compiles for it without a client. What
// comes out cannot run here: `Compiled` is read for what the compiler knows about the program, and
// serialised for a machine that has the devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "named_value.h"

namespace torch_tpu::pjrt {

struct DeviceDescription {
  int64_t id = 0;
  std::string kind;
  Options attributes;
};

class TORCH_TPU_API Compiled {
 public:
  Compiled(PluginApi api, PJRT_Executable* raw) : api_(api), raw_(raw) {}
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  // Bytes of one device, by the names of PJRT_Executable_GetCompiledMemoryStats_Args.
  Options memory() const;
  // What the compiler counted, by its own names ("flops", "bytes accessed").
  Options cost() const;
  // A serialized HloModuleProtoWithConfig, or HloModuleProto; `format` says which.
  std::string optimized(std::string& format) const;
  std::string fingerprint() const;
  // What PJRT_Executable_DeserializeAndLoad takes on a machine that has the devices.
  std::string serialize() const;

 private:
  PluginApi api_;
  PJRT_Executable* raw_;
};

class TORCH_TPU_API Topology {
 public:
  // Throws Error for a name or an option that the plugin does not know.
  Topology(PluginApi api, const std::string& name, const Options& options);
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  std::string platform() const;
  std::string platform_version() const;
  std::vector<DeviceDescription> devices() const;
  Options attributes() const;
  // Compiles StableHLO (MLIR text or bytecode) with a serialized CompileOptionsProto.
  std::unique_ptr<Compiled> compile(const std::string& code, const std::string& options) const;

 private:
  PluginApi api_;
  PJRT_TopologyDescription* raw_ = nullptr;
};

}  // namespace torch_tpu::pjrt
