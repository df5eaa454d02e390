#include "parallel/pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace ashlar::pipeline {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Returns true if a is less than b by more than rounding errors. (Sums of the same layers in different orders differ
/// by rounding.)
bool less(double a, double b) { return a < b * (1 - 1e-12); }

class Partitioner {
 public:
  Partitioner(const PartitionSpec& spec, bool allow_empty)
      : spec_(spec), allow_empty_(allow_empty), chunks_(spec.stages * spec.virtual_stages), sums_{0} {
    for (const double flops : spec.layer_flops) sums_.push_back(sums_.back() + flops);
  }

  /// Returns the cost of chunk k when it consists of layers [first, last).
  double cost(int64_t k, int64_t first, int64_t last) const {
    const double embedding_and_head = (k == 0 ? spec_.embedding_flops : 0) + (k == chunks_ - 1 ? spec_.head_flops : 0);
    return sums_[static_cast<size_t>(last)] - sums_[static_cast<size_t>(first)] + embedding_and_head;
  }

  /// Minimizes the cost of the most expensive chunk, and returns that cost.
  double min_max() {
    solve([](double chunk, double rest) { return std::max(chunk, rest); });
    return at(0, 0);
  }

  /// Returns the most even partition in which no chunk costs more than `limit`. Entry k is the first layer of chunk k;
  /// the last entry is the number of layers.
  std::vector<int64_t> most_even(double limit) {
    const auto squares = [limit](double chunk, double rest) {
      return less(limit, chunk) ? kInfinite : (chunk / limit) * (chunk / limit) + rest;
    };
    solve(squares);
    std::vector<int64_t> bounds{0};
    for (int64_t k = 0; k < chunks_; ++k) {
      int64_t last = bounds.back() + min_layers(k);
      while (less(at(k, bounds.back()), squares(cost(k, bounds.back(), last), at(k + 1, last)))) ++last;
      bounds.push_back(last);
    }
    return bounds;
  }

 private:
  int64_t num_layers() const { return static_cast<int64_t>(spec_.layer_flops.size()); }
  int64_t min_layers(int64_t k) const { return allow_empty_ && (k == 0 || k == chunks_ - 1) ? 0 : 1; }
  double& at(int64_t k, int64_t first) { return best_[static_cast<size_t>(k * (num_layers() + 1) + first)]; }

  /// Sets at(k, first) to the minimum of join(cost of chunk k, value of the later chunks) over all ways to assign
  /// layers [first, L) to the chunks k, k + 1, ...
  template <typename Join>
  void solve(Join join) {
    best_.assign(static_cast<size_t>((chunks_ + 1) * (num_layers() + 1)), kInfinite);
    at(chunks_, num_layers()) = 0;
    for (int64_t k = chunks_ - 1; k >= 0; --k) {
      for (int64_t first = 0; first <= num_layers(); ++first) {
        double& best = at(k, first);
        for (int64_t last = first + min_layers(k); last <= num_layers(); ++last) {
          best = std::min(best, join(cost(k, first, last), at(k + 1, last)));
        }
      }
    }
  }

  const PartitionSpec& spec_;
  bool allow_empty_;
  int64_t chunks_;
  std::vector<double> sums_;  // prefix sums of layer costs
  std::vector<double> best_;
};

void check(const PartitionSpec& spec) {
  const auto num_layers = static_cast<int64_t>(spec.layer_flops.size());
  if (spec.stages < 1 || spec.virtual_stages < 1) {
    throw input_error("pipeline", "expected mesh.pipeline and mesh.virtual_stages of at least 1, got ", spec.stages,
                      " and ", spec.virtual_stages, "; set both to 1 or more");
  }
  ASHLAR_CHECK(num_layers > 0, "expected at least one layer");
  if (const std::string problem = chunks_problem(num_layers, spec.stages, spec.virtual_stages); !problem.empty())
    throw input_error("pipeline", problem);
  for (const double flops : spec.layer_flops) {
    ASHLAR_CHECK(std::isfinite(flops) && flops > 0, "expected a positive finite layer cost, got ", flops);
  }
  for (const double flops : {spec.embedding_flops, spec.head_flops}) {
    ASHLAR_CHECK(std::isfinite(flops) && flops >= 0, "expected a finite embedding or head cost of at least 0, got ",
                 flops);
  }
}

}  // namespace

std::string chunks_problem(int64_t layers, int64_t stages, int64_t virtual_stages) {
  if (layers / stages >= virtual_stages) return {};
  const auto up_to = [](const char* key, int64_t most) {
    return most > 1 ? str_cat(key, " from 1 to ", most) : str_cat(key, " = 1");
  };
  constexpr const char *kStages = "mesh.pipeline", *kVirtual = "mesh.virtual_stages";
  const std::string fewer_stages = layers >= virtual_stages ? str_cat(up_to(kStages, layers / virtual_stages), " with ",
                                                                      kVirtual, " = ", virtual_stages)
                                                            : str_cat(kVirtual, " = 1 with ", up_to(kStages, layers));
  const std::string fewer_chunks =
      layers >= stages ? str_cat(", or ", up_to(kVirtual, layers / stages), " with ", kStages, " = ", stages) : "";
  return str_cat(kStages, " = ", stages, ", ", kVirtual, " = ", virtual_stages,
                 ": expected at most model.n_layers = ", layers, " chunks (each needs a layer), got ", stages, " * ",
                 virtual_stages, " = ", stages * virtual_stages, "; choose ", fewer_stages, fewer_chunks);
}

Partition partition(const PartitionSpec& spec) {
  check(spec);
  const double without = Partitioner(spec, false).min_max();
  const double with = spec.allow_empty ? Partitioner(spec, true).min_max() : without;
  Partitioner partitioner(spec, less(with, without));
  const std::vector<int64_t> bounds = partitioner.most_even(std::min(with, without));
  Partition result;
  const auto chunks = static_cast<int64_t>(bounds.size()) - 1;
  for (int64_t k = 0; k < chunks; ++k) {
    const int64_t first = bounds[static_cast<size_t>(k)], last = bounds[static_cast<size_t>(k + 1)];
    result.chunks.push_back({.first_layer = first, .last_layer = last, .embedding = k == 0, .head = k == chunks - 1});
    result.flops.push_back(partitioner.cost(k, first, last));
    result.max_flops = std::max(result.max_flops, result.flops.back());
  }
  return result;
}

}  // namespace ashlar::pipeline
