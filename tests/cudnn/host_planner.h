#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/bf16.h"
#include "core/base/error.h"
#include "kernels/cuda/attention/cudnn_attention.h"

namespace ashlar::testing {

/// What may be wrong with plans, for tests that must notice.
enum class Planted {
  kNothing,
  kNoMask,      ///< queries see later keys
  kScale,       ///< 1 instead of the case's
  kLse,         ///< to the base 2
  kWrongHead,   ///< query head h reads KV head h % G
  kSwapped,     ///< dk where dv belongs
  kNotFinite,   ///< one NaN in dq
  kOtherBits,   ///< an output that changes from run to run
  kOneElement,  ///< the last element of an output: less than the tolerance of the mean
  kDenseRows,   ///< rows of dq without the distance that the case says
};

/// In the place of cuDNN: plans that compute in fp64 on the host, from nothing but the case and the pointers, as the
/// formula says. The workspace holds the gradients of scores.
class HostPlan final : public cudnn::AttentionPlan {
 public:
  using Queue = std::function<void(Stream& stream, std::function<void()> run)>;

  HostPlan(const cudnn::AttentionCase& c, Planted planted, Queue queue, int* runs)
      : c_(c), planted_(planted), queue_(std::move(queue)), runs_(runs) {}

  int64_t workspace_bytes() const override { return c_.backward ? c_.B * c_.H * c_.T * c_.T * 4 : 16; }

  void run(const cudnn::AttentionArrays& a, void* workspace, Stream& stream) override {
    ++*runs_;
    const auto compute = [this, a, workspace] {
      c_.backward ? backward(a, static_cast<float*>(workspace)) : forward(a);
    };
    queue_ ? queue_(stream, compute) : compute();
  }

 private:
  static double get(const void* base, const cudnn::Rows& rows, int64_t b, int64_t t, int64_t column) {
    return static_cast<double>(
        static_cast<float>(static_cast<const BF16*>(base)[b * rows.batch + t * rows.row + column]));
  }
  static void put(void* base, const cudnn::Rows& rows, int64_t b, int64_t t, int64_t column, double x) {
    static_cast<BF16*>(base)[b * rows.batch + t * rows.row + column] = BF16(static_cast<float>(x));
  }
  int64_t kv_head(int64_t h) const { return planted_ == Planted::kWrongHead ? h % c_.G : h * c_.G / c_.H; }
  int64_t keys_of(int64_t i) const { return planted_ == Planted::kNoMask ? c_.T : i + 1; }
  double score(const cudnn::AttentionArrays& a, int64_t b, int64_t h, int64_t i, int64_t j) const {
    double s = 0;
    for (int64_t d = 0; d < c_.D; ++d)
      s += get(a.q, c_.q, b, i, h * c_.D + d) * get(a.k, c_.k, b, j, kv_head(h) * c_.D + d);
    return s * (planted_ == Planted::kScale ? 1 : c_.scale);
  }

  void forward(const cudnn::AttentionArrays& a) const {
    for (int64_t b = 0; b < c_.B; ++b) {
      for (int64_t h = 0; h < c_.H; ++h) {
        for (int64_t i = 0; i < c_.T; ++i) {
          std::vector<double> s(static_cast<size_t>(keys_of(i)));
          double sum = 0;
          for (int64_t j = 0; j < keys_of(i); ++j) sum += std::exp(s[static_cast<size_t>(j)] = score(a, b, h, i, j));
          const double lse = std::log(sum);
          for (int64_t d = 0; d < c_.D; ++d) {
            double out = 0;
            for (int64_t j = 0; j < keys_of(i); ++j)
              out += std::exp(s[static_cast<size_t>(j)] - lse) * get(a.v, c_.v, b, j, kv_head(h) * c_.D + d);
            if (planted_ == Planted::kOtherBits) out *= 1 + 0.01 * *runs_;
            const bool last = b == c_.B - 1 && h == c_.H - 1 && i == c_.T - 1 && d == c_.D - 1;
            if (planted_ == Planted::kOneElement && last) out += 0.45;
            put(a.out, c_.out, b, i, h * c_.D + d, out);
          }
          static_cast<float*>(a.lse)[(b * c_.H + h) * c_.T + i] =
              static_cast<float>(planted_ == Planted::kLse ? lse / std::log(2.0) : lse);
        }
      }
    }
  }

  // ds_ij = p_ij (dout_i . v_j - dout_i . out_i), p_ij = exp(s_ij - lse_i): dq = scale ds k, dk = scale ds^T q, dv =
  // p^T dout
  void backward(const cudnn::AttentionArrays& a, float* ds) const {
    const size_t kv = static_cast<size_t>(c_.B * c_.T * c_.G * c_.D);
    std::vector<double> dk(kv), dv(kv);
    const double scale = planted_ == Planted::kScale ? 1 : c_.scale;
    for (int64_t b = 0; b < c_.B; ++b) {
      for (int64_t h = 0; h < c_.H; ++h) {
        const int64_t g = kv_head(h);
        for (int64_t i = 0; i < c_.T; ++i) {
          float* const row = ds + ((b * c_.H + h) * c_.T + i) * c_.T;
          double delta = 0;
          for (int64_t d = 0; d < c_.D; ++d)
            delta += get(a.dout, c_.dout, b, i, h * c_.D + d) * get(a.out, c_.out, b, i, h * c_.D + d);
          for (int64_t j = 0; j < keys_of(i); ++j) {
            const double lse = static_cast<double>(static_cast<const float*>(a.lse)[(b * c_.H + h) * c_.T + i]);
            const double p = std::exp(score(a, b, h, i, j) - lse);
            double dp = 0;
            for (int64_t d = 0; d < c_.D; ++d) {
              const double dout = get(a.dout, c_.dout, b, i, h * c_.D + d);
              dp += dout * get(a.v, c_.v, b, j, g * c_.D + d);
              dv[static_cast<size_t>(((b * c_.T + j) * c_.G + g) * c_.D + d)] += p * dout;
            }
            row[j] = static_cast<float>(p * (dp - delta));
            for (int64_t d = 0; d < c_.D; ++d)
              dk[static_cast<size_t>(((b * c_.T + j) * c_.G + g) * c_.D + d)] +=
                  scale * static_cast<double>(row[j]) * get(a.q, c_.q, b, i, h * c_.D + d);
          }
          for (int64_t d = 0; d < c_.D; ++d) {
            double dq = 0;
            for (int64_t j = 0; j < keys_of(i); ++j)
              dq += scale * static_cast<double>(row[j]) * get(a.k, c_.k, b, j, g * c_.D + d);
            if (planted_ == Planted::kNotFinite && i == 1 && d == 0) dq = NAN;
            const cudnn::Rows dense{.batch = c_.T * c_.H * c_.D, .row = c_.H * c_.D};
            put(a.dq, planted_ == Planted::kDenseRows ? dense : c_.dq, b, i, h * c_.D + d, dq);
          }
        }
      }
      const bool swapped = planted_ == Planted::kSwapped;
      for (int64_t j = 0; j < c_.T; ++j) {
        for (int64_t column = 0; column < c_.G * c_.D; ++column) {
          const size_t at = static_cast<size_t>((b * c_.T + j) * c_.G * c_.D + column);
          put(a.dk, c_.dk, b, j, column, swapped ? dv[at] : dk[at]);
          put(a.dv, c_.dv, b, j, column, swapped ? dk[at] : dv[at]);
        }
      }
    }
  }

  cudnn::AttentionCase c_;
  Planted planted_;
  Queue queue_;
  int* runs_;
};

class HostPlanner final : public cudnn::AttentionPlanner {
 public:
  /// `queue`: how work of the host follows a stream; empty: at once.
  explicit HostPlanner(Planted planted = Planted::kNothing, HostPlan::Queue queue = {},
                       const cudnn::Library& library = {.version = 91900, .sm = 90})
      : planted_(planted), queue_(std::move(queue)), library_(library) {}
  cudnn::Library library() const override { return library_; }
  std::unique_ptr<cudnn::AttentionPlan> make(const cudnn::AttentionCase& wanted) override {
    return std::make_unique<HostPlan>(wanted, planted_, queue_, runs_);
  }
  int runs = 0;  ///< of all plans; they need the planner
  /// Counts them there instead, which outlives the planner.
  void count_runs_in(int& counter) { runs_ = &counter; }

 private:
  Planted planted_;
  HostPlan::Queue queue_;
  cudnn::Library library_;
  int* runs_ = &runs;
};

}  // namespace ashlar::testing
