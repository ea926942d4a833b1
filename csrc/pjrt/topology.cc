// Compilation for devices that are not attached. See topology.h.
#include "topology.h"

namespace torch_tpu::pjrt {

namespace {

// Plugins newer than our header may write the fields that were added after it: leave them room.
template <class Args>
struct Roomy {
  Args args{};
  char more[512] = {};
};

}  // namespace

Compiled::~Compiled() {
  PJRT_ARGS(PJRT_Executable_Destroy_Args, args);
  args.executable = raw_;
  api_.call_quiet(&PJRT_Api::PJRT_Executable_Destroy, "PJRT_Executable_Destroy", args);
}

Options Compiled::memory() const {
  Roomy<PJRT_Executable_GetCompiledMemoryStats_Args> roomy;
  auto& args = roomy.args;
  args.struct_size = PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE;
  args.executable = raw_;
  PJRT_CALL(api_, PJRT_Executable_GetCompiledMemoryStats, args);
  return {
      {"generated_code_size_in_bytes", args.generated_code_size_in_bytes},
      {"argument_size_in_bytes", args.argument_size_in_bytes},
      {"output_size_in_bytes", args.output_size_in_bytes},
      {"alias_size_in_bytes", args.alias_size_in_bytes},
      {"temp_size_in_bytes", args.temp_size_in_bytes},
      {"peak_memory_in_bytes", args.peak_memory_in_bytes},
      {"host_argument_size_in_bytes", args.host_argument_size_in_bytes},
      {"host_output_size_in_bytes", args.host_output_size_in_bytes},
      {"host_temp_size_in_bytes", args.host_temp_size_in_bytes},
  };
}

Options Compiled::cost() const {
  PJRT_ARGS(PJRT_Executable_GetCostAnalysis_Args, args);
  args.executable = raw_;
  PJRT_CALL(api_, PJRT_Executable_GetCostAnalysis, args);
  return options_of(args.properties, args.num_properties);
}

std::string Compiled::optimized(std::string& format) const {
  PJRT_ARGS(PJRT_Program, program);
  PJRT_ARGS(PJRT_Executable_OptimizedProgram_Args, args);
  args.executable = raw_;
  args.program = &program;
  PJRT_CALL(api_, PJRT_Executable_OptimizedProgram, args);  // without a place: asks for the size
  std::string code(program.code_size, '\0');
  program.code = code.data();
  PJRT_CALL(api_, PJRT_Executable_OptimizedProgram, args);
  format.assign(program.format, program.format_size);
  return code;
}

std::string Compiled::fingerprint() const {
  PJRT_ARGS(PJRT_Executable_Fingerprint_Args, args);
  args.executable = raw_;
  PJRT_CALL(api_, PJRT_Executable_Fingerprint, args);
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

std::string Compiled::serialize() const {
  PJRT_ARGS(PJRT_Executable_Serialize_Args, args);
  args.executable = raw_;
  PJRT_CALL(api_, PJRT_Executable_Serialize, args);
  std::string data(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return data;
}

Topology::Topology(PluginApi api, const std::string& name, const Options& options) : api_(api) {
  std::vector<PJRT_NamedValue> values = named_values(options);
  PJRT_ARGS(PJRT_TopologyDescription_Create_Args, args);
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  args.create_options = values.data();
  args.num_options = values.size();
  PJRT_CALL(api_, PJRT_TopologyDescription_Create, args);
  raw_ = args.topology;
}

Topology::~Topology() {
  PJRT_ARGS(PJRT_TopologyDescription_Destroy_Args, args);
  args.topology = raw_;
  api_.call_quiet(&PJRT_Api::PJRT_TopologyDescription_Destroy, "PJRT_TopologyDescription_Destroy",
                  args);
}

std::string Topology::platform() const {
  PJRT_ARGS(PJRT_TopologyDescription_PlatformName_Args, args);
  args.topology = raw_;
  PJRT_CALL(api_, PJRT_TopologyDescription_PlatformName, args);
  return std::string(args.platform_name, args.platform_name_size);
}

std::string Topology::platform_version() const {
  PJRT_ARGS(PJRT_TopologyDescription_PlatformVersion_Args, args);
  args.topology = raw_;
  PJRT_CALL(api_, PJRT_TopologyDescription_PlatformVersion, args);
  return std::string(args.platform_version, args.platform_version_size);
}

std::vector<DeviceDescription> Topology::devices() const {
  PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions_Args, list);
  list.topology = raw_;
  PJRT_CALL(api_, PJRT_TopologyDescription_GetDeviceDescriptions, list);
  std::vector<DeviceDescription> devices;
  for (size_t i = 0; i < list.num_descriptions; ++i) {
    PJRT_DeviceDescription* description = list.descriptions[i];
    PJRT_ARGS(PJRT_DeviceDescription_Id_Args, id);
    id.device_description = description;
    PJRT_CALL(api_, PJRT_DeviceDescription_Id, id);
    PJRT_ARGS(PJRT_DeviceDescription_Kind_Args, kind);
    kind.device_description = description;
    PJRT_CALL(api_, PJRT_DeviceDescription_Kind, kind);
    PJRT_ARGS(PJRT_DeviceDescription_Attributes_Args, attributes);
    attributes.device_description = description;
    PJRT_CALL(api_, PJRT_DeviceDescription_Attributes, attributes);
    devices.push_back({id.id, std::string(kind.device_kind, kind.device_kind_size),
                       options_of(attributes.attributes, attributes.num_attributes)});
  }
  return devices;
}

Options Topology::attributes() const {
  PJRT_ARGS(PJRT_TopologyDescription_Attributes_Args, args);
  args.topology = raw_;
  PJRT_CALL(api_, PJRT_TopologyDescription_Attributes, args);
  return options_of(args.attributes, args.num_attributes);
}

std::unique_ptr<Compiled> Topology::compile(const std::string& code,
                                            const std::string& options) const {
  PJRT_Program program = mlir_program(code);
  PJRT_ARGS(PJRT_Compile_Args, args);
  args.topology = raw_;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  PJRT_CALL(api_, PJRT_Compile, args);
  return std::make_unique<Compiled>(api_, args.executable);
}

}  // namespace torch_tpu::pjrt
