#include "kernels/cuda/attention/cudnn_self_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/error.h"

namespace ashlar::cudnn {

namespace {

/// Device memory that is given back.
class Block {
 public:
  Block(Backend& backend, int64_t rows, int64_t cols, DType dtype)
      : memory_(backend.allocator(MemoryKind::kWorkspace)),
        view_{memory_.allocate(std::max<int64_t>(rows * cols, 1) * size_of(dtype)), dtype, rows, cols, cols} {}
  ~Block() { memory_.release(view_.data); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const MutView& all() const { return view_; }
  MutView columns(int64_t first, int64_t count) const {
    return {static_cast<char*>(view_.data) + first * size_of(view_.dtype), view_.dtype, view_.rows, count,
            view_.stride};
  }

 private:
  Allocator& memory_;
  MutView view_;
};

/// What one side computes.
struct Results {
  Block out, lse, gradients;
  Results(Backend& b, const AttentionCase& c)
      : out(b, c.B * c.T, c.H * c.D, DType::kBFloat16),
        lse(b, 1, c.B * c.H * c.T, DType::kFloat32),
        gradients(b, c.B * c.T, (c.H + 2 * c.G) * c.D, DType::kBFloat16) {}
};

std::vector<std::byte> on_host(Backend& backend, const MutView& view, Stream& stream) {
  std::vector<std::byte> bytes(static_cast<size_t>(view.size() * size_of(view.dtype)));
  backend.read(view, bytes.data(), stream);
  return bytes;
}

double value(const std::vector<std::byte>& bytes, DType dtype, int64_t i) {
  if (dtype == DType::kFloat32) {
    float x;
    std::memcpy(&x, bytes.data() + i * 4, 4);
    return x;
  }
  BF16 x;
  std::memcpy(&x, bytes.data() + i * 2, 2);
  return static_cast<double>(static_cast<float>(x));
}

/// Columns [first, first + count) of two matrices on the host.
std::string difference(const char* name, const std::vector<std::byte>& got, const std::vector<std::byte>& want,
                       const MutView& view, int64_t first, int64_t count) {
  double error = 0, size = 0, worst = 0, largest = 0;
  for (int64_t row = 0; row < view.rows; ++row) {
    for (int64_t col = first; col < first + count; ++col) {
      const double a = value(got, view.dtype, row * view.cols + col),
                   b = value(want, view.dtype, row * view.cols + col);
      if (!std::isfinite(a)) return str_cat(name, " with a value that is not finite");
      error += (a - b) * (a - b);
      size += b * b;
      worst = std::max(worst, std::abs(a - b));
      largest = std::max(largest, std::abs(b));
    }
  }
  if (view.dtype == DType::kFloat32) {
    if (worst > kLseTolerance) return str_cat(name, " that is off by ", worst, ", more than ", kLseTolerance);
    return "";
  }
  const double mean = std::sqrt(error / std::max(size, 1e-30));
  if (mean > kMeanTolerance) return str_cat(name, " that is off by ", mean, " in the mean, more than ", kMeanTolerance);
  if (worst > kElementTolerance * largest)
    return str_cat(name, " that is off by ", worst, " in one element, more than ", kElementTolerance, " of ", largest);
  return "";
}

}  // namespace

std::string self_test(Backend& own, PreparedAttention& cudnn, const AttentionCase& c, Stream& stream) {
  const int64_t q_width = c.H * c.D, kv_width = c.G * c.D, width = q_width + 2 * kv_width;
  const Block qkv(own, c.B * c.T, width, DType::kBFloat16), dout(own, c.B * c.T, q_width, DType::kBFloat16);
  const Block workspace(own, 1, cudnn.workspace_bytes(), DType::kUInt8);
  own.random_fill({.dst = qkv.all(), .seed = 1, .global_cols = width}, stream);
  own.random_fill({.dst = dout.all(), .seed = 2, .global_cols = q_width}, stream);

  const AttentionShape shape{.variant = {.scale = c.scale},
                             .B = c.B,
                             .T_q = c.T,
                             .T_kv = c.T,
                             .H = c.H,
                             .G = c.G,
                             .D = c.D,
                             .q_batch_stride = c.T * width,
                             .kv_batch_stride = c.T * width};
  const auto forward = [&](const Results& r) {
    return AttentionForward{.q = qkv.columns(0, q_width),
                            .k = qkv.columns(q_width, kv_width),
                            .v = qkv.columns(q_width + kv_width, kv_width),
                            .out = r.out.all(),
                            .lse = r.lse.all(),
                            .shape = shape};
  };
  const auto backward = [&](const Results& r) {
    return AttentionBackward{.dout = dout.all(),
                             .q = qkv.columns(0, q_width),
                             .k = qkv.columns(q_width, kv_width),
                             .v = qkv.columns(q_width + kv_width, kv_width),
                             .out = r.out.all(),
                             .lse = r.lse.all(),
                             .delta = {},
                             .dq = r.gradients.columns(0, q_width),
                             .dk = r.gradients.columns(q_width, kv_width),
                             .dv = r.gradients.columns(q_width + kv_width, kv_width),
                             .shape = shape};
  };

  // 1. our own
  const Results ours(own, c), theirs(own, c);
  own.attention_forward(forward(ours), stream);
  own.attention_backward(backward(ours), stream);
  // 2. cuDNN's, twice
  AttentionPlan* const first = cudnn.plan_for(forward(theirs));
  AttentionPlan* const second = cudnn.plan_for(backward(theirs));
  if (first == nullptr || second == nullptr) return "plans of another shape than rows of q, k and v side by side";
  std::vector<std::byte> before[3];
  for (int round = 0; round < 2; ++round) {
    first->run(arrays_of(forward(theirs)), workspace.all().data, stream);
    second->run(arrays_of(backward(theirs)), workspace.all().data, stream);
    const MutView views[] = {theirs.out.all(), theirs.lse.all(), theirs.gradients.all()};
    for (int i = 0; i < 3; ++i) {
      std::vector<std::byte> now = on_host(own, views[i], stream);
      if (round == 1 && now != before[i])
        return str_cat(i == 0 ? "an output" : i == 1 ? "an lse" : "gradients", " of other bits at the second run");
      before[i] = std::move(now);
    }
  }
  // 3. the comparison
  const std::vector<std::byte> gradients = on_host(own, ours.gradients.all(), stream);
  std::string found =
      difference("an output", before[0], on_host(own, ours.out.all(), stream), ours.out.all(), 0, q_width);
  if (found.empty())
    found =
        difference("an lse", before[1], on_host(own, ours.lse.all(), stream), ours.lse.all(), 0, ours.lse.all().cols);
  if (found.empty()) found = difference("a dq", before[2], gradients, ours.gradients.all(), 0, q_width);
  if (found.empty()) found = difference("a dk", before[2], gradients, ours.gradients.all(), q_width, kv_width);
  if (found.empty())
    found = difference("a dv", before[2], gradients, ours.gradients.all(), q_width + kv_width, kv_width);
  return found;
}

}  // namespace ashlar::cudnn
