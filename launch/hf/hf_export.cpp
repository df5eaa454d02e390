#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"
#include "launch/hf/convert.h"
#include "launch/hf/hf_model.h"

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
                        " are not exported; expected F64, F32, F16 or BF16");
  }
}

/// The dtype of a tensor in the file: the wanted one, or the one that all its pieces have.
io::FileDType dtype_of(const TensorMapping& mapping, const TensorSource& source, std::optional<io::FileDType> wanted) {
  std::optional<io::FileDType> common = wanted;
  for (const Piece& piece : mapping.pieces) {
    const io::TensorSpec* spec = source.find(piece.name);
    if (spec == nullptr) {
      throw input_error("hf", "the source has no tensor ", piece.name, ", which ", mapping.hf_name,
                        " needs; it is not the model of its configuration");
    }
    if (spec->shape != piece.shape) {
      throw input_error("hf", piece.name, " is [", absl::StrJoin(spec->shape, ","), "], expected [",
                        absl::StrJoin(piece.shape, ","), "]; the source is not the model of its configuration");
    }
    torch_name(spec->dtype);
    if (!common) common = spec->dtype;
    if (!wanted && *common != spec->dtype) {
      throw input_error("hf", mapping.hf_name, " is made of tensors of ", io::name_of(*common), " and ",
                        io::name_of(spec->dtype), "; choose one dtype for the export");
    }
  }
  return *common;
}

/// One tensor of the file, put together from ours.
std::vector<std::byte> assemble(const TensorMapping& mapping, io::FileDType dtype, TensorSource& source) {
  const int64_t element = io::size_of(dtype);
  int64_t elems = 1;
  for (const int64_t extent : mapping.hf_shape) elems *= extent;
  std::vector<std::byte> whole(static_cast<size_t>(elems * element));
  std::vector<std::byte> read, converted;
  for (const Piece& piece : mapping.pieces) {
    const io::TensorSpec& spec = *source.find(piece.name);
    read.resize(static_cast<size_t>(spec.num_bytes()));
    source.read(piece.name, read);
    converted.resize(static_cast<size_t>(spec.num_elems() * element));
    const int64_t lost = convert_elements(spec.dtype, read, dtype, converted);
    if (lost >= 0) {
      throw input_error("hf", piece.name, " element ", lost, " does not fit ", torch_name(dtype),
                        "; choose a dtype of more range, e.g. float32");
    }
    const int64_t row_bytes = (piece.shape.size() > 1 ? piece.shape[1] : 1) * element;
    for (const RowBlock& block : piece.blocks) {
      std::memcpy(whole.data() + block.hf_row * row_bytes, converted.data() + block.our_row * row_bytes,
                  static_cast<size_t>(block.rows * row_bytes));
    }
  }
  if (!mapping.transpose) return whole;
  std::vector<std::byte> stored(whole.size());
  transpose(whole, mapping.hf_shape[1], mapping.hf_shape[0], element, stored);
  return stored;
}

}  // namespace

Exported export_hf(const HfConfig& config, TensorSource& source, const fs::path& directory,
                   std::optional<io::FileDType> dtype) {
  std::vector<TensorMapping> mappings = tensor_mappings(config.family, config.model);
  std::vector<std::pair<io::FileDType, const TensorMapping*>> order;
  std::map<io::FileDType, int64_t> elements;
  for (const TensorMapping& mapping : mappings) order.emplace_back(dtype_of(mapping, source, dtype), &mapping);
  // As the Hugging Face writer orders them: wide types first, so that each is aligned, then by name.
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    const auto key = [](const auto& entry) {
      return std::pair(-io::size_of(entry.first), std::string_view(entry.second->hf_name));
    };
    return key(a) < key(b);
  });
  std::vector<io::TensorSpec> specs;
  for (const auto& [type, mapping] : order) {
    io::TensorSpec spec;
    spec.name = mapping->hf_name;
    spec.dtype = type;
    spec.shape = mapping->hf_shape;
    elements[type] += spec.num_elems();
    specs.push_back(std::move(spec));
  }
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  Exported report;
  report.dtype = torch_name(most->first);
  // Before the first byte: what cannot be said in config.json must not cost an hour of writing.
  const std::string json = write_hf_config(config, report.dtype);

  io::create_directories(directory);
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    if (fs::exists(directory / name)) {
      throw input_error("hf", io::printable((directory / name).string()), " exists; choose an empty directory");
    }
  }
  const fs::path weights = directory / "model.safetensors";
  io::SafetensorsWriter writer(weights, specs, {{"format", "pt"}});
  for (const auto& [type, mapping] : order) writer.write(mapping->hf_name, assemble(*mapping, type, source));
  writer.finish();
  try {
    io::write_file_atomically(directory / "config.json", json);
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove(weights, ignored);  // weights without a config would read as a damaged model
    throw;
  }
  report.tensors = static_cast<int64_t>(specs.size());
  report.bytes = static_cast<int64_t>(fs::file_size(weights));
  return report;
}

}  // namespace ashlar::hf
