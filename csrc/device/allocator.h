// Access to the two allocators; see allocator.cc.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>

namespace torch_tpu {

c10::Allocator* device_allocator();
at::HostAllocator* pinned_allocator();
// Whether a host pointer lies in a block of the pinned allocator.
bool is_pinned(const void* pointer);

}  // namespace torch_tpu
