#include "parallel/zero/global_norm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "parallel/comm/host.h"

namespace ashlar::zero {

GlobalNorm::GlobalNorm(const nn::ParameterStore& store, mesh::Mesh& mesh) : store_(store), mesh_(mesh) {
  std::vector<std::string> lines;  // "name elements"
  for (const auto& ref : store.sharded_tensors())
    lines.push_back(str_cat(ref.tensor->name, " ", ref.tensor->global_shape.size()));
  std::map<std::string, int64_t> all_pieces;
  for (const std::string& line : comm::unite_texts(mesh.control(), std::move(lines))) {
    const size_t space = line.rfind(' ');
    all_pieces.emplace(line.substr(0, space), std::stoll(line.substr(space + 1)));
  }
  for (const auto& [name, elements] : all_pieces) {
    names_.push_back(name);
    elements_.push_back(elements);
  }
  for (const auto& ref : store.sharded_tensors())
    place_.push_back(std::lower_bound(names_.begin(), names_.end(), ref.tensor->name) - names_.begin());
}

optim::GradNorm GlobalNorm::of(const Ctx& ctx, std::span<const nn::ShardedRange> ranges,
                               const nn::FlatTensor& buffer) const {
  const std::vector<double> mine = optim::tensor_squares(ctx, store_, ranges, buffer);
  optim::GradNorm result;
  result.squares.assign(names_.size(), 0.0);
  for (size_t i = 0; i < mine.size(); ++i)
    if (store_.sharded_tensors()[i].tensor->main_replica) result.squares[place_[i]] = mine[i];
  const auto size = static_cast<int64_t>(result.squares.size());
  const MutView squares{result.squares.data(), DType::kFloat64, 1, size, size};
  for (comm::Communicator* axis : {&mesh_.tensor(), &mesh_.data(), &mesh_.pipeline()})
    axis->all_reduce({.in = squares, .out = squares, .op = comm::ReduceOp::kSum}).wait();
  if (const auto bad = optim::first_non_finite(result.squares)) result.first_non_finite = names_[*bad];
  result.norm = std::sqrt(std::accumulate(result.squares.begin(), result.squares.end(), 0.0));
  return result;
}

}  // namespace ashlar::zero
