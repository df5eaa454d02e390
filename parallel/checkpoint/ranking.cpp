#include "parallel/checkpoint/ranking.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/atomic_file.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::checkpoint {
namespace {

constexpr const char* kList = "checkpoints";

std::filesystem::path file_of(const std::filesystem::path& run_dir) { return run_dir / Ranking::kFile; }

bool has_checkpoint(const std::filesystem::path& run_dir, int64_t step) {
  std::error_code error;
  return std::filesystem::exists(checkpoints_dir(run_dir) / directory_name(step), error);
}

/// Returns the entries of best.json in its order; empty if there is no file.
std::vector<RankedStep> read(const std::filesystem::path& run_dir) {
  const std::filesystem::path file = file_of(run_dir);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  try {
    std::vector<RankedStep> all;
    const auto json = io::try_parse_json(io::read_text_file(file, kMostBytes), io::JsonKeys::kUnique).value();
    for (const auto& entry : json.at(kList)) {
      RankedStep ranked{.step = entry.at("step").get<int64_t>(), .val_loss = entry.at("val_loss").get<double>()};
      if (entry.contains("val_bpb")) ranked.val_bpb = entry.at("val_bpb").get<double>();
      all.push_back(ranked);
    }
    return all;
  } catch (const std::exception&) {
    throw damaged_error("checkpoint", "expected in ", printable(file.string()),
                        " the validation losses of the checkpoints, got another content; restore it, or remove it to "
                        "forget which checkpoints are the best");
  }
}

void write(const std::filesystem::path& run_dir, const std::vector<RankedStep>& ranked) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RankedStep& r : ranked) {
    nlohmann::ordered_json entry = {{"step", r.step}, {"val_loss", r.val_loss}};
    if (r.val_bpb) entry["val_bpb"] = *r.val_bpb;
    list.push_back(std::move(entry));
  }
  io::write_file_atomically(file_of(run_dir), nlohmann::ordered_json{{kList, list}}.dump() + "\n");
}

}  // namespace

void Ranking::load(int64_t step) {
  ranked_ = read(run_dir_);
  std::erase_if(ranked_, [&](const RankedStep& r) { return r.step > step; });
}

void Ranking::add(const RankedStep& added) {
  // The checkpoint of the step before may still be written, so it stays in the list.
  int64_t before = -1;
  for (const RankedStep& r : ranked_) before = std::max(before, r.step);
  std::erase_if(ranked_, [&](const RankedStep& r) {
    return r.step == added.step || (r.step != before && !has_checkpoint(run_dir_, r.step));
  });
  ranked_.push_back(added);
  std::sort(ranked_.begin(), ranked_.end(), [](const RankedStep& a, const RankedStep& b) {
    return std::tie(a.val_loss, a.step) < std::tie(b.val_loss, b.step);
  });
  write(run_dir_, ranked_);
}

std::vector<RankedStep> Ranking::saved() const {
  std::vector<RankedStep> complete;
  for (const RankedStep& r : ranked_)
    if (has_checkpoint(run_dir_, r.step)) complete.push_back(r);
  return complete;
}

std::filesystem::path resolve_best(const std::filesystem::path& path) {
  constexpr std::string_view kBest = "@best";
  const std::string text = path.string();
  std::error_code error;
  if (!text.ends_with(kBest) || std::filesystem::exists(path, error)) return path;
  const std::filesystem::path run_dir = text.substr(0, text.size() - kBest.size());
  if (!std::filesystem::is_directory(run_dir, error))
    throw input_error("checkpoint", printable(text), ": expected a run directory before @best, got ",
                      printable(run_dir.string()), ", which is no directory");
  for (const RankedStep& r : read(run_dir))
    if (has_checkpoint(run_dir, r.step)) return checkpoints_dir(run_dir) / directory_name(r.step);
  throw input_error("checkpoint", "expected in ", printable(run_dir.string()), " a checkpoint with a validation loss (",
                    std::string(Ranking::kFile),
                    "), got none; make train.eval_every and checkpoint.every meet at some step, or give the path of a "
                    "checkpoint");
}

}  // namespace ashlar::checkpoint
