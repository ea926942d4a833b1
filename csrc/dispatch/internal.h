// Programs the device needs for itself: reading and writing views, filling, reinterpreting.
//
// They go through the same cache and the same Python side (torch_tpu/dispatch/views.py) as
// operators.
#pragma once

#include "entry.h"

namespace torch_tpu {

// The tensor's array in the tensor's dtype. An uninitialised storage becomes zeros; a storage last
// written in another dtype is reinterpreted once, for good. `dims` receives the array's dims.
// The tensor must not be empty.
pjrt::BufferRef readable_array(const at::Tensor& tensor, Dims* dims);

// A row-major array of the tensor's elements (the tensor's own array if it is one). Its dims are
// the tensor's sizes if `exact_dims`; otherwise they may differ.
pjrt::BufferRef dense_array(const at::Tensor& tensor, bool exact_dims);

// The array of a tensor that covers its storage as a flat array of `length` elements: cut, or
// filled up with zeros.
pjrt::BufferRef resized_array(const at::Tensor& tensor, int64_t length);

// Writes `value` (a dense array of the tensor's sizes and dtype) to the tensor, which may be any
// view without overlap; every alias sees it. Takes `value` over when the tensor is a whole storage.
void write_array(const at::Tensor& tensor, pjrt::BufferRef value);

// Throws unless every element of `tensor` has a place of its own.
void check_writable(const at::Tensor& tensor);

// Changes the size of a storage, keeping the contents of the common prefix.
void resize_storage(c10::StorageImpl* storage, size_t nbytes);

// Sizes, strides and (if needed) storage of `tensor` become those of a contiguous tensor of
// `sizes`.
void resize_tensor(const at::Tensor& tensor, c10::ArrayRef<int64_t> sizes);

// Adds to a key how `tensor` lies in its array, apart from where it starts.
void push_plan(Key& key, const ViewPlan& plan, const at::Tensor& tensor);

// Internal program kinds, as torch_tpu/dispatch/views.py knows them.
enum class Internal : int64_t { kZeros, kRetype, kRead, kWrite, kResize };

// The entry of an internal program; `words` is its whole key (kind first).
const Entry& internal_entry(const Key& key);

}  // namespace torch_tpu
