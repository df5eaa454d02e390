// Replaces cudnn_graphs.cpp and cudnn_functions.cpp in a build that did not find cuDNN's frontend.
#include "core/base/error.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/attention/cudnn_functions.h"

namespace ashlar::cudnn {

namespace {

Error absent() {
  return input_error("cuDNN",
                     "this build of ashlar has no cuDNN attention: expected a build with nvidia-cudnn-frontend; "
                     "install it and cuDNN's headers (launch/scripts/cuda_toolkit.sh DIR --libraries) and rebuild, or "
                     "set train.attention = \"own\"");
}

}  // namespace

void load_library() { throw absent(); }
int64_t library_version() { throw absent(); }
const std::string& library_path() { throw absent(); }

std::unique_ptr<AttentionPlanner> make_planner(int) { throw absent(); }
std::unique_ptr<AttentionPlanner> make_planner(std::string_view, int) { throw absent(); }

}  // namespace ashlar::cudnn
