#include "launch/layout_check/layouts.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::layout_check {

namespace {

constexpr const char* kAxes[] = {"tensor", "pipeline", "data", "expert"};

const std::string* value_of(const Layout& layout, const std::string& key) {
  const auto found = std::ranges::find(layout.keys, key, &std::pair<std::string, std::string>::first);
  return found == layout.keys.end() ? nullptr : &found->second;
}

int64_t replicas_of(const Layout& layout) { return std::max(layout.size("data"), layout.size("expert")); }

}  // namespace

std::string Layout::text() const {
  return keys.empty() ? "one rank" : absl::StrJoin(keys, ",", absl::PairFormatter("="));
}

std::vector<std::string> Layout::overrides() const {
  std::vector<std::string> all;
  for (const auto& [key, value] : keys)
    if (key != "data") all.push_back("mesh." + key + "=" + value);
  all.push_back("mesh.data=" + std::to_string(replicas_of(*this)));
  return all;
}

int64_t Layout::size(const std::string& key) const {
  const std::string* const value = value_of(*this, key);
  return value == nullptr ? 1 : std::stoll(*value);
}

int64_t Layout::ranks() const { return size("tensor") * size("pipeline") * replicas_of(*this); }

Layout parse_layout(const std::string& text) {
  Layout layout;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[0].empty() || parts[1].empty())
      throw input_error("check-layout", "--meshes ", printable(text), ": expected KEY=VALUE, got ", printable(word),
                        "; keys are those of [mesh], e.g. tensor=2,pipeline=2");
    if (value_of(layout, parts[0]) != nullptr)
      throw input_error("check-layout", "--meshes ", printable(text), ": ", printable(parts[0]),
                        " is given twice; give each key once");
    int32_t number = 0;
    const bool axis = std::ranges::find(kAxes, parts[0]) != std::end(kAxes);
    if (axis && !(absl::SimpleAtoi(parts[1].c_str(), &number) && number >= 1 && number <= 1 << 20))
      throw input_error("check-layout", "--meshes ", printable(text), ": ", parts[0],
                        ": expected a whole number from 1, got ", printable(parts[1]));
    layout.keys.emplace_back(parts[0], parts[1]);
  }
  return layout;
}

std::vector<Layout> layouts_of(int64_t ranks, bool experts) {
  std::vector<Layout> all;
  for (const mesh::MeshShape& shape : mesh::shapes_of(ranks, experts)) {
    const auto word = [&](AxisSet axes) { return std::to_string(shape.size(axes)); };
    Layout layout{{{"tensor", word(Axis::kTensor)}, {"pipeline", word(Axis::kPipeline)}, {"data", word(kSampleAxes)}}};
    if (shape[Axis::kExpert] > 1) layout.keys.emplace_back("expert", word(Axis::kExpert));
    all.push_back(layout);
    if (shape[Axis::kTensor] == 1) continue;
    layout.keys.emplace_back("sequence_parallel", "true");
    all.push_back(layout);
  }
  return all;
}

std::vector<Layout> single_axes_of(const Layout& layout) {
  std::vector<Layout> all;
  const auto axis = [&](const char* name, std::initializer_list<const char*> with) {
    if (layout.size(name) == 1) return;
    Layout single{{{name, *value_of(layout, name)}}};
    for (const char* key : with)
      if (const std::string* const value = value_of(layout, key)) single.keys.emplace_back(key, *value);
    all.push_back(single);
  };
  axis("tensor", {});
  const std::string* const sequence_parallel = value_of(layout, "sequence_parallel");
  if (sequence_parallel != nullptr && *sequence_parallel == "true") axis("tensor", {"sequence_parallel"});
  axis("pipeline", {"schedule", "virtual_stages"});
  axis("data", {});
  axis("expert", {});
  return all.size() == 1 ? std::vector<Layout>() : all;
}

}  // namespace ashlar::layout_check
