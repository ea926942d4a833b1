// A compiled graph: a kernel of its own that Python calls directly, without the dispatcher.
#pragma once

#include <pybind11/pybind11.h>

#include "register.h"

namespace torch_tpu {

// A captured graph takes part in calls as the operator
//   torch_tpu::graph(Tensor[] reads, Tensor(a!)[] writes, int[] sizes, int[] values,
//                    float[] numbers) -> Tensor[]
// whose rule is the graph. All graphs share that schema; each has a kernel, and so a cache.
class Graph {
 public:
  // `roles` says for every input of the graph to which of the lists it goes ('r', 'w', 's', 'v',
  // 'n') or that nothing depends on it ('-'). Output i of the graph is, for outputs[i] >= 0, result
  // outputs[i] of the program, else input -1 - outputs[i] itself.
  Graph(const RuleOptions& options, std::string roles, std::vector<int64_t> outputs);

  // Runs the graph on a list of its inputs, and returns a list of its outputs. `constants` are
  // read after the inputs. The list is emptied, so that its tensors may be freed before the end.
  pybind11::list call(pybind11::list inputs, const pybind11::list& constants);

  size_t entries() const { return kernel_->cache.size(); }

 private:
  std::unique_ptr<OpKernel> kernel_;
  std::string roles_;
  std::vector<int64_t> outputs_;
};

// A rule as torch_tpu/dispatch/register.py describes it.
RuleOptions to_options(const pybind11::dict& rule);

// Adds the class to the module of the core.
void bind_graph(pybind11::module_& m);

}  // namespace torch_tpu
