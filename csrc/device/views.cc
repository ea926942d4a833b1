// See views.h.
#include "views.h"

#include <algorithm>

namespace torch_tpu {

namespace {

struct Axis {
  int64_t place;  // view dim
  int64_t size;
  int64_t stride;
};

// One slice of one (merged or split) dim of the array.
struct Cut {
  int64_t extent;
  int64_t start;
  int64_t count;
  int64_t step;
  int64_t place;
};

enum class Fit { kYes, kCrosses, kNo };

// Cuts for one array dim of `extent` that the view axes [first, last) index with steps
// stride / unit, starting at `start`.
Fit cut_dim(int64_t extent, int64_t unit, int64_t start, const Axis* first, const Axis* last,
            std::vector<Cut>& cuts) {
  if (first == last) {
    cuts.push_back({extent, start, 1, 1, -1});
    return Fit::kYes;
  }
  int64_t reach = start;
  for (const Axis* axis = first; axis != last; ++axis) {
    if (axis->stride % unit != 0) return Fit::kNo;
    reach += (axis->size - 1) * (axis->stride / unit);
  }
  if (reach >= extent) return Fit::kCrosses;
  for (const Axis* axis = first; axis != last; ++axis) {
    int64_t step = axis->stride / unit;
    bool innermost = axis + 1 == last;
    if (step == 0) return Fit::kNo;
    if (extent % step == 0 && step > 1) {
      // Split the dim into (extent / step, step): the axis walks the first part with step 1.
      int64_t outer = extent / step;
      int64_t outer_start = start / step;
      if (outer_start + axis->size > outer) return Fit::kNo;
      cuts.push_back({outer, outer_start, axis->size, 1, axis->place});
      extent = step;
      start %= step;
      if (innermost) cuts.push_back({extent, start, 1, 1, -1});
    } else if (innermost) {
      if (start + (axis->size - 1) * step >= extent) return Fit::kNo;
      cuts.push_back({extent, start, axis->size, step, axis->place});
    } else {
      return Fit::kNo;
    }
  }
  return Fit::kYes;
}

Fit cut_all(const Dims& dims, const std::vector<Axis>& axes, int64_t offset, std::vector<Cut>& cuts,
            size_t& crossing) {
  cuts.clear();
  int64_t unit = 1;
  Dims units(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 0;) {
    units[d] = unit;
    unit *= dims[d];
  }
  size_t next = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    size_t first = next;
    while (next < axes.size() && axes[next].stride >= units[d]) ++next;
    int64_t start = (offset / units[d]) % dims[d];
    Fit fit = cut_dim(dims[d], units[d], start, axes.data() + first, axes.data() + next, cuts);
    if (fit != Fit::kYes) {
      crossing = d;
      return fit;
    }
  }
  return next == axes.size() ? Fit::kYes : Fit::kNo;
}

ViewPlan gather_plan(int64_t offset) {
  ViewPlan plan;
  plan.kind = ViewPlan::kGather;
  plan.starts = {offset};
  return plan;
}

}  // namespace

ViewPlan plan_view(c10::ArrayRef<int64_t> dims, c10::ArrayRef<int64_t> sizes,
                   c10::ArrayRef<int64_t> strides, int64_t offset) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && strides[i] != 0) {
      axes.push_back({static_cast<int64_t>(i), sizes[i], strides[i]});
    }
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  for (size_t i = 1; i < axes.size(); ++i) {
    if (axes[i].stride == axes[i - 1].stride) return gather_plan(offset);
  }
  Dims base;
  for (int64_t d : dims) {
    if (d != 1) base.push_back(d);
  }
  if (base.empty()) base.push_back(1);
  std::vector<Cut> cuts;
  size_t crossing = 0;
  Fit fit = cut_all(base, axes, offset, cuts, crossing);
  // An axis that runs past the end of its dim continues into the next outer one: merge the two.
  while (fit != Fit::kYes && base.size() > 1) {
    size_t d = fit == Fit::kCrosses ? crossing : base.size() - 1;
    if (d == 0) d = 1;
    base[d - 1] *= base[d];
    base.erase(base.begin() + static_cast<std::ptrdiff_t>(d));
    fit = cut_all(base, axes, offset, cuts, crossing);
  }
  if (fit != Fit::kYes) return gather_plan(offset);
  ViewPlan plan;
  plan.kind = ViewPlan::kSlice;
  plan.places.assign(sizes.size(), -1);
  for (size_t i = 0; i < cuts.size(); ++i) {
    plan.dims.push_back(cuts[i].extent);
    plan.counts.push_back(cuts[i].count);
    plan.steps.push_back(cuts[i].step);
    plan.starts.push_back(cuts[i].start);
    if (cuts[i].place >= 0) plan.places[cuts[i].place] = static_cast<int64_t>(i);
  }
  return plan;
}

}  // namespace torch_tpu
