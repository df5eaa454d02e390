// Bytes that attention moves in bf16: a block brings its own rows once, and each visible tile of the other side once.

#include "core/base/strings.h"
#include "tests/evidence/kernel_traffic.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::evidence {
namespace {

using test::HostMatrix;

constexpr int64_t kT = 512, kHeads = 2;  // two query heads share the one KV head
constexpr int64_t kStatistics = kHeads * kT * 4;

/// Rows of the other side that blocks of `own` rows bring in `tiles`, summed over blocks: a causal block of queries
/// sees the keys up to its end, a block of keys the queries from its begin, in whole tiles.
int64_t rows_brought(int64_t own, int64_t tile) {
  int64_t rows = 0;
  for (int64_t end = own; end <= kT; end += own) rows += (end + tile - 1) / tile * tile;
  return rows;
}

struct Tiles {
  int64_t forward_queries, forward_keys;
  int64_t keys_keys, keys_queries;
  int64_t queries_queries, queries_keys;
};

void measure(int64_t D, const Tiles& tiles, std::vector<KernelRow>& rows) {
  const int64_t width = (kHeads + 2) * D, row = D * 2;  // bytes of a head's row
  const HostMatrix qkv = test::random_matrix(DType::kBFloat16, kT, width, 1);
  const HostMatrix dout = test::random_matrix(DType::kBFloat16, kT, kHeads * D, 2);
  HostMatrix out(DType::kBFloat16, kT, kHeads * D), dqkv(DType::kBFloat16, kT, width);
  HostMatrix lse(DType::kFloat32, 1, kHeads * kT);
  const auto slice = [D](auto view, int64_t head, int64_t heads) {
    view.data = view.template as<BF16>() + head * D;
    view.cols = heads * D;
    return view;
  };
  AttentionShape shape{.B = 1, .T_q = kT, .T_kv = kT, .H = kHeads, .G = 1, .D = D};
  shape.scores.scale = 0.125;
  shape.q_batch_stride = shape.kv_batch_stride = kT * width;

  WatchedDevice device;
  const std::string problem = str_cat("T ", kT, ", 2 heads of ", D, " on 1");
  const auto add = [&](const std::string& kernel, const std::string& formula, int64_t read, int64_t written,
                       const Measured& measured) {
    rows.push_back({kernel, problem, formula, read, written, measured});
  };
  device.backend().attention_forward({.q = slice(qkv.view(), 0, kHeads),
                                      .k = slice(qkv.view(), kHeads, 1),
                                      .v = slice(qkv.view(), kHeads + 1, 1),
                                      .out = out.mut(),
                                      .lse = lse.mut(),
                                      .shape = shape},
                                     device.stream());
  const int64_t own = kHeads * kT * row;
  add("attention_forward", str_cat("q; k, v once a tile of ", tiles.forward_queries, " queries; out, lse"),
      own + kHeads * 2 * rows_brought(tiles.forward_queries, tiles.forward_keys) * row, own + kStatistics,
      device.take("attention_forward"));

  device.backend().attention_backward({.dout = dout.view(),
                                       .q = slice(qkv.view(), 0, kHeads),
                                       .k = slice(qkv.view(), kHeads, 1),
                                       .v = slice(qkv.view(), kHeads + 1, 1),
                                       .out = out.view(),
                                       .lse = lse.view(),
                                       .delta = {},
                                       .dq = slice(dqkv.mut(), 0, kHeads),
                                       .dk = slice(dqkv.mut(), kHeads, 1),
                                       .dv = slice(dqkv.mut(), kHeads + 1, 1),
                                       .mode = GradMode::kOverwrite,
                                       .shape = shape},
                                      device.stream());
  const auto backward = device.take();
  add("attention_delta", "out, dout; delta", 2 * own, kStatistics, backward.at("attention_delta"));
  add("attention_backward_keys", str_cat("k, v; q, dout, lse, delta once a tile of ", tiles.keys_keys, " keys; dk, dv"),
      2 * kT * row + kHeads * rows_brought(tiles.keys_keys, tiles.keys_queries) * (2 * row + 8), 2 * kT * row,
      backward.at("attention_backward_keys"));
  add("attention_backward_queries",
      str_cat("q, dout, lse, delta; k, v once a tile of ", tiles.queries_queries, " queries; dq"),
      2 * own + 2 * kStatistics + kHeads * 2 * rows_brought(tiles.queries_queries, tiles.queries_keys) * row, own,
      backward.at("attention_backward_queries"));
}

}  // namespace

std::vector<KernelRow> measure_attention() {
  std::vector<KernelRow> rows;
  measure(64, {128, 64, 128, 32, 128, 32}, rows);
  measure(128, {128, 32, 64, 32, 64, 64}, rows);
  return rows;
}

}  // namespace ashlar::evidence
