// PJRT_NamedValue, in which plugins take options and give attributes, as values of ours.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "api.h"

namespace torch_tpu::pjrt {

using Option = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;
using Options = std::map<std::string, Option>;

// A view of `name` and `option`, which must live as long as it.
TORCH_TPU_API PJRT_NamedValue named_value(const std::string& name, const Option& option);

TORCH_TPU_API std::vector<PJRT_NamedValue> named_values(const Options& options);

// Copies of what a plugin gave.
TORCH_TPU_API Options options_of(const PJRT_NamedValue* values, size_t count);

}  // namespace torch_tpu::pjrt
