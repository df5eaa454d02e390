#include "parallel/checkpoint/finite_check.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/convert.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::checkpoint {
namespace {

constexpr char kBetween = '\n';  // separates tensor name, position and message; names do not contain it

/// Describes a non-finite element. Sorting the texts for one tensor puts the elements in row-major order.
std::string place_text(const LoadedBlock& b, int64_t element) {
  const int64_t row = b.block.row + element / b.block.cols, col = b.block.col + element % b.block.cols;
  const auto at = [element](io::FileDType dtype, std::span<const std::byte> bytes) {
    const auto size = static_cast<size_t>(io::size_of(dtype));
    return bytes.subspan(static_cast<size_t>(element) * size, size);
  };
  const std::span<const std::byte> stored = at(b.stored_as, b.stored);
  std::string words;
  if (io::first_non_finite(b.stored_as, stored) == 0) {
    words = str_cat("is ", io::non_finite_word(b.stored_as, stored));
  } else {
    double value = 0;
    io::convert(b.stored_as, stored, io::FileDType::kF64, std::as_writable_bytes(std::span(&value, 1)));
    words = str_cat("is ", value, ", beyond the range of ", io::name_of(b.loaded_as),
                    " (choose a dtype with a larger range)");
  }
  return absl::StrFormat("%c%020d%c%020d%celement [%d, %d] %s", kBetween, row, kBetween, col, kBetween, row, col,
                         words);
}

}  // namespace

void FiniteCheck::look(const LoadedBlock& b) {
  const int64_t element = io::first_non_finite(b.loaded_as, b.loaded);
  if (element < 0) return;
  std::string text = place_text(b, element);
  const auto [at, fresh] = met_.emplace(b.tensor, text);
  if (!fresh) at->second = std::min(at->second, text);
}

void FiniteCheck::throw_if_met(comm::ControlPlane& ranks, const std::filesystem::path& checkpoint) const {
  if (comm::sum_of(ranks, static_cast<int64_t>(met_.size())) == 0) return;
  std::vector<std::string> lines;
  for (const auto& [tensor, place] : met_) lines.push_back(tensor + place);
  lines = comm::unite_texts(ranks, std::move(lines));
  std::set<std::string> tensors;
  for (const std::string& line : lines) tensors.insert(line.substr(0, line.find(kBetween)));
  const std::string& first = *tensors.begin();
  const std::string more =
      tensors.size() == 1 ? "" : str_cat("; ", tensors.size(), " tensors have such values, this is the first by name");
  throw comm::AllRanksError(
      ExitCode::kNonFinite, "checkpoint",
      str_cat(printable(checkpoint.string()), " has a non-finite value: ", printable(first), ", ",
              lines.front().substr(lines.front().rfind(kBetween) + 1), more,
              "; losses and tokens would be wrong: use another checkpoint, or download the weights again"));
}

}  // namespace ashlar::checkpoint
