// A plugin's own profiler, which sees inside programs: PJRT's profiler extension.
//
// The extension's header is not among those that come with plugins, so the few structs it takes are
// declared in tracer.cc. XLA's CPU plugin has no such extension; those of TPUs have.
#pragma once

#include <string>

#include "client.h"

namespace torch_tpu::pjrt {

struct PluginProfiler;  // the function table of the extension

// One trace: start, stop, data. Not to be used from several threads at once.
class TORCH_TPU_API Tracer {
 public:
  // Whether the plugin of `client` can trace.
  static bool supported(const Client& client);

  // `options` is a serialised tensorflow.ProfileOptions. Throws Error(UNIMPLEMENTED) if the plugin
  // cannot trace, and what the plugin says if it refuses, as the other functions do.
  Tracer(const Client& client, const std::string& options);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  void start();
  void stop();
  // A serialised tensorflow.profiler.XSpace.
  std::string data();

 private:
  const PluginProfiler* api_;
  void* profiler_ = nullptr;
};

}  // namespace torch_tpu::pjrt
