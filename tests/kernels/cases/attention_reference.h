#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "core/backend/attention.h"

namespace ashlar::testing {

/// Attention by its definition: every score in a table, plain loops, double. Independent of the kernels.
struct AttentionReference {
  AttentionShape shape;               // strides are not used
  std::vector<double> q, k, v;        // [B*T_q, H*D], [B*T_kv, G*D], [B*T_kv, G*D_v], contiguous
  std::vector<double> slopes, sinks;  // [H] or empty
  std::vector<double> biases;         // [buckets, H] or empty
  std::vector<double> out, lse;       // [B*T_q, H*D_v], [B,H,T_q]
  std::vector<double> dq, dk, dv;     // as q, k, v
  std::vector<double> dsinks;         // [H]
  std::vector<double> dbiases;        // [buckets, H]
  /// Sums of the absolute values of all that is added up in an element: what rounding errors scale with.
  std::vector<double> out_size, dq_size, dk_size, dv_size, dsinks_size, dbiases_size;
  double score_size = 0;  // most of what is added up in a score: sum |scale q k|, and the bias

  int64_t q_at(int64_t b, int64_t t, int64_t h) const { return ((b * shape.T_q + t) * shape.H + h) * shape.D; }
  int64_t out_at(int64_t b, int64_t t, int64_t h) const { return ((b * shape.T_q + t) * shape.H + h) * width(); }
  int64_t k_at(int64_t b, int64_t j, int64_t h) const { return kv_row(b, j, h) * shape.D; }
  int64_t v_at(int64_t b, int64_t j, int64_t h) const { return kv_row(b, j, h) * width(); }
  int64_t kv_row(int64_t b, int64_t j, int64_t h) const {
    return (b * shape.T_kv + j) * shape.G + h / (shape.H / shape.G);
  }
  int64_t width() const { return shape.D_v > 0 ? shape.D_v : shape.D; }
  /// The largest integer whose square is at most n.
  static int64_t root(int64_t n) {
    int64_t r = 0;
    while ((r + 1) * (r + 1) <= n) ++r;
    return r;
  }
  /// i - j of a query and a key.
  int64_t distance(int64_t t, int64_t j) const { return shape.mask.q_start + t - shape.mask.kv_start - j; }
  /// The tests' buckets of a distance: its root, up to a last one; keys ahead have half of the buckets.
  static int64_t bucket_of(int64_t distance, int64_t buckets, bool causal) {
    const int64_t ahead = causal ? 0 : buckets / 2, behind = buckets - ahead;
    if (distance >= 0 || ahead == 0) return std::min(root(std::abs(distance)), behind - 1);
    return behind + std::min(root(-distance), ahead - 1);
  }
  int64_t bias_at(int64_t h, int64_t t, int64_t j) const {
    return bucket_of(distance(t, j), std::ssize(biases) / shape.H, shape.mask.causal) * shape.H + h;
  }
  bool seen(int64_t b, int64_t t, int64_t j) const {
    const Mask& m = shape.mask;
    const int64_t i = m.q_start + t, position = m.kv_start + j, row = b * shape.T_q + t;
    if (m.causal && position > i) return false;
    if (m.window > 0 && std::abs(i - position) >= m.window) return false;
    if (m.chunk > 0 && i / m.chunk != position / m.chunk) return false;
    if (m.doc_start && position < m.doc_start.as<int32_t>()[row]) return false;
    return !m.doc_end || position < m.doc_end.as<int32_t>()[row];
  }
  double factor(int64_t b, int64_t h, int64_t t, int64_t j) const {
    const DropoutArgs& drop = shape.dropout;
    if (!drop.active()) return 1;
    const auto S = static_cast<uint64_t>(drop.sequence_length);
    const uint64_t e = ((static_cast<uint64_t>((drop.first_sample + b) * drop.heads + drop.head0 + h)) * S +
                        static_cast<uint64_t>(shape.mask.q_start + t)) *
                           S +
                       static_cast<uint64_t>(shape.mask.kv_start + j);
    return Philox::uniform(drop.words(e / 4, drop.step())[e % 4]) >= drop.p ? 1 / (1 - drop.p) : 0;
  }

  /// Probabilities of one row before dropout, and the sink's; empty rows are all zero. `derivatives` are those of a
  /// score by scale q k.
  std::vector<double> row(int64_t b, int64_t h, int64_t t) {
    std::vector<double> p(static_cast<size_t>(shape.T_kv), 0.0);
    derivatives.assign(p.size(), 1.0);
    double largest = sinks.empty() ? -std::numeric_limits<double>::infinity() : sinks[h], sum = 0;
    for (int64_t j = 0; j < shape.T_kv; ++j) {
      if (!seen(b, t, j)) continue;
      double dot = 0, size = 0;
      for (int64_t d = 0; d < shape.D; ++d) {
        dot += q[q_at(b, t, h) + d] * k[k_at(b, j, h) + d];
        size += std::abs(shape.scores.scale * q[q_at(b, t, h) + d] * k[k_at(b, j, h) + d]);
      }
      p[j] = shape.scores.scale * dot;
      if (shape.scores.softcap > 0) {
        const double cosh = std::cosh(p[j] / shape.scores.softcap);
        derivatives[j] = 1 / (cosh * cosh);
        p[j] = shape.scores.softcap * std::tanh(p[j] / shape.scores.softcap);
        size += shape.scores.softcap;
      }
      if (!slopes.empty()) {
        const double bias = slopes[h] * static_cast<double>(std::abs(distance(t, j)));
        p[j] -= bias;
        size += std::abs(bias);
      }
      if (!biases.empty()) {
        p[j] += biases[bias_at(h, t, j)];
        size += std::abs(biases[bias_at(h, t, j)]);
      }
      score_size = std::max(score_size, size);
      largest = std::max(largest, p[j]);
    }
    for (int64_t j = 0; j < shape.T_kv; ++j) {
      p[j] = seen(b, t, j) ? std::exp(p[j] - largest) : 0;
      sum += p[j];
    }
    sink = sinks.empty() ? 0 : std::exp(sinks[h] - largest);
    sum += sink;
    sink = sum > 0 ? sink / sum : 0;
    for (double& x : p) x = sum > 0 ? x / sum : 0;
    lse[(b * shape.H + h) * shape.T_q + t] = largest + std::log(sum);
    return p;
  }

  void forward() {
    out.assign(static_cast<size_t>(shape.B * shape.T_q * shape.H * width()), 0);
    out_size = out;
    lse.assign(static_cast<size_t>(shape.B * shape.H * shape.T_q), 0);
    each_row([&](int64_t b, int64_t h, int64_t t) {
      const std::vector<double> p = row(b, h, t);
      for (int64_t j = 0; j < shape.T_kv; ++j) {
        const double weight = p[j] * (p[j] > 0 ? factor(b, h, t, j) : 0);
        for (int64_t d = 0; d < width(); ++d) {
          out[out_at(b, t, h) + d] += weight * v[v_at(b, j, h) + d];
          out_size[out_at(b, t, h) + d] += std::abs(weight * v[v_at(b, j, h) + d]);
        }
      }
    });
  }

  /// `forward_out` is what the forward pass stored: delta is made of it.
  void backward(const std::vector<double>& dout, const std::vector<double>& forward_out) {
    dq.assign(q.size(), 0);
    dk.assign(k.size(), 0);
    dv.assign(v.size(), 0);
    dsinks.assign(static_cast<size_t>(shape.H), 0);
    dbiases.assign(biases.size(), 0);
    dq_size = dq, dk_size = dk, dv_size = dv, dsinks_size = dsinks, dbiases_size = dbiases;
    each_row([&](int64_t b, int64_t h, int64_t t) {
      const std::vector<double> p = row(b, h, t);
      const int64_t at = q_at(b, t, h), to = out_at(b, t, h);
      double delta = 0, delta_size = 0;
      for (int64_t d = 0; d < width(); ++d) {
        delta += forward_out[to + d] * dout[to + d];
        delta_size += std::abs(forward_out[to + d] * dout[to + d]);
      }
      dsinks[h] -= sink * delta;  // a sink's value is zero
      dsinks_size[h] += sink * delta_size;
      for (int64_t j = 0; j < shape.T_kv; ++j) {
        if (p[j] == 0) continue;
        const int64_t kv = k_at(b, j, h), value = v_at(b, j, h);
        const double m = factor(b, h, t, j);
        double dp = 0, dp_size = 0;
        for (int64_t d = 0; d < width(); ++d) {
          dp += dout[to + d] * v[value + d];
          dp_size += std::abs(dout[to + d] * v[value + d]);
          dv[value + d] += p[j] * m * dout[to + d];
          dv_size[value + d] += std::abs(p[j] * m * dout[to + d]);
        }
        if (!biases.empty()) {
          dbiases[bias_at(h, t, j)] += p[j] * (m * dp - delta);
          dbiases_size[bias_at(h, t, j)] += p[j] * (m * dp_size + delta_size);
        }
        const double ds = shape.scores.scale * derivatives[j] * p[j] * (m * dp - delta);
        // The derivative of the soft cap, 1 - tanh^2, errs by roundings of 1.
        const double ds_size = std::abs(shape.scores.scale) * p[j] * (m * dp_size + delta_size);
        for (int64_t d = 0; d < shape.D; ++d) {
          dk[kv + d] += ds * q[at + d];
          dq[at + d] += ds * k[kv + d];
          dk_size[kv + d] += std::abs(ds_size * q[at + d]);
          dq_size[at + d] += std::abs(ds_size * k[kv + d]);
        }
      }
    });
  }

  std::vector<double> derivatives;  // of the row that `row` made last
  double sink = 0;                  // its sink's probability

  template <typename Body>
  void each_row(const Body& body) {
    for (int64_t b = 0; b < shape.B; ++b) {
      for (int64_t h = 0; h < shape.H; ++h) {
        for (int64_t t = 0; t < shape.T_q; ++t) body(b, h, t);
      }
    }
  }
};

}  // namespace ashlar::testing
