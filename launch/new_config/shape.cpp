#include "launch/new_config/shape.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/new_config/amounts.h"
#include "parallel/model/parameter_count.h"
#include "parallel/model/slices.h"

namespace ashlar::new_config {

namespace {

using model::ModelConfig;

constexpr double kMostTables = 0.75;  // share of the tables; Gemma 3 270M has 0.63
constexpr double kLeastAspect = 8, kMostAspect = 300;
constexpr int64_t kLeastWidth = 32, kMostWidth = 32768, kMostLayers = 512;

double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }
double squared(double x) { return x * x; }
int64_t rounded(double x, int64_t unit) {
  return std::max<int64_t>(unit, unit * std::llround(x / static_cast<double>(unit)));
}

/// Unit of d_model and d_ff at a width: long products run best at multiples of 64 to 256.
int64_t unit_of(double width) {
  return width >= 4096 ? 256 : width >= 2048 ? 128 : width >= 512 ? 64 : width >= 256 ? 32 : width >= 128 ? 16 : 8;
}

/// How many of the tensor sizes 2, 4 and 8 cannot divide these heads.
int64_t illegal_tensor_sizes(int64_t heads, int64_t kv_heads) {
  return std::ranges::count_if(std::initializer_list<int64_t>{2, 4, 8}, [&](int64_t size) {
    return heads % size != 0 || (kv_heads % size != 0 && size % kv_heads != 0);
  });
}

/// Chooses sizes in the proportions of a published model.
class Proportions {
 public:
  explicit Proportions(const ShapeRequest& request, bool tied)
      : request_(request),
        from_(request.family.config.model),
        base_(from_),
        near_(is_near(request)),
        square_(from_.n_heads * from_.head_dim == from_.d_model) {
    base_.vocab_size = request.vocab_size;
    base_.vocab_pad_to = request.vocab_size >= 8192 ? 128 : 8;
    base_.tied = tied;
    base_.masked_ids.clear();  // they are ids of the family's own vocabulary
  }

  bool near() const { return near_; }

  struct Best {
    std::optional<ModelConfig> shape;  ///< the best within the tolerance, if there is one
    int64_t nearest = 0;               ///< the count nearest to the wanted one of all that are accepted; 0: none is
  };
  Best best() const;
  /// The least count of any shape that is accepted.
  int64_t least() const;

 private:
  static bool is_near(const ShapeRequest& request) {
    const double factor = ratio(request.parameters, request.family.parameters);
    return factor <= kNear && factor >= 1 / kNear;
  }
  std::vector<int64_t> widths() const;
  int64_t head_dim_for(int64_t width) const;
  void set_heads(int64_t head_dim, int64_t width, ModelConfig& m) const;
  ModelConfig of_width(int64_t width) const;
  void set_layers(int64_t layers, ModelConfig& m) const;
  /// Changes d_ff (of the experts, if there are) so that the count comes near to the wanted one.
  void adjust_ffn(ModelConfig& m) const;
  bool accepted(const ModelConfig& m) const;
  int64_t nearer(int64_t a, int64_t b) const;
  double cost(const ModelConfig& m, const ModelConfig& proportional) const;
  double kv_distance(int64_t heads, int64_t kv_heads) const;
  void choose_kv_heads(ModelConfig& m) const;
  double aim(const ModelConfig& m) const;
  double distance_of_aspect(const ModelConfig& m) const;
  int64_t layers_for(const ModelConfig& proportional) const;
  int64_t& adjustable(ModelConfig& m) const { return m.moe.experts > 0 && !m.moe.beside_ffn ? m.moe.d_ff : m.d_ff; }

  const ShapeRequest& request_;
  const ModelConfig& from_;
  ModelConfig base_;
  const bool near_;
  const bool square_;  // the heads are as wide as the residual stream
};

int64_t tables_of(const model::ParameterCount& count) {
  return count.embedding + count.head + count.head_bias + count.positions + count.projections;
}

int64_t in_layers(const ModelConfig& m) { return model::active_parameters(m) - tables_of(model::count_parameters(m)); }

double Proportions::aim(const ModelConfig& m) const {
  return near_ ? ratio(from_.d_model, from_.n_layers) : aspect_ratio(static_cast<double>(in_layers(m)));
}

/// The family's width of a head, halved for narrow models until there are eight heads, or four of 32 columns.
int64_t Proportions::head_dim_for(int64_t width) const {
  int64_t head_dim = from_.head_dim;
  const double columns = ratio(from_.n_heads * from_.head_dim, from_.d_model) * static_cast<double>(width);
  const auto heads = [&] { return columns / static_cast<double>(head_dim); };
  if (near_ && heads() >= 1) return head_dim;
  const auto halve_while = [&](auto condition) {
    while (head_dim % 4 == 0 && head_dim > 16 && condition()) head_dim /= 2;
  };
  halve_while([&] { return heads() < 8 && !(head_dim <= 32 && heads() >= 4); });
  if (square_) halve_while([&] { return width % head_dim != 0; });
  return head_dim;
}

std::vector<int64_t> Proportions::widths() const {
  std::vector<int64_t> widths;
  for (int64_t width = kLeastWidth; width <= kMostWidth; width += 16) {
    if (width % unit_of(static_cast<double>(width)) != 0) continue;
    if (square_ && width % head_dim_for(width) != 0) continue;
    widths.push_back(width);
  }
  return widths;
}

void Proportions::set_heads(int64_t head_dim, int64_t width, ModelConfig& m) const {
  const double scale = ratio(head_dim, from_.head_dim);
  const auto scaled = [&](int64_t size) { return std::max<int64_t>(2, 2 * std::llround(scale * ratio(size, 2))); };
  m.head_dim = head_dim;
  const double columns = ratio(from_.n_heads * from_.head_dim, from_.d_model) * static_cast<double>(width);
  m.n_heads = std::max<int64_t>(1, std::llround(columns / static_cast<double>(head_dim)));
  if (m.rope.dims > 0) m.rope.dims = std::min(scaled(from_.rope.dims), head_dim);
  if (m.rope.global_dims) m.rope.global_dims = scaled(*from_.rope.global_dims);
  if (m.attn.global_head_dim) m.attn.global_head_dim = scaled(*from_.attn.global_head_dim);
  if (m.attn.v_head_dim > 0) m.attn.v_head_dim = scaled(from_.attn.v_head_dim);
  if (m.attn.kind != model::AttentionKind::kMla) return;
  // DeepSeek V2 (arXiv 2405.04434, 3.1.2): the latents are four and twelve heads wide.
  m.attn.kv_rank = scaled(from_.attn.kv_rank);
  if (m.attn.q_rank > 0) m.attn.q_rank = std::min(scaled(from_.attn.q_rank), m.d_model);
}

double Proportions::kv_distance(int64_t heads, int64_t kv_heads) const {
  const bool as_family =
      kv_heads == (from_.n_kv_heads == 1 ? 1 : heads) && (from_.n_kv_heads == 1 || from_.n_kv_heads == from_.n_heads);
  return as_family ? 0 : std::log(ratio(heads, kv_heads) / ratio(from_.n_heads, from_.n_kv_heads)) / 0.5;
}

/// The divisor of the query heads whose ratio is nearest to the family's, among those that divide most meshes.
void Proportions::choose_kv_heads(ModelConfig& m) const {
  if (from_.n_kv_heads == from_.n_heads || from_.n_kv_heads == 1) {
    m.n_kv_heads = from_.n_kv_heads == 1 ? 1 : m.n_heads;
  } else {
    double least = std::numeric_limits<double>::infinity();
    for (int64_t groups = 1; groups <= m.n_heads; ++groups) {
      if (m.n_heads % groups != 0) continue;
      const double cost =
          squared(kv_distance(m.n_heads, groups)) + static_cast<double>(illegal_tensor_sizes(m.n_heads, groups));
      if (cost >= least) continue;
      least = cost;
      m.n_kv_heads = groups;
    }
  }
  if (!from_.attn.global_n_kv_heads) return;
  const double share = ratio(*from_.attn.global_n_kv_heads, from_.n_kv_heads);
  int64_t groups = std::max<int64_t>(1, std::llround(share * static_cast<double>(m.n_kv_heads)));
  while (m.n_heads % groups != 0) --groups;
  m.attn.global_n_kv_heads = groups;
}

ModelConfig Proportions::of_width(int64_t width) const {
  ModelConfig m = base_;
  m.d_model = width;
  set_heads(head_dim_for(width), width, m);
  choose_kv_heads(m);
  const auto in_proportion = [&](int64_t size, int64_t least_unit) {
    const double scaled = ratio(size, from_.d_model) * static_cast<double>(width);
    return rounded(scaled, std::max(least_unit, unit_of(scaled)));
  };
  m.d_ff = in_proportion(from_.d_ff, 16);
  if (m.embed_dim) m.embed_dim = in_proportion(*from_.embed_dim, 16);
  if (m.moe.experts > 0) m.moe.d_ff = in_proportion(from_.moe.d_ff, 8);
  if (m.moe.shared_d_ff > 0) m.moe.shared_d_ff = in_proportion(from_.moe.shared_d_ff, 8);
  if (m.pos.type == model::PosType::kLearned) m.pos.max_positions = request_.sequence_length;
  return m;
}

void Proportions::set_layers(int64_t layers, ModelConfig& m) const {
  m.n_layers = layers;
  if (from_.moe.first_layer > 0)
    m.moe.first_layer = std::clamp<int64_t>(std::llround(ratio(from_.moe.first_layer * layers, from_.n_layers)), 1,
                                            std::max<int64_t>(1, layers - 1));
}

void Proportions::adjust_ffn(ModelConfig& m) const {
  ModelConfig more = m;
  const int64_t unit = unit_of(static_cast<double>(adjustable(m)));
  adjustable(more) += unit;
  const int64_t count = model::count_parameters(m).total();
  const int64_t step = model::count_parameters(more).total() - count;
  if (step <= 0) return;
  const double wanted = ratio(request_.parameters - count, step);
  const double most = std::max(1.0, 0.3 * ratio(adjustable(m), unit));
  const int64_t units = std::llround(std::clamp(wanted, -most, most));
  adjustable(m) = std::max(unit, adjustable(m) + units * unit);
}

bool Proportions::accepted(const ModelConfig& m) const {
  const model::ParameterCount count = model::count_parameters(m);
  const double aspect = ratio(m.d_model, m.n_layers);
  const bool experts = m.moe.experts == 0 || m.expert_layers() > 0;
  return m.n_layers >= 2 && aspect >= kLeastAspect && aspect <= kMostAspect && experts &&
         static_cast<double>(tables_of(count)) <= kMostTables * static_cast<double>(count.total());
}

double Proportions::distance_of_aspect(const ModelConfig& m) const {
  return squared(std::log(ratio(m.d_model, m.n_layers) / aim(m)) / 0.35);
}

double Proportions::cost(const ModelConfig& m, const ModelConfig& proportional) const {
  ModelConfig a = m, b = proportional;
  const double off = ratio(model::count_parameters(m).total(), request_.parameters) - 1;
  if (std::abs(off) > kTolerance || !accepted(m)) return std::numeric_limits<double>::infinity();
  const bool changed = adjustable(a) != adjustable(b);
  const int64_t illegal = illegal_tensor_sizes(m.n_heads, m.n_kv_heads);
  return distance_of_aspect(m) + squared(off / 0.015) + (changed ? 0.1 : 0) +
         squared(std::log(ratio(adjustable(a), adjustable(b))) / 0.1) +
         0.3 * squared(kv_distance(m.n_heads, m.n_kv_heads)) + 0.6 * static_cast<double>(illegal) +
         (m.n_heads % 2 != 0   ? 0.5
          : m.n_heads % 4 != 0 ? 0.1
                               : 0) +
         (m.n_layers % 2 != 0 ? 0.05 : 0) + (m.d_model % 128 != 0 ? 0.05 : 0);
}

/// The number of layers whose count is nearest to the wanted one, from the layers of a cycle of windows.
int64_t Proportions::layers_for(const ModelConfig& proportional) const {
  const auto count = [&](int64_t layers) {
    ModelConfig m = proportional;
    set_layers(layers, m);
    return model::count_parameters(m).total();
  };
  const auto cycle = std::ssize(from_.attn.window_cycle);
  const int64_t few = 2 + from_.moe.first_layer;
  const int64_t first = count(few);
  const double each = ratio(count(few + cycle) - first, cycle);
  return few + std::llround(static_cast<double>(request_.parameters - first) / each);
}

/// The count that is nearer to the wanted one.
int64_t Proportions::nearer(int64_t a, int64_t b) const {
  const auto off = [&](int64_t count) { return std::abs(std::log(ratio(count, request_.parameters))); };
  return a == 0 || off(b) < off(a) ? b : a;
}

Proportions::Best Proportions::best() const {
  constexpr double kFar = 2;  // of the aspect ratio: one layer more or less moves it less than this
  Best best;
  double least = std::numeric_limits<double>::infinity();
  for (const int64_t width : widths()) {
    const ModelConfig proportional = of_width(width);
    const int64_t nearest = layers_for(proportional);
    if (nearest < -1) break;
    ModelConfig m = proportional;
    set_layers(std::max<int64_t>(2, nearest), m);
    if (m.n_layers > kMostLayers || ratio(width, std::max<int64_t>(2, nearest - 2)) < kLeastAspect) continue;
    if (distance_of_aspect(m) > least + kFar) continue;
    for (int64_t layers = std::max<int64_t>(2, nearest - 2); layers <= nearest + 2; ++layers) {
      const double aspect = ratio(width, layers);
      if (aspect < kLeastAspect || aspect > kMostAspect) continue;
      for (const bool adjusted : {false, true}) {
        m = proportional;
        set_layers(layers, m);
        if (adjusted) adjust_ffn(m);
        if (accepted(m)) best.nearest = nearer(best.nearest, model::count_parameters(m).total());
        const double here = cost(m, proportional);
        if (here >= least) continue;
        least = here;
        best.shape = m;
      }
    }
  }
  return best;
}

int64_t Proportions::least() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const int64_t width : widths()) {
    ModelConfig m = of_width(width);
    set_layers(1, m);
    if (model::count_parameters(m).total() >= least) break;
    for (int64_t layers = 2; ratio(width, layers) >= kLeastAspect; ++layers) {
      set_layers(layers, m);
      const int64_t count = model::count_parameters(m).total();
      if (count >= least) break;
      if (accepted(m)) least = count;
    }
  }
  return least;
}

Shape shape_of(const ModelConfig& m, const Proportions& proportions, const Family& family) {
  const model::ParameterCount count = model::count_parameters(m);
  Shape shape;
  shape.model = m;
  shape.parameters = count.total();
  shape.active = model::active_parameters(m);
  shape.in_layers = in_layers(m);
  shape.tables = ratio(tables_of(count), count.total());
  shape.published = proportions.near();
  shape.aspect = shape.published ? ratio(family.config.model.d_model, family.config.model.n_layers)
                                 : aspect_ratio(static_cast<double>(shape.in_layers));
  shape.tied_for_size = m.tied && !family.config.model.tied;
  return shape;
}

}  // namespace

double aspect_ratio(double parameters_in_layers) {
  return std::clamp(128 * std::pow(parameters_in_layers / 6.4e9, 1.0 / 6), 16.0, 128.0);
}

Shape choose_shape(const ShapeRequest& request) {
  // MobileLLM (arXiv 2402.14905), Llama 3.2 1B and 3B and Qwen3 up to 4B tie small models, whose tables weigh most.
  constexpr int64_t kLargeEnough = 4'000'000'000;
  constexpr double kHeavyTables = 0.2;
  constexpr int64_t kMostParameters = 1'000'000'000'000;
  if (request.parameters > kMostParameters)
    throw input_error("new", "option --params = ", grouped(request.parameters), ": expected at most ",
                      grouped(kMostParameters));
  const bool tied = request.family.config.model.tied;
  const Proportions as_family(request, tied);
  Proportions::Best best = as_family.best();
  if (best.shape && (tied || request.parameters >= kLargeEnough ||
                     shape_of(*best.shape, as_family, request.family).tables <= kHeavyTables))
    return shape_of(*best.shape, as_family, request.family);
  const Proportions with_one_table(request, true);
  best = with_one_table.best();
  if (best.shape) return shape_of(*best.shape, with_one_table, request.family);
  const int64_t least = with_one_table.least();
  const std::string like =
      str_cat(" of ", request.family.title, " with a vocabulary of ", grouped(request.vocab_size), " ids");
  if (request.parameters < least)
    throw input_error("new", "option --params = ", grouped(request.parameters), ": expected at least ", grouped(least),
                      ", the least", like, "; raise --params, or build the dataset with a smaller vocabulary");
  throw input_error("new", "option --params = ", grouped(request.parameters), ": expected a size that a shape", like,
                    " has within 3%; the nearest is ", grouped(best.nearest), "; choose it or another --like");
}

}  // namespace ashlar::new_config
