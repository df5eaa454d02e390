#include "parallel/checkpoint/load.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/io/convert.h"
#include "core/io/posix_file.h"
#include "parallel/checkpoint/finite_check.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::checkpoint {
namespace {

using Kind = ExpectedTensor::Kind;

constexpr int64_t kBufferElems = int64_t{1} << 18;

std::string shape_text(const std::vector<int64_t>& shape) { return str_cat("[", absl::StrJoin(shape, ", "), "]"); }

bool is_optional(std::string_view name, std::span<const std::string> optional) {
  return std::ranges::any_of(optional, [&](const std::string& end) { return name.ends_with(end); });
}

/// Returns the tensors and buffers of the model, ordered by name: the union of those of all ranks.
std::vector<ExpectedTensor> gather_model(comm::ControlPlane& ranks, const nn::ParameterStore& store) {
  std::vector<std::string> lines;
  const auto add = [&](Kind kind, const std::vector<nn::ParameterStore::ShardedTensorRef>& refs) {
    for (const auto& ref : refs) {
      const std::vector<int64_t> dims = ref.tensor->global_shape.dims();
      lines.push_back(
          str_cat(static_cast<int>(kind), " ", dims.size(), " ", absl::StrJoin(dims, " "), " ", ref.tensor->name));
    }
  };
  add(Kind::kTrained, store.sharded_tensors());
  add(Kind::kBuffer, store.buffer_tensors(nn::BufferUse::kModel));
  add(Kind::kTrainingState, store.buffer_tensors(nn::BufferUse::kTraining));
  std::map<std::string, ExpectedTensor> all;
  for (std::string& line : comm::unite_texts(ranks, std::move(lines))) {
    std::istringstream in(std::move(line));
    ExpectedTensor tensor;
    int kind = 0;
    size_t num_dims = 0;
    in >> kind >> num_dims;
    tensor.kind = static_cast<Kind>(kind);
    tensor.shape.resize(num_dims);
    for (int64_t& dim : tensor.shape) in >> dim;
    std::getline(in.ignore(), tensor.name);
    const auto at = all.emplace(tensor.name, tensor).first;
    ASHLAR_CHECK(at->second == tensor, "ranks differ in the shape of ", tensor.name);
  }
  std::vector<ExpectedTensor> model;
  for (const auto& [name, tensor] : all) model.push_back(tensor);
  return model;
}

void check_floating(const CheckpointReader& reader) {
  for (const TensorRecord& tensor : reader.tensors()) {
    if (io::is_convertible(tensor.dtype)) continue;
    throw input_error("checkpoint", "tensor ", printable(tensor.name), " of ", printable(reader.path().string()),
                      " has dtype ", io::name_of(tensor.dtype),
                      ", expected F64, F32, F16 or BF16; use another checkpoint");
  }
}

/// Fills a range of a flat buffer from the checkpoint's tensor NAME + suffix, where NAME is the name of the range's
/// tensor. Each call of read_block reads one or more whole rows, or a part of one row.
void fill_range(const Ctx& ctx, CheckpointReader& reader, const nn::ShardedRange& range, std::string_view suffix,
                const nn::FlatTensor& buffer, FiniteCheck& finite) {
  const TensorRecord& tensor = reader.at(range.ref->tensor->name + std::string(suffix));
  const Tensor flat = buffer.of(range);
  const bool same = io::to_dtype(tensor.dtype) == flat.dtype();
  std::vector<std::byte> stored;
  std::vector<std::byte> wanted;
  for (const nn::RangeBlock& block : nn::blocks_of(range)) {
    const int64_t cols_at_once = std::min(block.cols, kBufferElems);
    const int64_t rows_at_once = std::max<int64_t>(1, kBufferElems / std::max<int64_t>(1, block.cols));
    for (int64_t row = 0; row < block.rows; row += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, block.rows - row);
      for (int64_t col = 0; col < block.cols; col += cols_at_once) {
        const int64_t cols = std::min(cols_at_once, block.cols - col);
        stored.resize(static_cast<size_t>(rows * cols * io::size_of(tensor.dtype)));
        const Block wished{.row = block.row + row, .col = block.col + col, .rows = rows, .cols = cols};
        reader.read_block(tensor, wished, stored);
        if (!same) {
          wanted.resize(static_cast<size_t>(rows * cols * size_of(flat.dtype())));
          io::convert(tensor.dtype, stored, io::to_file_dtype(flat.dtype()), wanted);
        }
        finite.look({.tensor = tensor.name,
                     .block = wished,
                     .stored_as = tensor.dtype,
                     .loaded_as = io::to_file_dtype(flat.dtype()),
                     .stored = stored,
                     .loaded = same ? stored : wanted});
        const Tensor target = flat.flat_range(block.offset + row * block.cols + col, rows * cols);
        ctx.backend.write((same ? stored : wanted).data(), target.mut_view(), ctx.stream);
      }
    }
  }
}

/// True if this is the name of a state tensor of the update rule, and not of a buffer that only training needs.
bool is_state_of(const optim::Optimizer& optimizer, std::string_view name, std::span<const ExpectedTensor> model) {
  return std::ranges::any_of(optimizer.state(), [&](const optim::Optimizer::State& state) {
    const std::string suffix = str_cat(".", state.name.suffix);
    if (!name.ends_with(suffix)) return false;
    const std::string_view weight = name.substr(0, name.size() - suffix.size());
    const auto at = std::ranges::lower_bound(model, weight, {}, &ExpectedTensor::name);
    return at != model.end() && at->name == weight && at->kind == Kind::kTrained;
  });
}

/// Checks what load_training requires in addition to load_weights: the checkpoint contains the state of a run, all its
/// tensors have the accumulate dtype (the optimizer's state tensors may be bf16 if that is fp32), and its optimizer
/// state tensors are exactly those of the model's tensors, except for optional buffers.
void check_resumable(const LoadArgs& args, std::span<const ExpectedTensor> model, DType accumulate) {
  const CheckpointReader& reader = args.reader;
  const optim::Optimizer& optimizer = *args.optimizer;
  if (!reader.state() || !reader.has_optimizer_state()) {
    throw input_error("checkpoint", printable(reader.path().string()),
                      " holds weights but no optimizer state to resume from; start a new run with run.init_from");
  }
  const io::FileDType expected = io::to_file_dtype(accumulate);
  const std::string_view kind = optim::name_of(optimizer.options().kind);
  size_t num_states = 0;
  for (const TensorRecord& tensor : reader.tensors()) {
    num_states += tensor.group == Group::kOptimizer && !is_optional(tensor.name, args.optional_buffers) ? 1 : 0;
    if (tensor.dtype == expected) continue;
    const bool narrow_state = tensor.group == Group::kOptimizer && tensor.dtype == io::FileDType::kBF16 &&
                              accumulate == DType::kFloat32 && is_state_of(optimizer, tensor.name, model);
    if (narrow_state) continue;
    throw input_error("checkpoint", printable(reader.path().string()), " was written with ", io::name_of(tensor.dtype),
                      " master weights and optimizer state, but this run uses ", io::name_of(expected),
                      "; set run.dtype as in the run that wrote the checkpoint, or start a new run with run.init_from");
  }
  size_t expected_states = 0;
  const auto expect = [&](const ExpectedTensor& tensor, const std::string& name, std::string_view what) {
    ++expected_states;
    const TensorRecord* state = reader.find(name);
    if (state && state->group == Group::kOptimizer && state->shape == tensor.shape) return;
    throw damaged_error("checkpoint", printable(reader.path().string()), " has no optimizer state tensor ",
                        printable(name), " of shape ", shape_text(tensor.shape), what, "; use another checkpoint");
  };
  for (const ExpectedTensor& tensor : model) {
    if (tensor.kind == Kind::kTrainingState && !is_optional(tensor.name, args.optional_buffers))
      expect(tensor, tensor.name, "");
    for (const auto& [name, buffer] : optimizer.state())
      if (tensor.kind == Kind::kTrained)
        expect(tensor, str_cat(tensor.name, ".", name.suffix), str_cat(" (the ", name.description, " of ", kind, ")"));
  }
  if (num_states != expected_states) {
    throw damaged_error(
        "checkpoint", printable(reader.path().string()), " has ", num_states, " optimizer state tensors, expected ",
        expected_states, ": ", kind, " keeps ", optimizer.state().size(), " for each of the model's ",
        std::ranges::count(model, Kind::kTrained, &ExpectedTensor::kind), " tensors; use another checkpoint");
  }
}

void fill_buffers(const Ctx& ctx, const LoadArgs& args, nn::BufferUse use, FiniteCheck& finite) {
  const nn::FlatTensor buffers = {.data = args.store.buffer_values()};
  for (const auto& range : nn::buffer_ranges(args.store, use)) {
    const std::string& name = range.ref->tensor->name;
    if (args.reader.find(name) == nullptr && is_optional(name, args.optional_buffers))
      ctx.backend.fill({.dst = buffers.of(range).mut_view(), .value = 0}, ctx.stream);
    else
      fill_range(ctx, args.reader, range, "", buffers, finite);
  }
}

void fill_weights(const Ctx& ctx, const LoadArgs& args, FiniteCheck& finite) {
  if (args.optimizer != nullptr) {
    for (const auto& range : args.optimizer->ranges())
      fill_range(ctx, args.reader, range, "", args.optimizer->master(), finite);
    args.optimizer->copy_master_to_params(ctx);
  } else {
    for (const auto& range : nn::sharded_ranges(args.store, nn::FlatRanges::whole(args.store)))
      fill_range(ctx, args.reader, range, "", {.data = args.store.values()}, finite);
  }
  fill_buffers(ctx, args, nn::BufferUse::kModel, finite);
}

}  // namespace

void check_same_model(const CheckpointReader& reader, std::span<const ExpectedTensor> model,
                      std::span<const std::string> optional) {
  std::map<std::string_view, const ExpectedTensor*> expected;
  for (const ExpectedTensor& tensor : model)
    if (tensor.kind != Kind::kTrainingState) expected.emplace(tensor.name, &tensor);
  std::vector<std::string> missing;
  std::vector<std::string> extra;
  std::vector<std::string> misshaped;
  for (const ExpectedTensor& tensor : model) {
    if (tensor.kind == Kind::kTrainingState) continue;
    const TensorRecord* got = reader.find(tensor.name);
    if (got == nullptr && is_optional(tensor.name, optional)) continue;
    if (got == nullptr || got->group != Group::kWeights) {
      missing.push_back(str_cat(printable(tensor.name), " ", shape_text(tensor.shape)));
    } else if (got->shape != tensor.shape) {
      misshaped.push_back(
          str_cat(printable(tensor.name), " is ", shape_text(got->shape), " instead of ", shape_text(tensor.shape)));
    }
  }
  for (const TensorRecord& tensor : reader.tensors()) {
    if (is_optional(tensor.name, optional)) continue;
    if (tensor.group == Group::kWeights && !expected.contains(tensor.name)) {
      extra.push_back(str_cat(printable(tensor.name), " ", shape_text(tensor.shape)));
    }
  }
  if (missing.empty() && extra.empty() && misshaped.empty()) return;
  std::vector<std::string> parts;
  if (!misshaped.empty()) parts.push_back(str_cat("other shape: ", absl::StrJoin(misshaped, ", ")));
  if (!missing.empty()) parts.push_back(str_cat("missing in the checkpoint: ", absl::StrJoin(missing, ", ")));
  if (!extra.empty()) parts.push_back(str_cat("not in this model: ", absl::StrJoin(extra, ", ")));
  throw input_error("checkpoint", printable(reader.path().string()),
                    " is a checkpoint of another model: ", absl::StrJoin(parts, "; "),
                    "; use the configuration that the checkpoint was trained with");
}

CheckpointReader open_checkpoint(const std::filesystem::path& path, comm::ControlPlane& ranks) {
  std::string text;
  comm::try_on_first_rank(ranks, [&] { text = read_manifest_text(path); });
  text = comm::broadcast_text(ranks, text, 0);
  std::optional<CheckpointReader> reader;
  comm::try_on_all_ranks(ranks, [&] {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      throw input_error("checkpoint", "this rank cannot see ", printable(path.string()),
                        ", which rank 0 has read; checkpoints must be on a file system that all nodes share");
    }
    reader.emplace(path, text);
  });
  return std::move(*reader);
}

void load_weights(const Ctx& ctx, const LoadArgs& args) {
  const std::vector<ExpectedTensor> model = gather_model(args.ranks, args.store);
  comm::try_on_all_ranks(args.ranks, [&] {
    check_same_model(args.reader, model, args.optional_buffers);
    check_floating(args.reader);
  });
  FiniteCheck finite;
  comm::try_on_all_ranks(args.ranks, [&] { fill_weights(ctx, args, finite); });
  finite.throw_if_met(args.ranks, args.reader.path());
}

TrainingState load_training(const Ctx& ctx, const LoadArgs& args) {
  ASHLAR_CHECK(args.optimizer != nullptr);
  const std::vector<ExpectedTensor> model = gather_model(args.ranks, args.store);
  comm::try_on_all_ranks(args.ranks, [&] {
    check_same_model(args.reader, model, args.optional_buffers);
    check_resumable(args, model, ctx.accumulate());
  });
  FiniteCheck finite;
  comm::try_on_all_ranks(args.ranks, [&] {
    fill_weights(ctx, args, finite);
    // Loads in file order: adjacent tensors may share a checksum chunk, which is then read only once.
    for (const auto& [name, tensor] : args.optimizer->state()) {
      const std::string suffix = str_cat(".", name.suffix);
      for (const auto& range : args.optimizer->ranges()) fill_range(ctx, args.reader, range, suffix, tensor, finite);
    }
    fill_buffers(ctx, args, nn::BufferUse::kTraining, finite);
  });
  finite.throw_if_met(args.ranks, args.reader.path());
  return *args.reader.state();
}

}  // namespace ashlar::checkpoint
