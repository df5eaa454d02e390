#include "launch/training/parameter_table.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "parallel/comm/self_comm.h"
#include "parallel/model/stage.h"

namespace ashlar::training {

namespace {

/// Replaces numbers of layers and experts by *: "blocks.3.moe.experts.5.up.weight" becomes
/// "blocks.*.moe.experts.*.up.weight".
std::string kind_of(std::string name) {
  for (const std::string_view before : {"blocks.", ".experts."}) {
    const size_t at = name.find(before);
    if (at == std::string::npos) continue;
    const size_t begin = at + before.size(), end = name.find('.', begin);
    if (name.find_first_not_of("0123456789", begin) == end) name.replace(begin, end - begin, "*");
  }
  return name;
}

std::string init_text(const nn::InitRule& init) {
  if (init.kind == nn::InitRule::Kind::kConstant) return absl::StrFormat("%g", init.value);
  return absl::StrFormat("std %.4g: %s", init.value, init.rule);
}

struct Group {
  std::string kind, shape, init, last_init;
  nn::Role role;
  int64_t count = 0, elements = 0;
};

}  // namespace

std::string parameter_table(const model::ModelConfig& config, const optim::OptimizerOptions& options) {
  comm::SelfComm alone("tensor");
  nn::ParameterStore store;  // never allocated
  const model::Stage whole(store, config, model::StageRange::whole(config), {.group = &alone});
  std::vector<Group> groups;
  int64_t total = 0;
  for (const auto& parameter : store.parameters()) {
    for (const nn::ShardedTensor& tensor : parameter->tensors) {
      const std::string kind = kind_of(tensor.name);
      Group* group = nullptr;
      for (Group& g : groups) group = g.kind == kind ? &g : group;
      if (group == nullptr) {
        groups.push_back(
            {.kind = kind, .shape = tensor.global_shape.str(), .init = init_text(tensor.init), .role = tensor.role});
        group = &groups.back();
      }
      ++group->count;
      group->last_init = init_text(tensor.init);
      group->elements += tensor.size();
      total += tensor.size();
    }
  }
  std::string text =
      absl::StrFormat("%-28s %5s  %-16s %13s  %6s  %s\n", "parameters", "count", "shape", "elements", "decay", "init");
  for (const Group& g : groups) {
    text += absl::StrFormat("%-28s %5d  %-16s %13d  %6g  %s\n", g.kind, g.count, g.shape, g.elements,
                            optim::decay_of(g.role, options),
                            g.init == g.last_init ? g.init : str_cat(g.init, " to ", g.last_init));
  }
  return text + absl::StrFormat("%-28s %5s  %-16s %13d", "total", "", "", total);
}

}  // namespace ashlar::training
