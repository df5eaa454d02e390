#include "parallel/zero/global_norm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include "parallel/comm/host.h"

namespace ashlar::zero {

GlobalNorm::GlobalNorm(const nn::ParameterStore& store, comm::Communicator& all) : store_(store), all_(all) {
  std::string mine;  // lines "name elements"
  for (const auto& ref : store.pieces()) mine += str_cat(ref.piece->name, " ", ref.piece->global_shape.size(), "\n");
  std::map<std::string, int64_t> all_pieces;
  for (const std::string& text : comm::gather_texts(all, mine)) {
    std::istringstream lines(text);
    std::string name;
    for (int64_t elements = 0; lines >> name >> elements;) all_pieces.emplace(name, elements);
  }
  for (const auto& [name, elements] : all_pieces) {
    names_.push_back(name);
    elements_.push_back(elements);
  }
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
