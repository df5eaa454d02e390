#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/runs/comparison.h"
#include "launch/zoo/comparison.h"

namespace ashlar::launch {

const char* const kCompareHelp =
    "ashlar compare A B [...] [--json]\n"
    "ashlar compare A1,A2,A3 B1,B2,B3\n"
    "\n"
    "Compares runs with the first: the keys of the configuration that differ, and how many published models have each\n"
    "value; losses at equal steps, tokens and time of steps; throughput. Runs that differ only in run.seed, run.dir\n"
    "and run.threads form a group, whether they are joined with commas or given one by one. Differences of groups\n"
    "have a 95% interval (Student's; paired where both groups have the same seeds, else Welch's). A training loss is\n"
    "the mean of 20 steps up to that place.\n"
    "\n"
    "--json writes one object: version (1), groups [{label, runs}], comparisons [{group, with, keys [{key, with, "
    "group,\n"
    "published_with, published_group}], values [{metric, axis (step, tokens, time), at, with, group (values by run,\n"
    "ordered by seed), difference (group minus with), low, high (95% interval, or null), paired, words}]}].\n";

namespace {

/// The published models whose value of a key is `value`; nothing for keys that the zoo does not compare.
std::optional<std::vector<std::string>> published_with(const std::vector<zoo::Uses>& uses, const std::string& key,
                                                       const std::string& value) {
  const auto bare = [](std::string text) {
    std::erase(text, '"');
    return text;
  };
  const auto found = std::ranges::find(uses, key, &zoo::Uses::key);
  if (found == uses.end()) return std::nullopt;
  for (const zoo::Use& use : found->values)
    if (bare(use.value) == bare(value)) return use.ids;
  return std::vector<std::string>();
}

std::string who_text(const std::optional<std::vector<std::string>>& ids) {
  if (!ids) return "";
  if (ids->empty()) return " (no published model)";
  const std::vector<std::string> first(ids->begin(),
                                       ids->begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(ids->size(), 2)));
  return str_cat(" (", ids->size(), " published: ", absl::StrJoin(first, ", "), ids->size() > 2 ? ", ..." : "", ")");
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void print_comparison(const runs::RunGroup& a, const runs::RunGroup& b, const std::vector<zoo::Uses>& uses,
                      std::ostream& out) {
  out << "\n" << b.label << " compared with " << a.label << "\n";
  const auto keys = runs::differing_keys(a.runs[0], b.runs[0]);
  if (keys.empty()) out << "  configurations: equal but for run.seed, run.dir and run.threads\n";
  for (const config::ConfigChange& c : keys)
    out << "  " << c.key << ": " << a.label << " " << c.before << who_text(published_with(uses, c.key, c.before))
        << ", " << b.label << " " << c.after << who_text(published_with(uses, c.key, c.after)) << "\n";
  std::string metric;
  for (const runs::Comparison& c : runs::compare_groups(a, b)) {
    const std::string head = str_cat(c.metric, " by ", name_of(c.axis));
    if (head != metric) out << "  " << (c.metric == "tokens_per_sec" ? "throughput" : head) << "\n";
    metric = head;
    out << (c.metric == "tokens_per_sec" ? absl::StrFormat("    %10.0f %10.0f   ", mean_of(c.a), mean_of(c.b))
                                         : absl::StrFormat("    %10.4f %10.4f   ", mean_of(c.a), mean_of(c.b)))
        << runs::in_words(c, a.label, b.label) << "\n";
  }
}

nlohmann::ordered_json to_json(const runs::RunGroup& a, const runs::RunGroup& b, const std::vector<zoo::Uses>& uses) {
  nlohmann::ordered_json j = {
      {"group", b.label}, {"with", a.label}, {"keys", nlohmann::json::array()}, {"values", nlohmann::json::array()}};
  const auto ids = [&](const std::string& key, const std::string& value) -> nlohmann::ordered_json {
    const auto found = published_with(uses, key, value);
    return found ? nlohmann::ordered_json(*found) : nlohmann::ordered_json(nullptr);
  };
  for (const config::ConfigChange& c : runs::differing_keys(a.runs[0], b.runs[0]))
    j["keys"].push_back({{"key", c.key},
                         {"with", c.before},
                         {"group", c.after},
                         {"published_with", ids(c.key, c.before)},
                         {"published_group", ids(c.key, c.after)}});
  for (const runs::Comparison& c : runs::compare_groups(a, b)) {
    nlohmann::ordered_json v = {{"metric", c.metric}, {"axis", std::string(name_of(c.axis))},
                                {"at", c.at},         {"with", c.a},
                                {"group", c.b},       {"difference", c.difference.mean}};
    v["low"] = c.difference.interval ? nlohmann::ordered_json(c.difference.interval->first) : nullptr;
    v["high"] = c.difference.interval ? nlohmann::ordered_json(c.difference.interval->second) : nullptr;
    v["paired"] = c.difference.paired;
    v["words"] = runs::in_words(c, a.label, b.label);
    j["values"].push_back(std::move(v));
  }
  return j;
}

}  // namespace

int run_compare_command(Words words, Session& session) {
  Arguments arguments("compare", words);
  const bool json = arguments.flag("--json");
  const std::vector<runs::RunGroup> groups = runs::make_groups(arguments.positionals());
  const std::vector<zoo::Uses> uses = zoo::usage_by_key(zoo::published_models());
  for (const runs::RunGroup& group : groups)
    for (const runs::RunFolder& run : group.runs)
      for (const std::string& problem : run.problems)
        session.log.warn(str_cat("[runs] ", printable(run.path.string()), ": ", problem));
  if (json) {
    nlohmann::ordered_json j = {
        {"version", 1}, {"groups", nlohmann::json::array()}, {"comparisons", nlohmann::json::array()}};
    for (const runs::RunGroup& group : groups) {
      nlohmann::ordered_json paths = nlohmann::json::array();
      for (const runs::RunFolder& run : group.runs) paths.push_back(run.path.string());
      j["groups"].push_back({{"label", group.label}, {"runs", paths}});
    }
    for (size_t i = 1; i < groups.size(); ++i) j["comparisons"].push_back(to_json(groups[0], groups[i], uses));
    session.out << j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  for (const runs::RunGroup& group : groups) {
    session.out << group.label << ": " << comma_list(group.runs, [](const runs::RunFolder& run) {
      return str_cat(escaped(run.path.string()), " (seed ", run.config->run.seed, ", step ", run.step(), ")");
    }) << "\n";
  }
  for (size_t i = 1; i < groups.size(); ++i) print_comparison(groups[0], groups[i], uses, session.out);
  return 0;
}

}  // namespace ashlar::launch
