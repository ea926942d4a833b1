// The process that compiles for devices that are not attached: `aot_compiler PLUGIN FOLDER`.
//
// A TPU compiler ends its process on some programs instead of returning an error, and takes a lock
// of the machine; so it works here, and whoever asks (torch_tpu/aot/worker.py) outlives it.
// Requests come on stdin and answers go to stdout, each a list of byte strings: uint32 count, then
// for each uint64 size and the bytes, little-endian. An answer is "ok" and results, or "error", a
// PJRT_Error_Code and a message.
//
//   topology NAME OPTIONS               -> JSON of the topology
//   compile NAME OPTIONS CODE BUILD     -> JSON of the facts, optimised program, executable
//
// When nobody can ask any more, because the parent has closed its end or died, the process ends at
// once, also in the middle of a compilation, and removes FOLDER, where its logs are.
//
// OPTIONS are the topology's, a line each: `name=i:4`, `=b:1`, `=l:1,1,1`, `=s:text`. BUILD is a
// serialized CompileOptionsProto.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "json.h"
#include "pjrt/topology.h"

namespace torch_tpu::aot {

namespace {

using pjrt::Options;
using Fields = std::vector<std::string>;

bool read_exactly(void* destination, size_t size) {
  return std::fread(destination, 1, size, stdin) == size;
}

// Empty at the end of the input, or if it is cut off.
Fields read_fields() {
  uint32_t count = 0;
  if (!read_exactly(&count, sizeof(count))) return {};
  Fields fields(count);
  for (auto& field : fields) {
    uint64_t size = 0;
    if (!read_exactly(&size, sizeof(size))) return {};
    field.resize(size);
    if (!read_exactly(field.data(), size)) return {};
  }
  return fields;
}

void write_fields(FILE* answers, const Fields& fields) {
  auto count = static_cast<uint32_t>(fields.size());
  std::fwrite(&count, sizeof(count), 1, answers);
  for (const auto& field : fields) {
    uint64_t size = field.size();
    std::fwrite(&size, sizeof(size), 1, answers);
    std::fwrite(field.data(), 1, size, answers);
  }
  std::fflush(answers);
}

pjrt::Option parse_option(char kind, const std::string& text) {
  if (kind == 'i') return static_cast<int64_t>(std::stoll(text));
  if (kind == 'b') return text == "1";
  if (kind != 'l') return text;
  std::vector<int64_t> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) numbers.push_back(std::stoll(part));
  return numbers;
}

Options parse_options(const std::string& text) {
  Options options;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t equals = line.find('=');
    if (equals == std::string::npos || line.size() < equals + 3) {
      throw pjrt::Error(3, "not an option: " + line);
    }
    options[line.substr(0, equals)] = parse_option(line[equals + 1], line.substr(equals + 3));
  }
  return options;
}

class Compiler {
 public:
  explicit Compiler(const std::string& plugin) : api_(pjrt::PluginApi::load(plugin)) {}

  Fields answer(const Fields& request) {
    const std::string& command = request.at(0);
    if (command == "topology") return {"ok", describe(topology(request.at(1), request.at(2)))};
    if (command == "compile") {
      return compile(topology(request.at(1), request.at(2)), request.at(3), request.at(4));
    }
    throw pjrt::Error(12, "no such request: " + command);
  }

 private:
  const pjrt::Topology& topology(const std::string& name, const std::string& options) {
    auto& held = topologies_[name + "\n" + options];
    if (!held) held = std::make_unique<pjrt::Topology>(api_, name, parse_options(options));
    return *held;
  }

  static std::string describe(const pjrt::Topology& topology) {
    std::vector<std::string> devices;
    for (const auto& device : topology.devices()) {
      devices.push_back(json::object({{"id", std::to_string(device.id)},
                                      {"kind", json::text(device.kind)},
                                      {"attributes", json::options(device.attributes)}}));
    }
    return json::object({{"platform", json::text(topology.platform())},
                         {"platform_version", json::text(topology.platform_version())},
                         {"attributes", json::options(topology.attributes())},
                         {"devices", json::list(devices)}});
  }

  static Fields compile(const pjrt::Topology& topology, const std::string& code,
                        const std::string& options) {
    auto compiled = topology.compile(code, options);
    std::string format;
    std::string optimized = compiled->optimized(format);
    std::string facts = json::object({{"memory", json::options(compiled->memory())},
                                      {"cost", json::options(compiled->cost())},
                                      {"format", json::text(format)},
                                      {"fingerprint", json::text(compiled->fingerprint())}});
    return {"ok", facts, optimized, compiled->serialize()};
  }

  pjrt::PluginApi api_;
  std::map<std::string, std::unique_ptr<pjrt::Topology>> topologies_;
};

Fields failed(const std::exception& error, int code) {
  return {"error", std::to_string(code), error.what()};
}

// Ends the process when the other end of stdin is closed.
void end_with_parent(const std::string& folder) {
  pollfd input{STDIN_FILENO, 0, 0};  // no events: only that the writers are gone
  while (poll(&input, 1, -1) < 0 || (input.revents & (POLLHUP | POLLERR)) == 0) {
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  _exit(0);
}

void serve(const std::string& plugin, FILE* answers) {
  std::unique_ptr<Compiler> compiler;
  for (Fields request = read_fields(); !request.empty(); request = read_fields()) {
    try {
      if (!compiler) compiler = std::make_unique<Compiler>(plugin);
      write_fields(answers, compiler->answer(request));
    } catch (const pjrt::Error& error) {
      write_fields(answers, failed(error, error.code()));
    } catch (const std::exception& error) {
      write_fields(answers, failed(error, 2));
    }
  }
}

}  // namespace

}  // namespace torch_tpu::aot

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: aot_compiler PLUGIN FOLDER\n";
    return 2;
  }
  // What the plugin prints must not get between the answers.
  FILE* answers = fdopen(dup(STDOUT_FILENO), "wb");
  if (answers == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 2;
  std::thread parent(torch_tpu::aot::end_with_parent, std::string(argv[2]));
  torch_tpu::aot::serve(argv[1], answers);
  parent.join();  // the end of the requests is the end of the process
}
