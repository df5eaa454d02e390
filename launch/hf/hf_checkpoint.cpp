#include "launch/hf/hf_checkpoint.h"

#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "launch/config/run_config.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/checkpoint/save.h"

namespace ashlar::hf {
namespace {

constexpr const char* kClass = "hf.class";
constexpr const char* kMaxPositions = "hf.max_positions";
constexpr const char* kBos = "hf.bos_token_id";
constexpr const char* kEos = "hf.eos_token_ids";
constexpr const char* kPad = "hf.pad_token_id";

io::Metadata to_metadata(const HfConfig& config) {
  io::Metadata metadata;
  metadata[kClass] = std::string(class_name(config.family));
  metadata[kMaxPositions] = std::to_string(config.extras.max_positions);
  if (config.extras.bos_token_id) metadata[kBos] = std::to_string(*config.extras.bos_token_id);
  if (!config.extras.eos_token_ids.empty()) metadata[kEos] = absl::StrJoin(config.extras.eos_token_ids, ",");
  if (config.extras.pad_token_id) metadata[kPad] = std::to_string(*config.extras.pad_token_id);
  return metadata;
}

/// The integers of a comma-separated list; a text that is none is damage of the manifest, which its checksum excludes,
/// or another program's.
std::vector<int64_t> integers_of(const io::Metadata& metadata, const char* key) {
  std::vector<int64_t> values;
  const auto found = metadata.find(key);
  if (found == metadata.end()) return values;
  std::string_view text = found->second;
  while (true) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const size_t used = static_cast<size_t>(end - text.data());
    if (error != std::errc() || (used < text.size() && text[used] != ',')) {
      throw damaged_error("hf", "checkpoint metadata ", key, " = ", found->second, ": expected integers");
    }
    values.push_back(value);
    if (used == text.size()) return values;
    text.remove_prefix(used + 1);
  }
}

HfExtras extras_of(const io::Metadata& metadata) {
  const auto one = [&](const char* key) -> std::optional<int64_t> {
    const std::vector<int64_t> values = integers_of(metadata, key);
    return values.empty() ? std::nullopt : std::optional(values[0]);
  };
  HfExtras extras;
  extras.max_positions = one(kMaxPositions).value_or(0);
  extras.bos_token_id = one(kBos);
  extras.eos_token_ids = integers_of(metadata, kEos);
  extras.pad_token_id = one(kPad);
  return extras;
}

class CheckpointSource : public TensorSource {
 public:
  explicit CheckpointSource(checkpoint::CheckpointReader& reader) : reader_(reader) {}
  const io::TensorSpec* find(std::string_view name) const override {
    const checkpoint::TensorRecord* record = reader_.find(name);
    return record != nullptr && record->group == checkpoint::Group::kWeights ? record : nullptr;
  }
  void read(std::string_view name, std::span<std::byte> out) override { reader_.read(name, out); }

 private:
  checkpoint::CheckpointReader& reader_;
};

/// Weights of the checkpoint that the class would leave behind: nothing is dropped in silence.
void check_all_used(const checkpoint::CheckpointReader& reader, const HfConfig& config) {
  std::set<std::string> used;
  for (const TensorMapping& mapping : tensor_mappings(config.family, config.model)) {
    for (const Piece& piece : mapping.pieces) used.insert(piece.name);
  }
  for (const checkpoint::TensorRecord& record : reader.tensors()) {
    if (record.group != checkpoint::Group::kWeights || used.contains(record.name)) continue;
    throw input_error("hf", reader.path().string(), " holds ", record.name, ", which ", class_name(config.family),
                      " has no place for; the checkpoint is not the model of its configuration");
  }
}

}  // namespace

ImportReport import_to_checkpoint(const std::filesystem::path& hf_directory, const std::filesystem::path& out,
                                  const std::vector<std::string>& ignored_keys) {
  ImportedModel model = import_hf(hf_directory, ignored_keys);
  std::vector<std::byte> buffer;
  const checkpoint::TensorSource source{
      .tensors = model.tensors(),
      .produce = [&](const io::TensorSpec& tensor, const checkpoint::TensorSource::Emit& emit) {
        buffer.resize(static_cast<size_t>(tensor.num_bytes()));
        model.read(tensor.name, buffer);
        emit(buffer);
      }};
  const std::string config_toml = config::model_to_toml(model.config().model);
  const checkpoint::Saved saved = checkpoint::write_tensors({.dir = out,
                                                             .source = source,
                                                             .config_toml = config_toml,
                                                             .tokenizer_json = "",
                                                             .metadata = to_metadata(model.config())});
  ImportReport report{.config = model.config()};
  report.tensors = static_cast<int64_t>(model.tensors().size());
  for (const io::TensorSpec& tensor : model.tensors()) report.parameters += tensor.num_elems();
  report.bytes = saved.bytes;
  return report;
}

ExportReport export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& hf_directory,
                               const ExportOptions& options, Log& log) {
  checkpoint::CheckpointReader reader(checkpoint::resolve(checkpoint, log));
  const config::RunConfig stored =
      config::resolve(config::parse_config(reader.config_toml(), reader.path().string(), {}),
                      {.purpose = config::Purpose::kModel})
          .config;
  HfConfig config;
  config.model = stored.model;
  config.extras = extras_of(reader.metadata());
  if (options.max_positions > 0) {
    config.extras.max_positions = options.max_positions;
  } else if (config.extras.max_positions == 0) {
    config.extras.max_positions = stored.train.sequence_length;
  }
  std::optional<Family> wanted = options.family;
  if (const auto origin = reader.metadata().find(kClass); !wanted && origin != reader.metadata().end()) {
    wanted = family_from_class(origin->second);
  }
  config.family = choose_family(config.model, wanted);
  check_all_used(reader, config);
  CheckpointSource source(reader);
  return {.family = config.family, .files = export_hf(config, source, hf_directory, options.dtype)};
}

}  // namespace ashlar::hf
