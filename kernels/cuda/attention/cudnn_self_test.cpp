#include "kernels/cuda/attention/cudnn_self_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace ashlar::cudnn {

namespace {

/// A matrix in workspace memory, released by the destructor.
class Block {
 public:
  Block(Backend& backend, int64_t rows, int64_t cols, DType dtype)
      : memory_(backend.allocator(MemoryKind::kWorkspace)),
        view_{memory_.allocate(std::max<int64_t>(rows * cols, 1) * size_of(dtype)), dtype, rows, cols, cols} {}
  ~Block() { memory_.release(view_.data); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const MutView& all() const { return view_; }
  /// Returns a view of the first `count` columns.
  MutView columns(int64_t count) const { return {view_.data, view_.dtype, view_.rows, count, view_.stride}; }

 private:
  Allocator& memory_;
  MutView view_;
};

/// A tensor of a case, as a matrix whose width is the row stride. The heads are its first `used` columns.
struct Wide {
  Block rows;
  int64_t used;
  Wide(Backend& b, const AttentionCase& c, const Rows& r, int64_t heads)
      : rows(b, c.B * c.T, r.row, DType::kBFloat16), used(heads * c.D) {}
  MutView view() const { return rows.columns(used); }
};

/// Outputs of a forward pass.
struct Attended {
  Wide out;
  Block lse;
  Attended(Backend& b, const AttentionCase& c) : out(b, c, c.out, c.H), lse(b, 1, c.B * c.H * c.T, DType::kFloat32) {}
};

/// Outputs of a backward pass.
struct Gradients {
  Wide dq, dk, dv;
  Gradients(Backend& b, const AttentionCase& c) : dq(b, c, c.dq, c.H), dk(b, c, c.dk, c.G), dv(b, c, c.dv, c.G) {}
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

/// Compares the first `count` columns of two matrices on the host. Returns how they differ; empty if they agree.
std::string difference(const char* name, const std::vector<std::byte>& got, const std::vector<std::byte>& want,
                       const MutView& view, int64_t count) {
  double error = 0, size = 0, worst = 0, largest = 0;
  for (int64_t row = 0; row < view.rows; ++row) {
    for (int64_t col = 0; col < count; ++col) {
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
  if (mean > kMeanTolerance)
    return str_cat(name, " that is off by ", mean, " (relative root mean square error), more than ", kMeanTolerance);
  if (worst > kElementTolerance * largest)
    return str_cat(name, " that is off by ", worst, " in one element, more than ", kElementTolerance, " of ", largest);
  return "";
}

/// An output tensor that both the cuDNN plan and our own kernels compute. Only its first `columns` columns are
/// compared.
struct Result {
  const char* name;
  const Block *theirs, *ours;
  int64_t columns;
};

/// Runs the plan twice. Returns which result differs between the runs or from the result of our own kernels; empty if
/// none does.
std::string compare(Backend& own, AttentionPlan& plan, const AttentionArrays& arrays,
                    std::initializer_list<Result> results, Stream& stream) {
  const Block workspace(own, 1, plan.workspace_bytes(), DType::kUInt8);
  std::vector<std::vector<std::byte>> first;
  for (int round = 0; round < 2; ++round) {
    plan.run(arrays, workspace.all().data, stream);
    size_t i = 0;
    for (const Result& r : results) {
      std::vector<std::byte> now = on_host(own, r.theirs->all(), stream);
      if (round == 0)
        first.push_back(std::move(now));
      else if (now != first[i++])
        return str_cat(r.name, " with different bits in the second run");
    }
  }
  size_t i = 0;
  for (const Result& r : results) {
    std::string found = difference(r.name, first[i++], on_host(own, r.ours->all(), stream), r.ours->all(), r.columns);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

int64_t self_test_bytes(const AttentionCase& c) {
  const int64_t lse = c.B * c.H * c.T * size_of(DType::kFloat32);
  int64_t row = c.q.row + c.k.row + c.v.row + c.out.row;
  row += c.backward ? c.dout.row + 2 * (c.dq.row + c.dk.row + c.dv.row) : c.out.row;
  return c.B * c.T * row * size_of(DType::kBFloat16) + (c.backward ? 1 : 2) * lse;
}

std::string self_test(Backend& own, AttentionPlan& plan, const AttentionCase& c, Stream& stream) {
  for (const Rows& rows : {c.q, c.k, c.v, c.out, c.dout, c.dq, c.dk, c.dv}) {
    if (rows.batch != c.T * rows.row) return "samples that do not follow each other in memory";
  }
  if (c.k.batch != c.v.batch) return "keys and values in rows of different widths";
  if (c.backward && (c.dq != c.q || c.dk != c.k || c.dv != c.v)) return "gradients in rows of another width";
  const Wide q(own, c, c.q, c.H), k(own, c, c.k, c.G), v(own, c, c.v, c.G);
  uint64_t seed = 0;
  const auto fill = [&](const Wide& wide) {
    own.random_fill({.dst = wide.rows.all(), .seed = ++seed, .global_cols = wide.rows.all().cols}, stream);
  };
  fill(q), fill(k), fill(v);
  const AttentionShape shape{.scores = {.scale = c.scale},
                             .B = c.B,
                             .T_q = c.T,
                             .T_kv = c.T,
                             .H = c.H,
                             .G = c.G,
                             .D = c.D,
                             .q_batch_stride = c.q.batch,
                             .kv_batch_stride = c.k.batch};
  const auto forward = [&](const Attended& to) {
    return AttentionForward{
        .q = q.view(), .k = k.view(), .v = v.view(), .out = to.out.view(), .lse = to.lse.all(), .shape = shape};
  };
  const Attended ours(own, c);
  own.attention_forward(forward(ours), stream);
  if (!c.backward) {
    const Attended theirs(own, c);
    return compare(own, plan, arrays_of(forward(theirs)),
                   {{"an output", &theirs.out.rows, &ours.out.rows, ours.out.used},
                    {"an lse", &theirs.lse, &ours.lse, ours.lse.all().cols}},
                   stream);
  }
  const Wide dout(own, c, c.dout, c.H);
  fill(dout);
  const auto backward = [&](const Gradients& to) {
    return AttentionBackward{.dout = dout.view(),
                             .q = q.view(),
                             .k = k.view(),
                             .v = v.view(),
                             .out = ours.out.view(),
                             .lse = ours.lse.all(),
                             .delta = {},
                             .dq = to.dq.view(),
                             .dk = to.dk.view(),
                             .dv = to.dv.view(),
                             .shape = shape};
  };
  const Gradients wanted(own, c), theirs(own, c);
  own.attention_backward(backward(wanted), stream);
  return compare(own, plan, arrays_of(backward(theirs)),
                 {{"a dq", &theirs.dq.rows, &wanted.dq.rows, wanted.dq.used},
                  {"a dk", &theirs.dk.rows, &wanted.dk.rows, wanted.dk.used},
                  {"a dv", &theirs.dv.rows, &wanted.dv.rows, wanted.dv.used}},
                 stream);
}

}  // namespace ashlar::cudnn
