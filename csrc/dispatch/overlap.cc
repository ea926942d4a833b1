// See overlap.h. Runs on every call that writes, so tensors of different storages pass at once.
#include "overlap.h"

#include <ATen/MemoryOverlap.h>

namespace torch_tpu {

Overlap to_overlap(const std::string& word) {
  if (word.empty()) return Overlap::kFree;
  if (word == "partial") return Overlap::kPartial;
  TORCH_CHECK(word == "any", "unknown overlap: ", word);
  return Overlap::kAny;
}

void check_overlap(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments) {
  if (kernel.overlap == Overlap::kFree) return;
  auto check_pair = [&](const at::Tensor& written, const at::Tensor& read) {
    if (!read.defined() || !read.is_alias_of(written)) return;
    at::assert_no_partial_overlap(written, read);
    if (kernel.overlap == Overlap::kAny) at::assert_no_overlap(written, read);
  };
  for (int32_t target : kernel.targets) {
    each_tensor(arguments[target], [&](const at::Tensor& written) {
      for (size_t i = 0; written.defined() && i < arguments.size(); ++i) {
        if (static_cast<int32_t>(i) == target || kernel.arguments[i].role != Role::kRead) continue;
        each_tensor(arguments[i], [&](const at::Tensor& read) { check_pair(written, read); });
      }
    });
  }
}

}  // namespace torch_tpu
