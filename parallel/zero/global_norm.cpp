#include "parallel/zero/global_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "parallel/comm/host.h"

namespace ashlar::zero {

GlobalNorm::GlobalNorm(const nn::ParameterStore& store, comm::Communicator& all) : store_(store), all_(all) {
  std::string mine;
  for (const auto& ref : store.pieces()) mine += ref.piece->name + "\n";
  for (const std::string& text : comm::gather_texts(all, mine)) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      names_.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  for (const auto& ref : store.pieces())
    place_.push_back(std::lower_bound(names_.begin(), names_.end(), ref.piece->name) - names_.begin());
}

optim::GradNorm GlobalNorm::of(const Ctx& ctx, std::span<const nn::PieceRange> ranges,
                               const nn::SlabTensor& slab) const {
  const std::vector<double> mine = optim::piece_squares(ctx, store_, ranges, slab);
  optim::GradNorm result;
  result.squares.assign(names_.size(), 0.0);
  for (size_t i = 0; i < mine.size(); ++i)
    if (store_.pieces()[i].piece->counted) result.squares[place_[i]] = mine[i];
  comm::sum_all(all_, result.squares);
  if (const auto bad = optim::first_non_finite(result.squares)) result.first_non_finite = names_[*bad];
  result.norm = std::sqrt(std::accumulate(result.squares.begin(), result.squares.end(), 0.0));
  return result;
}

}  // namespace ashlar::zero
