#include "launch/zoo/recipes.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::zoo {
namespace {

std::string human_count(int64_t n) {
  const auto x = static_cast<double>(n);
  return n >= 1'000'000'000'000 ? absl::StrFormat("%.3gT", x / 1e12)
         : n >= 1'000'000'000   ? absl::StrFormat("%.3gB", x / 1e9)
                                : absl::StrFormat("%.3gM", x / 1e6);
}

/// Returns the number with commas, e.g. 6,738,415,616.
std::string with_commas(int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

int64_t count_of(std::string_view text, std::string_view word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

std::string schedule_of(const config::RunConfig& c) {
  return str_cat(name_of(c.schedule.kind), " to ", c.schedule.min_ratio, ", warm-up ", c.schedule.warmup_steps);
}

}  // namespace

std::vector<Recipe> recipes() {
  std::vector<Recipe> all;
  for (const PublishedText& text : recipe_texts()) {
    Recipe r;
    r.id = text.id;
    r.title = title_of(text);
    const std::string_view line = text.toml.substr(0, text.toml.find('\n'));
    const size_t source = line.find(kSource) + kSource.size();
    r.source = line.substr(source, line.size() - 1 - source);
    r.config = config_of(text, "configs/start", config::Purpose::kTrain);
    r.parameters = model::count_parameters(r.config.model).total();
    r.tokens = r.config.train.steps * r.config.train.global_batch * r.config.train.sequence_length;
    r.guessed_keys = count_of(text.toml, "# not published");
    all.push_back(std::move(r));
  }
  const auto family = [](const Recipe& r) { return r.id.substr(0, r.id.find('-')); };
  std::ranges::stable_sort(all, [&](const Recipe& a, const Recipe& b) {
    return std::pair(family(a), a.parameters) < std::pair(family(b), b.parameters);
  });
  return all;
}

const PublishedText& recipe_text(std::string_view id) { return text_of(recipe_texts(), id, "zoo start"); }

std::string recipes_markdown() {
  std::string text =
      R"(# Trainings to start from

Published models with their published training. A value that is not published is marked `# not published` in its file;
the last column counts these. The first line of a file names its source. Set `data.path` to a dataset that
`ashlar data build` made, and the mesh to your machines:
`ashlar launch -np 8 train configs/start/pythia-70m.toml data.path=DIR`. `ashlar zoo start` prints this table,
`ashlar zoo start NAME` one file.

To add a training: a file whose first line is `# NAME. Source: WHERE.`, its row of `tests/config/recipe_counts.txt`, and
`ashlar zoo start --markdown > configs/start/README.md`.

| file | model | parameters | tokens | batch x sequence | peak rate | schedule | guessed |
|---|---|---|---|---|---|---|---|
)";
  for (const Recipe& r : recipes())
    text += str_cat("| `", r.id, ".toml` | ", r.title, " | ", with_commas(r.parameters), " | ", human_count(r.tokens),
                    " | ", r.config.train.global_batch, " x ", r.config.train.sequence_length, " | ",
                    r.config.optimizer.lr, " | ", schedule_of(r.config), " | ", r.guessed_keys, " |\n");
  return text;
}

}  // namespace ashlar::zoo
