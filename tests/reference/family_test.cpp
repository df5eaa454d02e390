// Every folder of reference vectors: logits, loss and all gradients in fp64, fp32 and bf16, and the export.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/reference/golden_folder.h"
#include "tests/support/lone_rank.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

class Family : public ::testing::TestWithParam<Setting> {
 protected:
  Family() : dir_(golden_root() / GetParam().folder) {}

  // Input and what the reference says of it.
  struct Case {
    const hf::Family* family;
    model::ModelConfig config;
    NamedValues weights, gradients;
    std::vector<std::string> buffers;  ///< of the class, without a gradient
    std::vector<int32_t> ids, targets;
    int64_t B, T;
    std::vector<double> logits;
    double loss;
    bool exact;  ///< the reference is the formula in fp64, not what a class makes of it with its own roundings
  };
  Case load() const {
    hf::ImportedModel model = hf::import_hf(dir_);
    const io::SafetensorsReader reference(dir_ / "reference.safetensors");
    Case c{.family = model.config().family,
           .config = model.config().model,
           .weights = read_model(model),
           .gradients = read_as_model(dir_, reference, "grad."),
           .buffers = absent_tensors(dir_, reference, "grad."),
           .ids = read_integers(reference, "input_ids"),
           .targets = {},
           .B = reference.at("input_ids").shape[0],
           .T = reference.at("input_ids").shape[1],
           .logits = finite_logits(read_doubles(reference, "logits")),
           .loss = read_doubles(reference, "loss")[0],
           .exact = reference.at("logits").dtype == io::FileDType::kF64};
    std::erase_if(c.gradients, [](const auto& tensor) { return tensor.first.ends_with(".selection_bias"); });
    for (int64_t n = 0; n < c.B * c.T; ++n) c.targets.push_back((n + 1) % c.T == 0 ? -1 : c.ids[n + 1]);
    return c;
  }

  /// What is masked is the lowest number there, and -inf here: both become 0, which no logit is.
  static std::vector<double> finite_logits(std::vector<double> logits) {
    for (double& z : logits)
      if (z < -1e300) z = 0;
    return logits;
  }

  struct Result {
    std::vector<double> logits;
    NamedValues gradients;
    double loss;
    RoutedBackend::Choices choices;
  };
  /// `choices`: of another run, for the routers of this one; null: their own.
  static Result run(const Case& c, DType dtype, const NamedValues& weights,
                    const RoutedBackend::Choices* choices = nullptr) {
    LoadedEngine loaded({.model = c.config, .layout = GetParam().layout, .dtype = dtype, .sequence_length = c.T},
                        weights);
    if (choices != nullptr) loaded.routes().force(*choices);
    const training::DeviceBatch batch = loaded.batch({.ids = c.ids, .targets = c.targets, .B = c.B, .T = c.T});
    Result r;
    r.logits = loaded.logits(batch);
    r.logits.resize(c.logits.size());
    r.logits = finite_logits(std::move(r.logits));
    r.loss = loaded.engine().forward_backward({&batch.micro_batch(), 1}, 0).loss;
    r.gradients = loaded.gradients();
    r.choices = loaded.routes().take_choices();
    EXPECT_EQ(loaded.routes().num_forced_left(), 0);
    return r;
  }
  static double norm_of_all(const NamedValues& values) {
    double sum = 0;
    for (const auto& [name, v] : values) sum += norm(v) * norm(v);
    return std::sqrt(sum);
  }

  void expect_reference(DType dtype) {
    const Case c = load();
    const std::string problem = LoadedEngine::problem(c.config, GetParam().layout);
    if (!problem.empty()) GTEST_SKIP() << problem;
    const Result r = run(c, dtype, c.weights);
    ASSERT_EQ(r.logits.size(), c.logits.size());
    // Against a formula an fp64 run has errors of fp64: a wrong eps or rotary table may show in no larger one. BLOOM's
    // GELU has a constant of eight digits; gradients are stored in fp32.
    const bool exact = c.exact && dtype == DType::kFloat64;
    const double digits = c.family->model_type == "bloom" ? 10 : 1;
    const double logits_error = distance(r.logits, c.logits) / norm(c.logits);
    EXPECT_LE(logits_error, exact ? 1e-9 * digits : 1e-5) << "logits";
    EXPECT_LE(std::abs(r.loss - c.loss) / std::abs(c.loss), exact ? 1e-9 * digits : 1e-6)
        << "loss " << r.loss << ", reference " << c.loss;
    const double all = norm_of_all(c.gradients);
    double worst = 0;
    // A parameter is a tensor of the reference's model: one of theirs may be several of ours (fused q, k, v). A key
    // bias moves all scores of a query alike where nothing rotates: its gradient is zero, and what rounding leaves of
    // it is to the size of the query's and the value's, as in the classes that keep the three as one.
    struct Compared {
      double error = 0, size = 0;
    };
    std::map<std::string, Compared> parameters;
    for (const std::string& name : c.buffers)
      EXPECT_TRUE(name.ends_with(".layer_scalar") || name.ends_with(".act_fn.beta") || name.ends_with(".act_fn.eps") ||
                  name.ends_with(".e_score_correction_bias"))
          << name;
    for (const hf::TensorMapping& parameter : hf::tensor_mappings(*c.family, c.config)) {
      if (std::find(c.buffers.begin(), c.buffers.end(), parameter.hf_name) != c.buffers.end()) continue;
      for (const hf::TensorPart& part : parameter.parts) {
        ASSERT_TRUE(r.gradients.contains(part.name) && c.gradients.contains(part.name)) << part.name;
        const size_t attn = part.name.find(".attn.");
        const bool one_of_three = c.config.pos.type != model::PosType::kRope && attn != std::string::npos &&
                                  part.name.ends_with(".bias") && part.name.find(".out.") == std::string::npos;
        Compared& whole =
            parameters[one_of_three ? part.name.substr(0, attn) + ".attn q, k, v bias" : parameter.hf_name];
        whole.error += std::pow(distance(r.gradients.at(part.name), c.gradients.at(part.name)), 2);
        whole.size += std::pow(norm(c.gradients.at(part.name)), 2);
      }
    }
    for (const auto& [name, whole] : parameters) {
      const double relative = std::sqrt(whole.error) / std::max(std::sqrt(whole.size), 1e-4 * all);
      EXPECT_LE(relative, exact ? 1e-6 : 2e-5) << "gradient of " << name;
      worst = std::max(worst, relative);
    }
    EXPECT_EQ(r.gradients.size(), c.gradients.size());
    std::cout << GetParam().name() << " " << ashlar::name_of(dtype) << ": logits " << logits_error
              << ", worst gradient " << worst << "\n";
  }

  fs::path dir_;
};

TEST_P(Family, Fp64) { expect_reference(DType::kFloat64); }
TEST_P(Family, Fp32) { expect_reference(DType::kFloat32); }

// How far the exact gradient moves when a point at which it jumps is moved by a rounding of bf16 either way: what lies
// that close to it may fall on the other side in a run, whatever else that run does right.
double kink(const NamedValues& at, const std::function<NamedValues(double moved)>& gradients) {
  double worst = 0, size = 0;
  for (const double moved : {-0x1p-8, 0x1p-8}) {
    double sum = 0;
    for (const auto& [name, g] : gradients(moved)) sum += std::pow(distance(at.at(name), g), 2);
    worst = std::max(worst, std::sqrt(sum));
  }
  for (const auto& [name, g] : at) size += std::pow(norm(g), 2);
  return worst / std::sqrt(size);
}

/// The mean of scores and the number of choices of each expert, of all rows and layers with experts.
struct RouterMeans {
  explicit RouterMeans(int64_t experts) : scores(experts), choices(experts) {}
  /// Adds the layer whose experts read the norm of rows [N, C] of the stream.
  void add(const model::ModelConfig& c, const NamedValues& weights, int64_t layer, const std::vector<double>& stream) {
    const std::string block = str_cat("blocks.", layer, ".");
    const std::vector<double>&gain = weights.at(block + "norm2.weight"), &w = weights.at(block + "moe.router.weight");
    const int64_t C = c.d_model, E = c.moe.experts;
    for (auto row = stream.begin(); row != stream.end(); row += C) {
      const double square = std::inner_product(row, row + C, row, 0.0) / static_cast<double>(C);
      std::vector<double> logits(E);
      if (c.moe.router_bias) logits = weights.at(block + "moe.router.bias");
      for (int64_t i = 0; i < E * C; ++i)
        logits[i / C] += w[i] * gain[i % C] * row[i % C] / std::sqrt(square + c.norm.variant.eps);
      double sum = 0;
      for (const double z : logits) sum += std::exp(z);
      std::vector<int64_t> order(E);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
      for (int64_t e = 0; e < E; ++e) scores[e] += std::exp(logits[e]) / sum;
      for (int64_t k = 0; k < c.moe.top_k; ++k) choices[order[k]] += 1;
      ++rows;
    }
  }
  std::vector<double> scores, choices;
  double rows = 0;
};

// aux_loss of the classes of transformers is no loss here: it is computed from the streams of this model. With experts
// that give nothing, a block's output is what its experts read.
TEST_P(Family, BalanceLossOfTheClass) {
  const io::SafetensorsReader reference(dir_ / "reference.safetensors");
  if (reference.find("aux_loss") == nullptr || GetParam().layout.ranks() > 1) return;
  const Case c = load();
  RouterMeans means(c.config.moe.experts);
  for (int64_t layer = 0; layer < c.config.n_layers; ++layer) {
    if (!c.config.has_experts(layer)) continue;
    NamedValues weights = c.weights;
    for (auto& [name, values] : weights)
      if (name.starts_with(str_cat("blocks.", layer, ".moe.")) && name.find(".down.") != std::string::npos)
        std::ranges::fill(values, 0.0);
    LoadedEngine loaded({.model = c.config, .layout = {}, .dtype = DType::kFloat64, .sequence_length = c.T}, weights);
    const training::DeviceBatch batch = loaded.batch({.ids = c.ids, .targets = c.targets, .B = c.B, .T = c.T});
    means.add(c.config, c.weights, layer, loaded.stream(batch, layer + 1));
  }
  const double aux_loss = std::inner_product(means.scores.begin(), means.scores.end(), means.choices.begin(), 0.0) *
                          static_cast<double>(c.config.moe.experts) / (means.rows * means.rows);
  const double expected = read_doubles(reference, "aux_loss")[0];
  EXPECT_LE(std::abs(aux_loss - expected) / expected, 1e-9) << aux_loss << ", reference " << expected;
}

// bf16 storage against the same program in fp64 on weights rounded to bf16: no worse than 1.4 times what the
// reference's own bf16 run is; where it has none, than the worst of the other families. Experts are chosen as the fp64
// run on the weights themselves does, of which Fp64 tells that they are the reference's.
TEST_P(Family, Bf16) {
  const Case c = load();
  const std::string problem = LoadedEngine::problem(c.config, GetParam().layout);
  if (!problem.empty()) GTEST_SKIP() << problem;
  NamedValues rounded = c.weights;
  for (auto& [name, values] : rounded) {
    for (double& v : values) v = static_cast<float>(BF16(static_cast<float>(v)));
  }
  RoutedBackend::Choices choices;
  if (c.config.moe.experts > 0) choices = run(c, DType::kFloat64, c.weights).choices;
  const Result exact = run(c, DType::kFloat64, rounded, &choices);
  const Result bf16 = run(c, DType::kBFloat16, rounded, &choices);
  EXPECT_EQ(bf16.choices, choices);

  std::ifstream file(dir_ / "about.json");
  const auto bound = nlohmann::json::parse(file).at("bf16_reference");
  const double root = std::sqrt(static_cast<double>(exact.logits.size()));
  const double logits_error = distance(bf16.logits, exact.logits) / root;
  double logits_bound = 0.015 * norm(exact.logits) / root, gradient_bound = 0.037;
  if (!bound.is_null()) {
    const double of_logits = bound.at("logits_rms_error"), of_gradient = bound.at("gradient_relative_error");
    // The reference's run chose experts in bf16, some of them other ones, which is an error of another size.
    const bool has_experts = c.config.moe.experts > 0;
    logits_bound = has_experts ? std::min(logits_bound, of_logits) : of_logits;
    gradient_bound = has_experts ? std::min(gradient_bound, of_gradient) : of_gradient;
  }
  EXPECT_LE(logits_error, 1.4 * logits_bound);
  EXPECT_LE(std::abs(bf16.loss - exact.loss), 0.5 * logits_bound) << bf16.loss << " against " << exact.loss;
  double difference = 0;
  for (const auto& [name, g] : exact.gradients) difference += std::pow(distance(bf16.gradients.at(name), g), 2);
  const double gradient_error = std::sqrt(difference) / norm_of_all(exact.gradients);
  double of_kinks = 0;
  if (c.config.attn.clip_qkv) {
    of_kinks += kink(exact.gradients, [&](double moved) {
      Case other = c;
      *other.config.attn.clip_qkv *= 1 + moved;
      return run(other, DType::kFloat64, rounded, &choices).gradients;
    });
  }
  if (c.config.ffn.act == Activation::kRelu && c.config.bias.ffn) {
    of_kinks += kink(exact.gradients, [&](double moved) {
      NamedValues other = rounded;
      for (auto& [name, values] : other)
        if (name.ends_with(".ffn.up.bias"))
          for (double& v : values) v += moved;
      return run(c, DType::kFloat64, other, &choices).gradients;
    });
  }
  EXPECT_LE(gradient_error, 1.4 * gradient_bound + of_kinks);
  std::cout << GetParam().name() << " bf16: share of the reference's own error: logits " << logits_error / logits_bound
            << ", gradients " << gradient_error / gradient_bound << ", loss "
            << std::abs(bf16.loss - exact.loss) / logits_bound << "\n";
}

// What an import read, given out again.
class ImportSource final : public hf::TensorSource {
 public:
  explicit ImportSource(hf::ImportedModel& model) : model_(model) {}
  const io::TensorSpec* find(std::string_view name) const override {
    for (const io::TensorSpec& spec : model_.tensors()) {
      if (spec.name == name) return &spec;
    }
    return nullptr;
  }
  void read_rows(std::string_view name, int64_t row, std::span<std::byte> out) override {
    const io::TensorSpec& spec = *find(name);
    std::vector<std::byte> whole(static_cast<size_t>(spec.num_bytes()));
    model_.read(name, whole);
    std::memcpy(out.data(), whole.data() + row * (spec.num_bytes() / spec.shape[0]), out.size());
  }

 private:
  hf::ImportedModel& model_;
};

TEST_P(Family, ExportGivesTheTensorsBack) {
  if (GetParam().layout.ranks() > 1) return;  // files only: once is enough
  const ScratchDir scratch;
  hf::ImportedModel model = hf::import_hf(dir_);
  ImportSource source(model);
  mesh::LoneRank alone;
  Log log([](std::string_view) {});
  hf::export_hf({.config = model.config(), .source = source, .directory = scratch.path() / "out", .log = log},
                alone.mesh.control());
  const io::SafetensorsReader before(dir_ / "model.safetensors"), after(scratch.path() / "out" / "model.safetensors");
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const io::TensorEntry& tensor : before.tensors()) {
    ASSERT_NE(after.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(after.at(tensor.name).shape, tensor.shape) << tensor.name;
    std::vector<std::byte> a(tensor.num_bytes()), b(after.at(tensor.name).num_bytes());
    before.read(tensor, a);
    after.read(after.at(tensor.name), b);
    EXPECT_TRUE(a == b) << tensor.name << " has other bytes";
  }
  // The exported directory is the same model.
  EXPECT_EQ(hf::import_hf(scratch.path() / "out").config().model, model.config().model);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Family);
INSTANTIATE_TEST_SUITE_P(Golden, Family,
                         ::testing::ValuesIn(settings(golden_root(), folders_with(golden_root(), "config.json"))),
                         [](const auto& at) { return at.param.name(); });

// Classes that are not read: by the name of the class, before any weight.
TEST(Golden, OtherKindsAreRefusedByTheirClass) {
  for (const char* kind : {"moe", "encdec"}) {
    for (const std::string& folder : folders_with(golden_root() / kind, "config.json")) {
      SCOPED_TRACE(folder);
      const fs::path dir = golden_root() / kind / folder;
      std::ifstream file(dir / "config.json");
      const std::string name = nlohmann::json::parse(file).at("architectures").at(0);
      if (hf::family_from_class(name) != nullptr) continue;  // to be run with its folder as ASHLAR_GOLDEN
      try {
        hf::import_hf(dir);
        ADD_FAILURE() << "was read as a model";
      } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_EQ(error.code(), ExitCode::kInput) << text;
        EXPECT_NE(text.find(name), std::string::npos) << text;
        EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      }
    }
  }
}

TEST(Golden, HoldsFolders) {
  EXPECT_FALSE(folders_with(golden_root(), "config.json").empty() &&
               folders_with(golden_root() / "training", "run.json").empty())
      << golden_root() << " holds no reference";
}

}  // namespace
}  // namespace ashlar::testing
