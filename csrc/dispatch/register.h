// Registers rules with torch's dispatcher; see register.cc.
#pragma once

#include <map>
#include <optional>

#include "call.h"

namespace torch_tpu {

// A rule as Python describes it (torch_tpu/lowering/registry.py, Rule).
struct RuleOptions {
  std::string functional;
  std::vector<std::string> runtime;
  std::vector<std::string> fixed;  // numbers that are part of the key
  std::map<std::string, std::vector<double>> specialized;
  std::vector<std::string> writes;
  std::vector<std::string> host;
  std::map<std::string, std::string> bounds;  // run-time argument -> what its value must be
  std::string inplace;                        // its in-place overload when the name does not tell
  std::string overlap;                        // refused overlap: "", "partial" or "any"
  bool overwrites = false;
  bool random = false;
  bool range = false;
  bool matmul = false;
  std::shared_ptr<void> procedure;
  std::shared_ptr<void> masked;
};

// Registers a kernel for the functional overload and for the in-place and out= overloads that the
// schemas say belong to it. Returns their names. Throws if the overload does not exist or is
// composite-implicit (a kernel would cut it off from autograd).
std::vector<std::string> register_rule(const RuleOptions& options);

// A kernel for one captured graph: of the shared schema torch_tpu::graph, but with a rule (and so a
// cache) of its own, `options.functional`. The dispatcher does not know it.
std::unique_ptr<OpKernel> make_graph_kernel(const RuleOptions& options);

// The kernel of an overload, or null.
OpKernel* find_kernel(const std::string& name);

}  // namespace torch_tpu
