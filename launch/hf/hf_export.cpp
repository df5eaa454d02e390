#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/convert.h"
#include "core/io/posix_file.h"
#include "launch/hf/convert.h"
#include "launch/hf/export_folder.h"
#include "launch/hf/hf_model.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::hf {
namespace {

namespace fs = std::filesystem;

std::string torch_name(io::FileDType dtype) {
  switch (dtype) {
    case io::FileDType::kF64: return "float64";
    case io::FileDType::kF32: return "float32";
    case io::FileDType::kF16: return "float16";
    case io::FileDType::kBF16: return "bfloat16";
    default:
      throw input_error("hf", "weights of dtype ", io::name_of(dtype),
                        " cannot be exported: expected F64, F32, F16 or BF16; export another checkpoint");
  }
}

/// Returns the dtype of a tensor in the file: `wanted` if given, else the common dtype of its parts.
io::FileDType dtype_of(const TensorMapping& mapping, const TensorSource& source, std::optional<io::FileDType> wanted) {
  std::optional<io::FileDType> common = wanted;
  // A tensor without parts, i.e. a constant, has the dtype of the embedding.
  if (mapping.parts.empty() && !wanted) common = source.find("embed.tokens.weight")->dtype;
  for (const TensorPart& part : mapping.parts) {
    const io::TensorSpec* spec = source.find(part.name);
    if (spec == nullptr) {
      throw input_error("hf", "the checkpoint has no tensor ", part.name, ", which ", mapping.hf_name,
                        " needs: weights and configuration do not match; export another checkpoint");
    }
    if (spec->shape != part.shape) {
      throw input_error("hf", part.name, " is [", absl::StrJoin(spec->shape, ","), "], expected [",
                        absl::StrJoin(part.shape, ","),
                        "]: weights and configuration do not match; export another checkpoint");
    }
    torch_name(spec->dtype);
    if (!common) common = spec->dtype;
    if (!wanted && *common != spec->dtype) {
      throw input_error("hf", mapping.hf_name, " is made of tensors of ", io::name_of(*common), " and ",
                        io::name_of(spec->dtype), "; choose one dtype for the export with --dtype");
    }
  }
  return *common;
}

/// The plan of an export: all that it writes, except the values of the weights. Equal on all ranks.
struct Plan {
  std::vector<TensorMapping> mappings;
  std::vector<io::TensorSpec> tensors;      ///< for each mapping: name, dtype and shape of its tensor in the files
  std::vector<std::vector<size_t>> shards;  ///< for each file: indices of the mappings of its tensors
  std::vector<int64_t> shard_bytes;
  std::string dtype, config_json;

  std::string file(size_t shard) const { return shard_file(shard, shards.size()); }
};

Plan plan_export(const ExportArgs& args) {
  Plan plan;
  plan.mappings = tensor_mappings(*args.config.family, args.config.model);
  std::map<io::FileDType, int64_t> elements;
  std::vector<int64_t> bytes;
  for (const TensorMapping& mapping : plan.mappings) {
    const bool widened = mapping.wide && args.dtype && io::size_of(*args.dtype) < io::size_of(io::FileDType::kF32);
    const std::optional<io::FileDType> wanted = widened ? io::FileDType::kF32 : args.dtype;
    io::TensorSpec spec{
        .name = mapping.hf_name, .dtype = dtype_of(mapping, args.source, wanted), .shape = mapping.hf_shape};
    elements[spec.dtype] += spec.num_elems();
    bytes.push_back(spec.num_bytes());
    plan.tensors.push_back(std::move(spec));
  }
  plan.shards = split_into_shards(bytes, args.max_shard_bytes);
  for (std::vector<size_t>& shard : plan.shards) {
    // Sorts as the Hugging Face writer does: wide dtypes first, so that each tensor is aligned, then by name.
    std::ranges::sort(shard, [&](size_t a, size_t b) {
      const auto key = [&](size_t i) {
        return std::pair(-io::size_of(plan.tensors[i].dtype), std::string_view(plan.tensors[i].name));
      };
      return key(a) < key(b);
    });
    plan.shard_bytes.push_back(0);
    for (const size_t i : shard) plan.shard_bytes.back() += bytes[i];
  }
  const auto most =
      std::ranges::max_element(elements, [](const auto& a, const auto& b) { return a.second < b.second; });
  plan.dtype = torch_name(most->first);
  // config.json is made before the weights are written, so that its errors are thrown at once.
  plan.config_json = write_hf_config(args.config, plan.dtype);
  return plan;
}

/// Assembles rows of one Hugging Face tensor, taken as [out, in], from rows of Ashlar's tensors.
class RowAssembler {
 public:
  RowAssembler(const TensorMapping& mapping, io::FileDType dtype, TensorSource& source)
      : mapping_(mapping), dtype_(dtype), source_(source), layout_(row_layout(mapping)) {}

  const RowLayout& layout() const { return layout_; }
  int64_t row_bytes() const { return layout_.row_elems * io::size_of(dtype_); }

  /// Fills `out` with rows, beginning at `row`.
  void read(int64_t row, std::span<std::byte> out) {
    const int64_t end = row + static_cast<int64_t>(out.size()) / row_bytes();
    for (const TensorPart& part : mapping_.parts) {
      // Consecutive source rows are read with one call, even if they are not adjacent in the exported tensor, e.g. the
      // query heads in a fused tensor of q, k and v.
      std::vector<RowBlock> run;
      for (const RowBlock& block : part.blocks) {
        // The block's rows [first, last) are in the window.
        const int64_t first = block_rows_before(block, row), last = block_rows_before(block, end);
        if (first >= last) continue;
        const RowBlock rows{.hf_row = block.hf_row + first * block.hf_step,
                            .our_row = block.our_row + first,
                            .rows = last - first,
                            .hf_step = block.hf_step};
        if (!run.empty() && run.back().our_row + run.back().rows != rows.our_row)
          take(part, std::exchange(run, {}), row, out);
        run.push_back(rows);
      }
      if (!run.empty()) take(part, run, row, out);
    }
  }

 private:
  /// Returns how many rows of the block precede row `row` of the exported tensor.
  static int64_t block_rows_before(const RowBlock& block, int64_t row) {
    return std::clamp((row - block.hf_row + block.hf_step - 1) / block.hf_step, int64_t{0}, block.rows);
  }

  void take(const TensorPart& part, const std::vector<RowBlock>& run, int64_t window_row, std::span<std::byte> out) {
    const io::TensorSpec& spec = *source_.find(part.name);
    const int64_t our_row = run.front().our_row, rows = run.back().our_row + run.back().rows - our_row;
    read_.resize(static_cast<size_t>(rows * layout_.row_elems * io::size_of(spec.dtype)));
    source_.read_rows(part.name, our_row, read_);
    check_finite(spec, our_row);
    converted_.resize(static_cast<size_t>(rows * row_bytes()));
    const int64_t lost = convert_elements(spec.dtype, read_, dtype_, converted_);
    if (lost >= 0) {
      throw input_error("hf", part.name, " element ", our_row * layout_.row_elems + lost, " is out of range for ",
                        torch_name(dtype_), "; choose a dtype with a larger range, e.g. --dtype fp32");
    }
    for (const RowBlock& block : run) {
      // Adjacent rows are copied at once.
      const int64_t at_once = block.hf_step == 1 ? block.rows : 1;
      for (int64_t i = 0; i < block.rows; i += at_once) {
        std::memcpy(out.data() + (block.hf_row + i * block.hf_step - window_row) * row_bytes(),
                    converted_.data() + (block.our_row + i - our_row) * row_bytes(),
                    static_cast<size_t>(at_once * row_bytes()));
      }
    }
  }

  void check_finite(const io::TensorSpec& spec, int64_t our_row) const {
    const int64_t element = io::first_non_finite(spec.dtype, read_);
    if (element < 0) return;
    const auto size = static_cast<size_t>(io::size_of(spec.dtype));
    throw Error(
        ExitCode::kNonFinite, "hf",
        str_cat(spec.name, " element ", our_row * layout_.row_elems + element, " is ",
                io::non_finite_word(spec.dtype, std::span(read_).subspan(static_cast<size_t>(element) * size, size)),
                ", the first such value in the order of the files; the model would compute only NaN: export another "
                "checkpoint"));
  }

  const TensorMapping& mapping_;
  io::FileDType dtype_;
  TensorSource& source_;
  RowLayout layout_;
  std::vector<std::byte> read_, converted_;
};

}  // namespace

void read_exported_tensor(const ReadTensorArgs& args, const std::function<void(std::span<const std::byte>)>& put) {
  const TensorMapping& mapping = args.mapping;
  const io::FileDType dtype = args.dtype;
  if (mapping.parts.empty()) {
    std::vector<double> values(1, mapping.constant);
    for (const int64_t extent : mapping.hf_shape) values.resize(values.size() * extent, mapping.constant);
    std::vector<std::byte> stored(values.size() * static_cast<size_t>(io::size_of(dtype)));
    convert_elements(io::FileDType::kF64, std::as_bytes(std::span(values)), dtype, stored);
    return put(stored);
  }
  RowAssembler assembler(mapping, dtype, args.source);
  const RowLayout& layout = assembler.layout();
  const int64_t rows_at_once = std::max<int64_t>(1, args.window_bytes / assembler.row_bytes());
  std::vector<std::byte> window, flipped, stored;
  // Calls take(row, count) for the windows of rows [begin, end), with the rows in `window`.
  const auto in_windows = [&](int64_t begin, int64_t end, const auto& take) {
    for (int64_t row = begin; row < end; row += rows_at_once) {
      const int64_t count = std::min(rows_at_once, end - row);
      window.resize(static_cast<size_t>(count * assembler.row_bytes()));
      assembler.read(row, window);
      take(row, count);
    }
  };
  if (!mapping.transpose) return in_windows(0, layout.all_rows(), [&](int64_t, int64_t) { put(window); });
  const int64_t element = io::size_of(dtype);
  stored.resize(static_cast<size_t>(layout.rows * assembler.row_bytes()));
  for (int64_t matrix = 0; matrix < layout.matrices; ++matrix) {
    const int64_t begin = matrix * layout.rows;
    in_windows(begin, begin + layout.rows, [&](int64_t row, int64_t count) {
      // Rows of the source are columns of the exported matrix: this window has `count` elements of each exported row.
      flipped.resize(window.size());
      transpose(window, count, layout.row_elems, element, flipped);
      for (int64_t i = 0; i < layout.row_elems; ++i) {
        std::memcpy(stored.data() + (i * layout.rows + row - begin) * element, flipped.data() + i * count * element,
                    static_cast<size_t>(count * element));
      }
    });
    put(stored);
  }
}

namespace {

void write_shard(const Plan& plan, size_t shard, const ExportArgs& args) {
  std::vector<io::TensorSpec> specs;
  for (const size_t i : plan.shards[shard]) specs.push_back(plan.tensors[i]);
  io::SafetensorsWriter writer(args.directory / plan.file(shard), specs, {{"format", "pt"}});
  for (const size_t i : plan.shards[shard]) {
    read_exported_tensor({.mapping = plan.mappings[i],
                          .dtype = plan.tensors[i].dtype,
                          .source = args.source,
                          .window_bytes = args.window_bytes},
                         [&](std::span<const std::byte> bytes) { writer.write(plan.mappings[i].hf_name, bytes); });
  }
  writer.finish();
}

/// Writes all files of the export. Called by all ranks.
void write_all(const Plan& plan, const ExportArgs& args, comm::ControlPlane& ranks) {
  comm::try_on_all_ranks(ranks, [&] {
    std::error_code error;
    if (!fs::exists(args.directory / ExportFolder::kJournalFile, error)) {
      throw input_error("export", printable(args.directory.string()),
                        " is not the directory that rank 0 sees; give a directory that all machines share");
    }
  });
  const std::vector<std::vector<size_t>> shares = share_shards(plan.shard_bytes, ranks.size());
  const std::vector<size_t>& mine = shares[static_cast<size_t>(ranks.rank())];
  size_t rounds = 0;
  for (const std::vector<size_t>& share : shares) rounds = std::max(rounds, share.size());
  // Each rank writes one shard per round, so that all ranks stop soon after an error on one rank, e.g. a full disk.
  for (size_t round = 0; round < rounds; ++round) {
    comm::try_on_all_ranks(ranks, [&] {
      if (round < mine.size()) write_shard(plan, mine[round], args);
    });
  }
  comm::try_on_first_rank(ranks, [&] {
    if (plan.shards.size() > 1)
      io::write_file_atomically(args.directory / kIndexFile, index_text(plan.tensors, plan.shards));
    for (const auto& [name, bytes] : args.beside) io::write_file_atomically(args.directory / name, bytes);
    io::write_file_atomically(args.directory / kConfigFile, plan.config_json);
  });
}

}  // namespace

Exported export_hf(const ExportArgs& args, comm::ControlPlane& ranks) {
  Plan plan;
  comm::try_on_all_ranks(ranks, [&] { plan = plan_export(args); });
  std::unique_ptr<ExportFolder> folder;  // null on all ranks but 0
  comm::try_on_first_rank(ranks, [&] {
    ExportFolder::Names names{.shards = plan.shards.size(), .beside = {}};
    for (const auto& [name, bytes] : args.beside) names.beside.insert(name);
    folder = std::make_unique<ExportFolder>(args.directory, std::move(names), args.log);
  });
  try {
    write_all(plan, args, ranks);
  } catch (const comm::AllRanksError&) {
    if (folder) folder->remove();  // all ranks have stopped
    throw;
  } catch (...) {
    if (folder && ranks.size() == 1) folder->remove();
    throw;
  }
  if (folder) folder->finish();
  Exported report{.tensors = static_cast<int64_t>(plan.tensors.size()),
                  .bytes = 0,
                  .files = plan.shards.size(),
                  .dtype = plan.dtype};
  for (const int64_t bytes : plan.shard_bytes) report.bytes += bytes;
  return report;
}

}  // namespace ashlar::hf
