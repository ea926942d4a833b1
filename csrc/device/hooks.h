// Registers the backend's hooks with torch; see hooks.cc.
#pragma once

namespace torch_tpu {

void register_hooks();

}  // namespace torch_tpu
