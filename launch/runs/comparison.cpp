#include "launch/runs/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"

namespace ashlar::runs {

namespace {

constexpr size_t kLossWindow = 20;

RunFolder run_to_compare(const std::string& path) {
  RunFolder run = read_run(path);
  if (!run.config)
    throw input_error("compare", printable(path), ": expected a run with a configuration, got ",
                      run.problems.empty() ? "no config.toml" : run.problems[0]);
  if (run.series("loss").empty())
    throw input_error("compare", printable(path), ": expected a run with steps in metrics.jsonl, got none");
  return run;
}

RunGroup group_of_word(const std::string& word) {
  RunGroup group;
  const std::vector<std::string> paths = absl::StrSplit(word, ',', absl::SkipEmpty());
  for (const std::string& path : paths) group.runs.push_back(run_to_compare(path));
  for (const RunFolder& run : group.runs) {
    const auto keys = differing_keys(group.runs[0], run);
    if (!keys.empty())
      throw input_error("compare", printable(word), ": expected runs that differ only in run.seed and run.dir, got ",
                        keys[0].key, " = ", keys[0].before, " and ", keys[0].after, "; compare them as A B");
  }
  return group;
}

double last_of(const RunFolder& run, XAxis axis) {
  const Point& p = run.series("loss").back();
  return axis == XAxis::kStep ? static_cast<double>(p.step) : axis == XAxis::kTokens ? p.tokens : p.seconds;
}

double common_end(const RunGroup& a, const RunGroup& b, XAxis axis) {
  double end = std::numeric_limits<double>::infinity();
  for (const RunGroup* group : {&a, &b})
    for (const RunFolder& run : group->runs) end = std::min(end, last_of(run, axis));
  return end;
}

/// The runs of a group ordered by seed.
std::vector<const RunFolder*> by_seed(const RunGroup& group) {
  std::vector<const RunFolder*> runs;
  for (const RunFolder& run : group.runs) runs.push_back(&run);
  std::ranges::stable_sort(runs, {}, [](const RunFolder* run) { return run->config->run.seed; });
  return runs;
}

/// True if both groups have the same seeds, each once.
bool can_be_paired(const std::vector<const RunFolder*>& a, const std::vector<const RunFolder*>& b) {
  std::set<int64_t> seeds;
  for (const RunFolder* run : a) seeds.insert(run->config->run.seed);
  return seeds.size() == a.size() && std::ranges::equal(
                                         a, b, {}, [](const RunFolder* r) { return r->config->run.seed; },
                                         [](const RunFolder* r) { return r->config->run.seed; });
}

/// The comparison of values that `value` gives; nothing if a run has none.
template <typename ValueOf>
std::optional<Comparison> compare_values(const RunGroup& a, const RunGroup& b, Comparison c, const ValueOf& value) {
  const std::vector<const RunFolder*> left = by_seed(a), right = by_seed(b);
  for (const auto& [runs, values] : {std::pair(&left, &c.a), std::pair(&right, &c.b)}) {
    for (const RunFolder* run : *runs) {
      const std::optional<double> v = value(*run);
      if (!v) return std::nullopt;
      values->push_back(*v);
    }
  }
  const bool paired = c.a.size() >= 2 && can_be_paired(left, right);
  c.difference = paired ? paired_difference(c.a, c.b) : independent_difference(c.a, c.b);
  return c;
}

std::vector<int64_t> common_validation_steps(const RunGroup& a, const RunGroup& b) {
  std::vector<int64_t> common;
  for (const Point& p : a.runs[0].series("val_loss")) common.push_back(p.step);
  for (const RunGroup* group : {&a, &b})
    for (const RunFolder& run : group->runs)
      std::erase_if(common, [&](int64_t step) {
        return std::ranges::find(run.series("val_loss"), step, &Point::step) == run.series("val_loss").end();
      });
  std::vector<int64_t> chosen;
  for (size_t i = 1; i <= 4 && !common.empty(); ++i) {
    const size_t at = (common.size() * i + 3) / 4;
    if (at > 0 && (chosen.empty() || chosen.back() != common[at - 1])) chosen.push_back(common[at - 1]);
  }
  return chosen;
}

std::optional<double> median_rate(const RunFolder& run) {
  std::vector<double> rates;
  for (const Point& p : run.series("tokens_per_sec")) rates.push_back(p.value);
  if (rates.empty()) return std::nullopt;
  std::ranges::nth_element(rates, rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2));
  return rates[rates.size() / 2];
}

bool same_tokens_per_step(const RunGroup& a, const RunGroup& b) {
  const config::TrainSection &x = a.runs[0].config->train, &y = b.runs[0].config->train;
  return x.global_batch * x.sequence_length == y.global_batch * y.sequence_length;
}

}  // namespace

std::vector<config::ConfigChange> differing_keys(const RunFolder& a, const RunFolder& b) {
  std::vector<config::ConfigChange> keys = config::compare_configs(*a.config, *b.config);
  std::erase_if(keys, [](const config::ConfigChange& c) {
    return c.key == "run.seed" || c.key == "run.dir" || c.key == "run.threads";
  });
  return keys;
}

std::vector<RunGroup> make_groups(const std::vector<std::string>& words) {
  std::vector<RunGroup> single, groups;
  for (const std::string& word : words) single.push_back(group_of_word(word));
  std::erase_if(single, [](const RunGroup& g) { return g.runs.empty(); });
  for (const RunGroup& one : single) {
    const auto same = std::ranges::find_if(groups, [&](const RunGroup& g) {
      return one.runs.size() == 1 && differing_keys(g.runs[0], one.runs[0]).empty();
    });
    if (same != groups.end())
      same->runs.push_back(one.runs[0]);
    else
      groups.push_back(one);
  }
  if (groups.size() < 2) groups = single;  // seeds of one configuration, to be compared with each other
  if (groups.size() < 2 || groups.size() > 26)
    throw input_error("compare", "expected 2 to 26 runs or groups of runs, got ", groups.size(),
                      "; usage: ashlar compare A B, or A1,A2 B1,B2");
  for (size_t i = 0; i < groups.size(); ++i) groups[i].label = std::string(1, static_cast<char>('A' + i));
  return groups;
}

std::optional<double> value_at(const RunFolder& run, const std::string& key, XAxis axis, double at, size_t window) {
  const Series& series = run.series(key);
  const auto place = [&](const Point& p) {
    return axis == XAxis::kStep ? static_cast<double>(p.step) : axis == XAxis::kTokens ? p.tokens : p.seconds;
  };
  const auto end =
      std::upper_bound(series.begin(), series.end(), at, [&](double v, const Point& p) { return v < place(p); });
  if (end == series.begin() || last_of(run, axis) < at) return std::nullopt;
  const auto begin =
      end - static_cast<std::ptrdiff_t>(std::min<size_t>(window, static_cast<size_t>(end - series.begin())));
  double sum = 0;
  for (auto p = begin; p != end; ++p) sum += p->value;
  return sum / static_cast<double>(end - begin);
}

std::vector<Comparison> compare_groups(const RunGroup& a, const RunGroup& b) {
  std::vector<Comparison> all;
  const auto add = [&](const Comparison& c, const auto& value) {
    if (auto made = compare_values(a, b, c, value)) all.push_back(*std::move(made));
  };
  for (const XAxis axis : {XAxis::kStep, XAxis::kTokens, XAxis::kTime}) {
    const double end = common_end(a, b, axis);
    if (end <= 0 || (axis == XAxis::kTokens && same_tokens_per_step(a, b))) continue;
    for (const double part : {0.25, 0.5, 0.75, 1.0}) {
      const double at = axis == XAxis::kTime ? end * part : std::floor(end * part);
      if (at > 0)
        add({.metric = "loss", .axis = axis, .at = at},
            [&](const RunFolder& run) { return value_at(run, "loss", axis, at, kLossWindow); });
    }
  }
  for (const int64_t step : common_validation_steps(a, b))
    add({.metric = "val_loss", .at = static_cast<double>(step)}, [&](const RunFolder& run) {
      const Series& s = run.series("val_loss");
      return std::optional(std::ranges::find(s, step, &Point::step)->value);
    });
  add({.metric = "tokens_per_sec", .at = common_end(a, b, XAxis::kStep)}, median_rate);
  return all;
}

std::string in_words(const Comparison& c, const std::string& a, const std::string& b) {
  const Difference& d = c.difference;
  const bool rate = c.metric == "tokens_per_sec";
  const auto number = [&](double v) { return rate ? absl::StrFormat("%.0f", v) : absl::StrFormat("%.4f", v); };
  const std::string where = rate ? " tokens/s (median)"
                            : c.axis == XAxis::kTime
                                ? absl::StrFormat(" after %.1f s of steps", c.at)
                                : absl::StrFormat(" at %s %.0f", c.axis == XAxis::kStep ? "step" : "token", c.at);
  const char* side = d.mean < 0 ? (rate ? "slower" : "lower") : (rate ? "faster" : "higher");
  const double sign = d.mean < 0 ? -1 : 1;
  if (!d.interval) return str_cat(b, " is ", side, " by ", number(std::abs(d.mean)), where, " (no interval: one run)");
  double low = d.interval->first, high = d.interval->second;
  const std::string how = d.paired ? ", paired by seed" : "";
  if (low <= 0 && high >= 0)
    return str_cat("no clear difference: ", b, " - ", a, " = ", number(d.mean), " [", number(low), ", ", number(high),
                   "]", where, how);
  if (sign < 0) std::swap(low, high);
  return str_cat(b, " is ", side, " by ", number(std::abs(d.mean)), " [", number(sign * low), ", ", number(sign * high),
                 "]", where, how);
}

}  // namespace ashlar::runs
