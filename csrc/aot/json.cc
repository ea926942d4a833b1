// JSON text. See json.h.
#include "json.h"

#include <cmath>
#include <cstdio>

namespace torch_tpu::aot::json {

namespace {

std::string joined(const std::vector<std::string>& items) {
  std::string result;
  for (const auto& item : items) result += (result.empty() ? "" : ",") + item;
  return result;
}

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.17g", value);
  return buffer;
}

std::string written(const pjrt::Option& option) {
  if (auto* flag = std::get_if<bool>(&option)) return *flag ? "true" : "false";
  if (auto* integer = std::get_if<int64_t>(&option)) return std::to_string(*integer);
  if (auto* real = std::get_if<double>(&option)) return number(*real);
  if (auto* numbers = std::get_if<std::vector<int64_t>>(&option)) {
    std::vector<std::string> items;
    for (int64_t item : *numbers) items.push_back(std::to_string(item));
    return list(items);
  }
  return text(std::get<std::string>(option));
}

}  // namespace

// Bytes outside printable ASCII become the code points of the same numbers: plugins promise no
// encoding.
std::string text(const std::string& value) {
  std::string result = "\"";
  for (unsigned char byte : value) {
    if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\') {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
      result += escaped;
    } else {
      result += static_cast<char>(byte);
    }
  }
  return result + "\"";
}

std::string list(const std::vector<std::string>& items) { return "[" + joined(items) + "]"; }

std::string object(const std::vector<std::pair<std::string, std::string>>& members) {
  std::vector<std::string> items;
  for (const auto& [name, value] : members) items.push_back(text(name) + ":" + value);
  return "{" + joined(items) + "}";
}

std::string options(const pjrt::Options& options) {
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& [name, option] : options) members.emplace_back(name, written(option));
  return object(members);
}

}  // namespace torch_tpu::aot::json
