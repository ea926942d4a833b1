// Writes JSON: the little that the answers of the compiler process need.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pjrt/named_value.h"

namespace torch_tpu::aot::json {

std::string text(const std::string& value);
std::string list(const std::vector<std::string>& items);
std::string object(const std::vector<std::pair<std::string, std::string>>& members);
std::string options(const pjrt::Options& options);

}  // namespace torch_tpu::aot::json
