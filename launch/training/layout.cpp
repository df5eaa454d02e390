#include "launch/training/layout.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "parallel/model/expert_layout.h"
#include "parallel/model/flops.h"
#include "parallel/model/slices.h"
#include "parallel/pipeline/simulate.h"

namespace ashlar::training {

namespace {

constexpr size_t kMostRows = 32;     // maximum number of table rows in a picture
constexpr int64_t kMostColumns = 8;  // maximum number of tensor ranks for which each rank has a column

std::string span_text(std::string_view what, int64_t begin, int64_t end) {
  if (end - begin == 1) return str_cat(what, " ", begin);
  return str_cat(what, "s ", begin, "-", end - 1);
}

/// Names the parts of a stage: "embedding, layers 0-1, layers 4-5, head".
std::string stage_text(const Layout& l, int64_t stage) {
  std::string text;
  const auto add = [&](const std::string& part) { text += str_cat(text.empty() ? "" : ", ", part); };
  for (int64_t c = 0; c < l.schedule.virtual_stages; ++c) {
    const model::StageRange& range = l.partition.chunks[pipeline::model_chunk(stage, c, l.mesh[Axis::kPipeline])];
    if (range.embedding) add("embedding");
    if (range.last_layer > range.first_layer) add(span_text("layer", range.first_layer, range.last_layer));
    if (range.head) add("head");
  }
  return text;
}

/// Returns the bubble fraction of the schedule, computed by the simulator. Once the pipeline is full, idle time grows
/// linearly with the number of micro-batches. So if there are many micro-batches, two smaller numbers of micro-batches
/// are simulated, and the idle time is extrapolated from them.
double bubble_of(const Layout& l) {
  constexpr int64_t kChunkRuns = 1 << 15;
  pipeline::Costs costs;
  costs.forward = costs.backward_input = costs.backward_weight = l.partition.flops;
  const auto bubble = [&](int64_t micro_batches) {
    pipeline::ScheduleSpec spec = l.schedule;
    spec.micro_batches = micro_batches;
    return pipeline::simulate(spec, pipeline::make_schedules(spec), costs).bubble_fraction;
  };
  const int64_t all = l.schedule.micro_batches, stages = l.schedule.stages;
  const int64_t many = std::max<int64_t>(kChunkRuns / l.schedule.chunks() / stages, 2) * stages + all % stages;
  if (all <= many) return bubble(all);
  const auto idle = [&](int64_t micro_batches) {  // in units of one micro-batch's work
    const double b = bubble(micro_batches);
    return static_cast<double>(micro_batches) * b / (1 - b);
  };
  const double at_many = idle(many), slope = (at_many - idle(many - stages)) / static_cast<double>(stages);
  const double at_all = at_many + slope * static_cast<double>(all - many);
  return at_all / (at_all + static_cast<double>(all));
}

using Row = std::vector<std::string>;

void append_table(const std::vector<Row>& rows, std::vector<std::string>& lines) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += str_cat("  ", row[i], std::string(widths[i] - row[i].size(), ' '));
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
  }
}

}  // namespace

pipeline::Partition partition_of(const model::ModelConfig& model, const PartitionOptions& options) {
  const double projection = model.embed_dim ? 6.0 * static_cast<double>(*model.embed_dim * model.d_model) : 0;
  const double head = 6.0 * static_cast<double>(model.vocab_padded() * model.table_width());
  std::vector<double> layers = model::attention_flops_of_layers(model, options.sequence_length);
  const std::vector<double> products = model::matmul_flops_of_layers(model);
  for (size_t i = 0; i < layers.size(); ++i) layers[i] += products[i];
  return pipeline::partition({.layer_flops = std::move(layers),
                              .embedding_flops = projection,
                              .head_flops = head + projection,
                              .stages = options.stages,
                              .virtual_stages = options.virtual_stages,
                              .allow_empty = true});
}

std::string mesh_text(const mesh::MeshShape& mesh) {
  const int64_t expert = mesh[Axis::kExpert];
  return str_cat("pipeline ", mesh[Axis::kPipeline], " x data ", mesh.size(kSampleAxes),
                 expert > 1 ? str_cat(" (experts over ", expert, ")") : "", " x tensor ", mesh[Axis::kTensor]);
}

std::vector<std::string> layout_picture(const Layout& l) {
  const int64_t pipeline = l.mesh[Axis::kPipeline], data = l.mesh.size(kSampleAxes), tensor = l.mesh[Axis::kTensor];
  const int64_t expert = l.mesh[Axis::kExpert];
  if (l.mesh.ranks() == 1) return {};
  const std::set<std::string> hosts(l.hosts.begin(), l.hosts.end());
  std::string title =
      str_cat("layout: ", l.mesh.ranks(), " ranks on ", hosts.size(), hosts.size() == 1 ? " host" : " hosts", " = ",
              mesh_text(l.mesh), l.sequence_parallel && tensor > 1 ? " with sequence parallel" : "");
  if (pipeline > 1) {
    title +=
        absl::StrFormat("; %s, %d micro-batches: %.1f%% of the time is bubble",
                        std::string(pipeline::name_of(l.schedule.kind)), l.schedule.micro_batches, 100 * bubble_of(l));
  }
  std::vector<std::string> lines = {title};

  // One row per stage of each replica, one column per tensor rank.
  const bool one_by_one = tensor <= kMostColumns;
  std::vector<Row> rows(1, Row(data > 1 ? 3 : 2));
  for (int64_t t = 0; t < tensor && tensor > 1 && one_by_one; ++t) {
    const nn::DimShard heads = model::slices_of(l.model, tensor, t).heads;
    rows.front().push_back(span_text("head", heads.begin, heads.begin + heads.size));
  }
  for (int64_t stage = 0; stage < pipeline; ++stage) {
    for (int64_t replica = 0; replica < data; ++replica) {
      Row row = {str_cat("stage ", stage), stage_text(l, stage)};
      if (data > 1) row.insert(row.begin() + 1, str_cat("replica ", replica));
      if (expert > 1) {
        const auto [begin, end] = model::divided_experts(l.model.moe.experts, expert)[replica % expert];
        row[1] += str_cat(", ", span_text("expert", begin, end));
      }
      const int64_t first = (stage * data + replica) * tensor;
      const auto host = [&](int64_t rank) { return hosts.size() > 1 ? str_cat(" ", l.hosts[rank]) : std::string(); };
      if (one_by_one) {
        for (int64_t rank = first; rank < first + tensor; ++rank) row.push_back(str_cat("rank ", rank, host(rank)));
      } else {
        row.push_back(str_cat("ranks ", first, "-", first + tensor - 1, host(first)));
      }
      rows.push_back(std::move(row));
    }
  }
  if (tensor == 1 || !one_by_one) rows.erase(rows.begin());
  const size_t all = rows.size();
  rows.resize(std::min(all, kMostRows));
  append_table(rows, lines);
  if (all > kMostRows) lines.push_back(str_cat("  ... and ", all - kMostRows, " more rows"));
  return lines;
}

}  // namespace ashlar::training
