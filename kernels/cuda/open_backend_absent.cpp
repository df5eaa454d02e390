#include "core/base/error.h"
#include "kernels/cuda/open_backend.h"

namespace ashlar::cuda {

std::unique_ptr<Backend> open_backend(const OpenOptions& /*options*/) {
  throw input_error("run.device",
                    "\"cuda\" is not in this program: it was built without the CUDA toolkit; "
                    "launch/scripts/cuda_toolkit.sh DIR installs one, then build again with CUDA_HOME=DIR, or choose "
                    "run.device = \"cpu\"");
}

}  // namespace ashlar::cuda
