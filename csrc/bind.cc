// What Python may see of the core: torch_tpu._core.
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>

#include "device/generator.h"
#include "device/hooks.h"
#include "device/memory.h"
#include "device/profiler.h"
#include "device/storage.h"
#include "dispatch/deferred.h"
#include "dispatch/executable_handle.h"
#include "dispatch/graph.h"
#include "dispatch/internal.h"
#include "dispatch/precision.h"
#include "dispatch/python.h"
#include "dispatch/register.h"
#include "dispatch/source_line.h"
#include "pjrt/tracer.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

pjrt::Option to_option(const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  return value.cast<std::string>();
}

// The plugin that was chosen, "" before the runtime starts. Read and written with the GIL.
std::string& plugin_path() {
  static auto* path = new std::string;
  return *path;
}

// `choose` is a Python callable returning (plugin path, {option: value}).
void set_plugin_chooser(py::function choose) {
  auto held = hold(choose);
  Runtime::set_chooser([held] {
    return with_python([&] {
      std::map<std::string, pjrt::Option> options;
      auto chosen = py::reinterpret_borrow<py::function>(static_cast<PyObject*>(held.get()))();
      auto fields = chosen.cast<std::pair<std::string, py::dict>>();
      for (const auto& [name, value] : fields.second) {
        options[name.cast<std::string>()] = to_option(value);
      }
      plugin_path() = fields.first;
      return std::make_pair(fields.first, options);
    });
  });
}

template <class Body>
auto without_gil(Body&& body) {
  py::gil_scoped_release released;
  return body();
}

Runtime& runtime() {
  return *without_gil([] { return &Runtime::get(); });
}

py::dict device_info(int device) {
  auto& client = runtime().client();
  const auto& info = client.device_info(checked_device(device));
  py::dict result;
  result["id"] = info.id;
  result["kind"] = info.kind;
  result["platform"] = client.platform();
  result["platform_version"] = client.platform_version();
  result["total_memory"] = client.memory(checked_device(device)).total;
  return result;
}

std::unique_ptr<ExecutableHandle> compile(const std::string& code, const std::string& options) {
  auto& client = runtime().client();
  auto handle = std::make_unique<ExecutableHandle>();
  handle->executable = without_gil([&] {
    return guarded("compilation", [&] {
      return std::shared_ptr<pjrt::Executable>(client.compile(code, options));
    });
  });
  return handle;
}

// `data` is what `serialize` gave, for this very plugin: the plugin does not check foreign bytes.
std::unique_ptr<ExecutableHandle> deserialize(const std::string& data) {
  auto& client = runtime().client();
  auto handle = std::make_unique<ExecutableHandle>();
  handle->executable = without_gil([&] {
    return guarded("loading a program",
                   [&] { return std::shared_ptr<pjrt::Executable>(client.deserialize(data)); });
  });
  return handle;
}

}  // namespace

RuleOptions to_options(const py::dict& rule) {
  RuleOptions options;
  options.functional = rule["name"].cast<std::string>();
  options.runtime = rule["runtime"].cast<std::vector<std::string>>();
  options.fixed = rule["static"].cast<std::vector<std::string>>();
  options.specialized = rule["specialize"].cast<std::map<std::string, std::vector<double>>>();
  options.writes = rule["writes"].cast<std::vector<std::string>>();
  options.host = rule["host"].cast<std::vector<std::string>>();
  options.bounds = rule["bounds"].cast<std::map<std::string, std::string>>();
  options.overlap = rule["overlap"].cast<std::string>();
  options.inplace = rule["inplace"].cast<std::string>();
  options.overwrites = rule["overwrites"].cast<bool>();
  options.random = rule["random"].cast<bool>();
  options.range = rule["range"].cast<bool>();
  options.matmul = rule["matmul"].cast<bool>();
  options.procedure = hold(rule["procedure"]);
  options.masked = hold(rule["masked"]);
  return options;
}

namespace {

py::object default_generator_object(int device) {
  return py::reinterpret_steal<py::object>(
      THPGenerator_initDefaultGenerator(default_generator(device)));
}

void bind_runtime(py::module_& m) {
  m.def("set_plugin_chooser", &set_plugin_chooser);
  m.def("plugin_path", [] { return plugin_path(); });
  m.def("expect_devices", [](int count) { Runtime::expected_devices.store(count); });
  m.def("initialize", [] { runtime(); });
  m.def("is_initialized", &Runtime::running);
  m.def("device_count", [] { return runtime().device_count(); });
  m.def("current_device", &current_device);
  m.def("set_device", [](int device) { without_gil([&] { set_current_device(device); }); });
  m.def("exchange_device", [](int device) {
    int previous = current_device();
    if (device >= 0) without_gil([&] { set_current_device(device); });
    return previous;
  });
  m.def("synchronize",
        [](int device) { without_gil([&] { synchronize(checked_device(device)); }); });
  m.def("device_info", &device_info);
  m.def("has_host_kernels", [] { return runtime().host_kernels(); });
  m.def("default_generator", &default_generator_object);
}

void bind_programs(py::module_& m) {
  py::class_<ExecutableHandle>(m, "Executable")
      .def("serialize", [](const ExecutableHandle& handle) {
        return py::bytes(guarded("serialisation", [&] { return handle.executable->serialize(); }));
      });
  m.def("compile", &compile, py::arg("code"), py::arg("options"));
  m.def("deserialize", &deserialize, py::arg("data"));
  m.def("compile_count",
        [] { return Runtime::running() ? Runtime::get().client().compile_count() : int64_t{0}; });
  m.def("cache_stats", [] {
    py::dict result;
    result["entries"] = Cache::total();
    result["live"] = Runtime::running() ? Runtime::get().client().program_count() : int64_t{0};
    result["compiles"] = Runtime::running() ? Runtime::get().client().compile_count() : int64_t{0};
    return result;
  });
  m.def("clear_caches", &Cache::clear_all);
  m.def("keep_entries", &Cache::keep);
  m.def("register_operator", [](const py::dict& rule) { return register_rule(to_options(rule)); });
}

py::dict flush_stats() {
  const FlushStats& stats = FlushStats::get();
  auto cause = [&](FlushCause which) { return stats.causes[static_cast<size_t>(which)].load(); };
  py::dict result;
  result["value"] = cause(FlushCause::kValue);
  result["synchronize"] = cause(FlushCause::kSynchronize);
  result["operators"] = cause(FlushCause::kOperators);
  result["bytes"] = cause(FlushCause::kBytes);
  result["repetition"] = cause(FlushCause::kRepetition);
  result["thread"] = cause(FlushCause::kThread);
  result["recorded"] = stats.operators.load();
  result["largest"] = stats.largest.load();
  result["last"] = stats.last.load();
  result["unused"] = stats.unused.load();
  result["hits"] = stats.hits.load();
  result["misses"] = stats.misses.load();
  result["one_by_one"] = stats.one_by_one.load();
  return result;
}

void bind_modes(py::module_& m) {
  m.def("eager_mode", [] { return static_cast<int>(eager_mode()); });
  m.def("set_eager_mode", [](int mode) {
    without_gil([&] {
      guarded("the change of the eager mode",
              [&] { set_eager_mode(static_cast<EagerMode>(mode)); });
    });
  });
  m.def("set_defer_limits", [](int64_t operators, int64_t bytes) {
    DeferLimits::get().operators.store(operators);
    DeferLimits::get().bytes.store(bytes);
  });
  m.def("flush_stats", &flush_stats);
  m.def("set_library_folders", &set_library_folders);
  m.def("float32_matmul_precision", [] { return static_cast<int>(float32_matmul_precision()); });
  m.def("source_line", [] { return SourceLine::here().text(); });
}

// The plugin's own profiler; torch_tpu/api/profiler.py is what users call.
void bind_tracer(py::module_& m) {
  auto plain = [](void (pjrt::Tracer::*step)()) {
    return [step](pjrt::Tracer& tracer) {
      without_gil([&] { guarded("the trace", [&] { (tracer.*step)(); }); });
    };
  };
  py::class_<pjrt::Tracer>(m, "Tracer")
      .def(py::init([](const std::string& options) {
        const auto& client = runtime().client();
        return guarded("the trace",
                       [&] { return std::make_unique<pjrt::Tracer>(client, options); });
      }))
      .def("start", plain(&pjrt::Tracer::start))
      .def("stop", plain(&pjrt::Tracer::stop))
      .def("data", [](pjrt::Tracer& tracer) {
        return py::bytes(guarded("the trace", [&] { return tracer.data(); }));
      });
  m.def("has_tracer", [] { return pjrt::Tracer::supported(runtime().client()); });
}

}  // namespace

}  // namespace torch_tpu

PYBIND11_MODULE(_core, m) {
  torch_tpu::register_hooks();
  torch_tpu::register_profiler();
  torch_tpu::bind_runtime(m);
  torch_tpu::bind_memory(m);
  torch_tpu::bind_programs(m);
  torch_tpu::bind_graph(m);
  torch_tpu::bind_modes(m);
  torch_tpu::bind_tracer(m);
}
