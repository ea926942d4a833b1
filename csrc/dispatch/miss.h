// The one place where the core calls Python: building the entry for a key that was not found.
#pragma once

#include <ATen/core/stack.h>

#include <functional>

#include "entry.h"

namespace torch_tpu {

struct OpKernel;

// Builds and inserts the entry of `key`. If another thread is already building it, waits for that
// instead (without holding the GIL), so that a key is compiled once.
const Entry* build_once(Cache& cache, const Key& key,
                        const std::function<std::shared_ptr<Entry>()>& build);

// torch_tpu.dispatch.miss.build_entry for an operator call.
std::shared_ptr<Entry> build_operator(const OpKernel& kernel, c10::ArrayRef<c10::IValue> arguments);
// torch_tpu.dispatch.views.build_internal.
std::shared_ptr<Entry> build_internal(c10::ArrayRef<int64_t> words);

// Calls a Python callable with the operator's arguments; returns its results, one per return of the
// operator's functional schema.
std::vector<c10::IValue> call_python(const OpKernel& kernel, const std::shared_ptr<void>& callable,
                                     c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_tpu
