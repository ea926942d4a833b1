// A tensor as a view of its cell's array: the analysis behind reading and writing views.
//
// `plan_view` turns (array dims, sizes, strides, offset) into a description that does not depend on
// where the view starts: starts are run-time operands, so that x[i] is one program for every i. The
// three kinds are tried in order of cost; `kGather` always applies. torch_tpu/dispatch/views.py
// emits the reads and writes.
#pragma once

#include "storage.h"

namespace torch_tpu {

struct ViewPlan {
  enum Kind : int64_t {
    kWhole = 0,  // the array itself, reshaped to the view's sizes
    kSlice = 1,  // the array reshaped to `dims`, sliced (starts, counts, steps), permuted, expanded
    kGather = 2,  // element i of the flat array at offset + sum(index * stride)
  };
  Kind kind = kWhole;
  Dims dims;    // kSlice: the array's dims, merged or split to suit the view
  Dims counts;  // kSlice: elements taken along each of `dims`
  Dims steps;   // kSlice: distance between them
  Dims places;  // kSlice: for each view dim, its place in `dims`, or -1 (size 1 or expanded)
  Dims starts;  // kSlice: first index along each of `dims`; kGather: the flat offset
};

// Plans the view of an array of `dims`. `numel` of the view must not be zero.
ViewPlan plan_view(c10::ArrayRef<int64_t> dims, c10::ArrayRef<int64_t> sizes,
                   c10::ArrayRef<int64_t> strides, int64_t offset);

}  // namespace torch_tpu
