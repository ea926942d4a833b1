// Both directions of PJRT_NamedValue. See named_value.h.
#include "named_value.h"

namespace torch_tpu::pjrt {

PJRT_NamedValue named_value(const std::string& name, const Option& option) {
  PJRT_ARGS(PJRT_NamedValue, value);
  value.name = name.data();
  value.name_size = name.size();
  value.value_size = 1;
  if (auto* flag = std::get_if<bool>(&option)) {
    value.type = PJRT_NamedValue_kBool;
    value.bool_value = *flag;
  } else if (auto* integer = std::get_if<int64_t>(&option)) {
    value.type = PJRT_NamedValue_kInt64;
    value.int64_value = *integer;
  } else if (auto* number = std::get_if<double>(&option)) {
    value.type = PJRT_NamedValue_kFloat;
    value.float_value = static_cast<float>(*number);
  } else if (auto* list = std::get_if<std::vector<int64_t>>(&option)) {
    value.type = PJRT_NamedValue_kInt64List;
    value.int64_array_value = list->data();
    value.value_size = list->size();
  } else {
    const auto& text = std::get<std::string>(option);
    value.type = PJRT_NamedValue_kString;
    value.string_value = text.data();
    value.value_size = text.size();
  }
  return value;
}

std::vector<PJRT_NamedValue> named_values(const Options& options) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, option] : options) values.push_back(named_value(name, option));
  return values;
}

namespace {

Option option_of(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kBool:
      return value.bool_value;
    case PJRT_NamedValue_kInt64:
      return value.int64_value;
    case PJRT_NamedValue_kFloat:
      return static_cast<double>(value.float_value);
    case PJRT_NamedValue_kInt64List:
      return std::vector<int64_t>(value.int64_array_value,
                                  value.int64_array_value + value.value_size);
    default:
      return std::string(value.string_value, value.value_size);
  }
}

}  // namespace

Options options_of(const PJRT_NamedValue* values, size_t count) {
  Options options;
  for (size_t i = 0; i < count; ++i) {
    options.insert_or_assign(std::string(values[i].name, values[i].name_size),
                             option_of(values[i]));
  }
  return options;
}

}  // namespace torch_tpu::pjrt
