#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "absl/strings/str_format.h"
#include "core/base/error_text.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/commands/timed_steps.h"
#include "launch/layout_check/comparison.h"
#include "launch/layout_check/layouts.h"
#include "launch/layout_check/step_numbers.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

const char* const kCheckLayoutHelp =
    R"(ashlar launch -np N check-layout CONFIG [section.key=value ...] [--meshes LAYOUT|all]... [--dtype fp64|fp32] [--json]

Proves that a layout computes what one rank computes. A training step of the configuration runs on one rank and on each
layout, on the same random tokens: loss, gradient norm, clip scale, every gradient before clipping, every weight after
the update. In fp64 (the default) they must agree within 1e-11 of a tensor's norm, in fp32 within 2e-5.

  --meshes LAYOUT   keys of [mesh], e.g. tensor=2,pipeline=2,schedule=zb-h1; may be given several times. Fewer ranks
                    than N are fine. all: every layout of N ranks that the model allows. Without it: the
                    configuration's own.
  --json            one object: dtype, bound, micro_batches, and layouts: an array of {layout, ranks, equal, axis,
                    numbers: [{name, got, expected}], first, tensors: [{name, gradient, gradient_ulps, weight,
                    weight_ulps, not_held}]}. first: the tensor at which the error shows first, or null. gradient:
                    |difference| / |tensor|; weight: the largest difference over what rounding allows; not_held:
                    elements without a gradient on any rank.

Of a layout that differs it names the wrong gradients, the one nearest to the loss first, and the axis that differs when
it is used alone. A wrong gradient makes the norm and all weights wrong; with all gradients equal it says so. Rank 0
holds the model, gradients and optimizer state of one rank: take a small model of the same kind, e.g. model.n_layers=4
model.d_model=256. Random tokens; samples have different numbers of targets. Exit code 0: all are equal; 70: one is not.
)";

namespace {

using layout_check::Layout;
using layout_check::LayoutDifference;
using layout_check::TensorDifference;

constexpr const char* kCheckLayout = "check-layout";

/// A layout with its configuration.
struct Checked {
  Layout layout;
  config::RunConfig config;
};

Layout layout_of(const config::MeshSection& mesh) {
  Layout layout{{{"tensor", str_cat(mesh.tensor)}, {"pipeline", str_cat(mesh.pipeline)}, {"data", str_cat(mesh.data)}}};
  if (mesh.expert > 1) layout.keys.emplace_back("expert", str_cat(mesh.expert));
  if (mesh.sequence_parallel) layout.keys.emplace_back("sequence_parallel", "true");
  if (mesh.pipeline > 1) layout.keys.emplace_back("schedule", str_cat("\"", name_of(mesh.schedule), "\""));
  if (mesh.virtual_stages > 1) layout.keys.emplace_back("virtual_stages", str_cat(mesh.virtual_stages));
  return layout;
}

/// Reads configurations of one file with different meshes.
class Configurations {
 public:
  Configurations(std::string file, std::vector<std::string> overrides, Session& session)
      : file_(std::move(file)), overrides_(std::move(overrides)), session_(&session) {}

  config::RunConfig own() const { return config_of_steps(kCheckLayout, file_, overrides_, *session_); }
  /// The configuration on a layout, with so many micro-batches in all; 0: as the file has them.
  config::RunConfig of(const Layout& layout, int64_t micro_batch, int64_t num_micro_batches) const {
    std::vector<std::string> all = overrides_;
    std::erase_if(all, [](const std::string& word) { return word.starts_with("mesh."); });
    for (const char* key : {"tensor", "pipeline", "data", "expert", "sequence_parallel", "schedule", "virtual_stages"})
      all.push_back(str_cat("mesh.", key, "=default"));
    for (const std::string& word : layout.overrides()) all.push_back(word);
    if (num_micro_batches > 0) {  // both keys: a derived micro-batch would grow with the global batch
      all.push_back(str_cat("train.global_batch=", num_micro_batches * micro_batch));
      all.push_back(str_cat("train.micro_batch=", micro_batch));
    }
    return config_of_steps(kCheckLayout, file_, all, *session_, layout.ranks());
  }

 private:
  std::string file_;
  std::vector<std::string> overrides_;
  const Session* session_;
};

struct Job {
  std::optional<Configurations> files;
  config::RunConfig one_rank;
  std::vector<Checked> layouts;
  int64_t num_micro_batches = 0, illegal = 0;
  std::string first_illegal;  ///< the first layout that the model does not allow, and why
  bool json = false;
};

/// A number of micro-batches that all layouts can divide, two or more for each replica.
int64_t micro_batches_for(std::span<const Layout> layouts) {
  int64_t all = 1;
  for (const Layout& layout : layouts) {
    const int64_t groups = layout.size("virtual_stages") > 1 ? layout.size("pipeline") : 1;
    all = std::lcm(all, std::max(layout.size("data"), layout.size("expert")) * groups);
  }
  return 2 * all;
}

std::vector<Layout> take_layouts(Arguments& arguments, int64_t ranks, bool& all) {
  std::vector<Layout> layouts;
  while (const std::optional<std::string> text = arguments.option("--meshes")) {
    all = all || *text == "all";
    if (*text != "all") layouts.push_back(layout_check::parse_layout(*text));
  }
  for (const Layout& layout : layouts)
    if (layout.ranks() > ranks)
      throw input_error(kCheckLayout, "--meshes ", layout.text(), ": ", layout.ranks(), " ranks, but there are ", ranks,
                        "; start it with ashlar launch -np ", layout.ranks(), " check-layout ...");
  return layouts;
}

DType take_dtype(Arguments& arguments) {
  constexpr std::pair<std::string_view, DType> kDTypes[] = {{"fp64", DType::kFloat64}, {"fp32", DType::kFloat32}};
  return arguments.choice("--dtype", DType::kFloat64, kDTypes);
}

/// Adds the layouts that the model allows. A layout that was asked for by name must be one of them.
void add_layouts(Job& job, std::span<const Layout> layouts, bool by_name) {
  for (const Layout& layout : layouts) {
    try {
      job.layouts.push_back({layout, job.files->of(layout, job.one_rank.train.micro_batch, job.num_micro_batches)});
    } catch (const Error& error) {
      if (by_name) throw;
      if (job.illegal++ == 0) job.first_illegal = str_cat(layout.text(), ": ", first_line_of(error.what()));
    }
  }
}

Job parse_job(Words words, Session& session) {
  const int64_t ranks = session.bootstrap.world().size();
  Arguments arguments(kCheckLayout, words);
  Job job{.files = {}, .one_rank = {}, .layouts = {}, .json = arguments.flag("--json")};
  const DType dtype = take_dtype(arguments);
  bool all = false;
  std::vector<Layout> named = take_layouts(arguments, ranks, all);
  std::vector<std::string> files = arguments.positionals();
  std::vector<std::string> overrides = take_overrides(files);
  arguments.expect(files, 1, "one configuration file", "; usage: ashlar launch -np N check-layout CONFIG ...");
  std::erase_if(overrides, [](const std::string& word) { return word.starts_with("run.dtype="); });
  overrides.push_back(str_cat("run.dtype=", name_of(dtype)));
  job.files.emplace(files[0], overrides, session);
  if (named.empty() && !all) named = {layout_of(job.files->own().mesh)};
  job.one_rank = job.files->of({}, 0, 0);
  const std::vector<Layout> every =
      all ? layout_check::layouts_of(ranks, job.one_rank.model.moe.experts > 0) : std::vector<Layout>();
  std::vector<Layout> both = named;
  both.insert(both.end(), every.begin(), every.end());
  job.num_micro_batches = micro_batches_for(both);
  job.one_rank = job.files->of({}, job.one_rank.train.micro_batch, job.num_micro_batches);
  add_layouts(job, named, true);
  add_layouts(job, every, false);
  if (dtype == DType::kFloat32 && job.one_rank.model.moe.experts > 0)
    throw input_error(kCheckLayout, "--dtype fp32 with moe.experts = ", job.one_rank.model.moe.experts,
                      ": rounding may change which experts are chosen, and with them all numbers; use --dtype fp64");
  return job;
}

/// Runs layouts on the first ranks of the world, and the step of one rank before them.
class Checker {
 public:
  Checker(const Job& job, Session& session)
      : job_(job),
        world_(session.bootstrap.control()),
        device_({.bootstrap = session.bootstrap,
                 .run = job.one_rank.run,
                 .attention = job.one_rank.train.attention,
                 .log = session.log,
                 .make_backend = {}}) {
    device_.connect();
    const std::unique_ptr<comm::Communicator> alone = first_ranks(1);
    comm::try_on_all_ranks(world_, [&] {
      if (alone) reference_ = layout_check::reference_numbers(job.one_rank, device_, *alone, job.num_micro_batches);
    });
  }

  /// The differences; on ranks that the layout does not use, nothing. (all ranks)
  LayoutDifference check(const Checked& checked) {
    const std::unique_ptr<comm::Communicator> ranks = first_ranks(checked.layout.ranks());
    LayoutDifference difference;
    comm::try_on_all_ranks(world_, [&] {
      if (!ranks) return;
      layout_check::CheckedStep step(checked.config, device_, *ranks, job_.num_micro_batches);
      difference = layout_check::compare(step, checked.config, reference_ ? &*reference_ : nullptr, {});
    });
    return difference;
  }

 private:
  std::unique_ptr<comm::Communicator> first_ranks(int64_t count) {
    return device_.ranks().split({.color = world_.rank() < count ? 0 : -1, .name = "layout"});
  }

  const Job& job_;
  comm::ControlPlane& world_;
  training::RunDevice device_;
  std::optional<layout_check::Reference> reference_;  ///< on rank 0
};

/// The axes of a layout that differ when they are used alone, in words.
std::string axes_at_fault(const Checked& checked, const Job& job, Checker& checker, comm::ControlPlane& world) {
  const std::vector<Layout> singles = layout_check::single_axes_of(checked.layout);
  std::string found;
  for (const Layout& single : singles) {
    std::optional<Checked> one;
    try {
      one = Checked{single, job.files->of(single, job.one_rank.train.micro_batch, job.num_micro_batches)};
    } catch (const Error&) {
      continue;  // e.g. a schedule that needs more micro-batches
    }
    const bool equal = checker.check(*one).equal(layout_check::bounds_of(job.one_rank.run.dtype));
    if (comm::broadcast_value(world, equal, 0)) continue;
    found += str_cat(found.empty() ? "" : " and ", single.text());
  }
  if (!found.empty()) return str_cat(found, singles.size() > 1 ? " alone" : "");
  return singles.empty() ? checked.layout.text() : "each axis alone is equal: only together they differ";
}

nlohmann::ordered_json to_json(const Checked& checked, const LayoutDifference& difference, bool equal,
                               const std::string& axis, const layout_check::Bounds& bounds) {
  nlohmann::ordered_json row{{"layout", checked.layout.text()}, {"ranks", checked.layout.ranks()}, {"equal", equal}};
  row["axis"] = axis;
  row["numbers"] = nlohmann::ordered_json::array();
  for (const auto& number : difference.numbers)
    row["numbers"].push_back({{"name", number.name}, {"got", number.got}, {"expected", number.expected}});
  const layout_check::Origin origin = layout_check::origin_of(difference, bounds);
  row["first"] = nullptr;
  if (!origin.tensors.empty()) row["first"] = origin.tensors.front().name;
  for (const TensorDifference& t : difference.tensors)
    row["tensors"].push_back({{"name", t.name},
                              {"gradient", t.gradient},
                              {"gradient_ulps", t.gradient_ulps},
                              {"weight", t.weight},
                              {"weight_ulps", t.weight_ulps},
                              {"not_held", t.not_held}});
  return row;
}

void print_tensor(const TensorDifference& t, const layout_check::Bounds& bounds, std::ostream& out) {
  out << "      " << t.name << ":";
  if (!(t.gradient <= bounds.relative))
    out << absl::StrFormat(" gradient off by %.3g of its norm (%.3g ULP)", t.gradient, t.gradient_ulps);
  if (t.not_held > 0) out << absl::StrFormat(" %d elements have no gradient on any rank", t.not_held);
  if (t.not_held < 0) out << absl::StrFormat(" %d elements are counted more than once", -t.not_held);
  if (!(t.weight <= 1)) out << absl::StrFormat(" weights off by %.3g of what rounding allows", t.weight);
  out << "\n";
}

void print_origin(const layout_check::Origin& origin, size_t tensors, const layout_check::Bounds& bounds,
                  std::ostream& out) {
  using Kind = layout_check::Origin::Kind;
  const size_t wrong = origin.tensors.size();
  if (origin.kind == Kind::kNorm) {
    out << absl::StrFormat("   all %d gradients are equal: their norm is wrong, and with it %d weights\n", tensors,
                           origin.weights);
    return;
  }
  if (origin.kind == Kind::kGradients)
    out << absl::StrFormat("   %d of %d gradients differ; backward meets first:\n", wrong, tensors);
  else if (wrong > 0)
    out << absl::StrFormat("   all gradients are equal, %d of %d weights differ; the last of the model first:\n", wrong,
                           tensors);
  constexpr size_t kMost = 5;
  for (size_t i = 0; i < std::min(wrong, kMost); ++i) print_tensor(origin.tensors[i], bounds, out);
  if (origin.weights > 0) out << absl::StrFormat("   and the weights of %d others, as a consequence\n", origin.weights);
}

void print(const Checked& checked, const LayoutDifference& difference, bool equal, const std::string& axis,
           const layout_check::Bounds& bounds, std::ostream& out) {
  const auto worst = std::ranges::max_element(difference.tensors, {}, &TensorDifference::gradient_ulps);
  if (equal) {
    out << absl::StrFormat("equal    %-44s %d gradients and weights; worst gradient %.3g ULP, %s\n",
                           checked.layout.text(), difference.tensors.size(), worst->gradient_ulps, worst->name);
    return;
  }
  out << absl::StrFormat("DIFFERS  %s\n", checked.layout.text());
  for (const auto& number : difference.numbers)
    out << absl::StrFormat("   %s: %.17g, on one rank %.17g\n", number.name, number.got, number.expected);
  print_origin(layout_check::origin_of(difference, bounds), difference.tensors.size(), bounds, out);
  out << "   axis: " << axis << "\n";
}

}  // namespace

int run_check_layout_command(Words words, Session& session) {
  comm::ControlPlane& world = session.bootstrap.control();
  Job job;
  comm::try_on_all_ranks(world, [&] { job = parse_job(words, session); });
  const layout_check::Bounds bounds = layout_check::bounds_of(job.one_rank.run.dtype);
  if (!job.json)
    session.out << absl::StrFormat("a step of %d micro-batches of %d sequences of %d tokens in %s; bound %g\n",
                                   job.num_micro_batches, job.one_rank.train.micro_batch,
                                   job.one_rank.train.sequence_length, std::string(name_of(job.one_rank.run.dtype)),
                                   bounds.relative);
  Checker checker(job, session);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  int64_t wrong = 0;
  for (const Checked& checked : job.layouts) {
    const LayoutDifference difference = checker.check(checked);
    const bool equal = comm::broadcast_value(world, difference.equal(bounds), 0);
    std::string axis;
    if (!equal) axis = axes_at_fault(checked, job, checker, world);
    wrong += equal ? 0 : 1;
    if (world.rank() != 0) continue;
    if (job.json) rows.push_back(to_json(checked, difference, equal, axis, bounds));
    if (!job.json) print(checked, difference, equal, axis, bounds, session.out);
  }
  if (job.json) {
    session.out << nlohmann::ordered_json{{"dtype", name_of(job.one_rank.run.dtype)},
                                          {"bound", bounds.relative},
                                          {"micro_batches", job.num_micro_batches},
                                          {"layouts", rows}}
                       .dump()
                << "\n";
  } else {
    session.out << absl::StrFormat(
        "%d of %d layouts equal one rank%s\n", std::ssize(job.layouts) - wrong, job.layouts.size(),
        job.illegal > 0 ? absl::StrFormat("; the model does not allow %d, e.g. %s", job.illegal, job.first_illegal)
                        : "");
  }
  return wrong == 0 ? 0 : static_cast<int>(ExitCode::kBug);
}

}  // namespace ashlar::launch
