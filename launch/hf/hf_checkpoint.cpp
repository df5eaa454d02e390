#include "launch/hf/hf_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/error_text.h"
#include "core/base/hex.h"
#include "core/base/philox.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"
#include "data/tokenizer/forms.h"
#include "data/tokenizer/hugging_face_files.h"
#include "launch/config/run_config.h"
#include "launch/hf/convert.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/checkpoint/save.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::hf {
namespace {

constexpr std::string_view kPrefix = "hf.";  // of kClassKey, kSourceKey and the keys below
constexpr const char* kMaxPositions = "hf.max_positions";
constexpr const char* kBos = "hf.bos_token_id";
constexpr const char* kEos = "hf.eos_token_ids";
constexpr const char* kGenerationEos = "hf.generation_eos_token_ids";
constexpr const char* kPad = "hf.pad_token_id";

constexpr const char* kGenerationFile = "generation_config.json";

io::Metadata to_metadata(const HfConfig& config) {
  io::Metadata metadata;
  metadata[kClassKey] = std::string(config.family->class_name);
  metadata[kMaxPositions] = std::to_string(config.extras.max_positions);
  if (config.extras.bos_token_id) metadata[kBos] = std::to_string(*config.extras.bos_token_id);
  if (!config.extras.eos_token_ids.empty()) metadata[kEos] = absl::StrJoin(config.extras.eos_token_ids, ",");
  const std::vector<int64_t>& generation = config.extras.generation_eos_token_ids;
  if (!generation.empty()) metadata[kGenerationEos] = absl::StrJoin(generation, ",");
  if (config.extras.pad_token_id) metadata[kPad] = std::to_string(*config.extras.pad_token_id);
  return metadata;
}

/// Parses a comma-separated list of integers; a missing key is an empty list. Throws a damaged-data error for anything
/// else: the manifest's checksum already passed, so malformed text means that another program wrote it.
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
      throw damaged_error("hf", "checkpoint metadata ", key, " = ", printable(found->second),
                          ": expected integers separated by commas; import the model again");
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
  extras.generation_eos_token_ids = integers_of(metadata, kGenerationEos);
  extras.pad_token_id = one(kPad);
  return extras;
}

/// Returns the text of generation_config.json: the begin, end and padding token ids that transformers' generate() uses.
std::string generation_config(const HfExtras& extras) {
  nlohmann::ordered_json json;
  json["_from_model_config"] = true;
  if (extras.bos_token_id) json["bos_token_id"] = *extras.bos_token_id;
  const std::vector<int64_t>& eos =
      extras.generation_eos_token_ids.empty() ? extras.eos_token_ids : extras.generation_eos_token_ids;
  if (eos.size() == 1) json["eos_token_id"] = eos[0];
  if (eos.size() > 1) json["eos_token_id"] = eos;
  if (extras.pad_token_id) json["pad_token_id"] = *extras.pad_token_id;
  return json.dump(2) + "\n";
}

/// Supplies the weights of a checkpoint, and constants for the tensors that the family has and the model lacks
/// (is_completion).
class CheckpointSource : public TensorSource {
 public:
  CheckpointSource(std::unique_ptr<checkpoint::CheckpointReader> owned, const model::ModelConfig& stored,
                   const HfConfig& config)
      : owned_(std::move(owned)), reader_(*owned_) {
    const checkpoint::CheckpointReader& reader = reader_;
    for (const TensorMapping& mapping : tensor_mappings(*config.family, config.model)) {
      for (const TensorPart& part : mapping.parts) {
        if (!is_completion(stored, part.name)) continue;
        // An added bias or gain gets the dtype of its layer's weight or, if the layer has no weight, the dtype of the
        // embedding.
        const std::string weight = part.name.substr(0, part.name.rfind('.')) + ".weight";
        const checkpoint::TensorRecord* sibling = reader.find(weight);
        io::TensorSpec spec{.name = part.name, .dtype = (sibling ? sibling : &reader.at("embed.tokens.weight"))->dtype};
        spec.shape = part.shape;
        added_.emplace(part.name, std::move(spec));
      }
    }
  }
  const io::TensorSpec* find(std::string_view name) const override {
    if (const auto added = added_.find(name); added != added_.end()) return &added->second;
    const checkpoint::TensorRecord* record = reader_.find(name);
    return record != nullptr && record->group == checkpoint::Group::kWeights ? record : nullptr;
  }
  void read_rows(std::string_view name, int64_t row, std::span<std::byte> out) override {
    const auto added = added_.find(name);
    if (added == added_.end()) {
      const checkpoint::TensorRecord& record = reader_.at(name);
      const auto elems = static_cast<int64_t>(out.size()) / io::size_of(record.dtype);
      // A checkpoint addresses a vector as a matrix with one row.
      const int64_t cols = record.matrix_cols();
      const checkpoint::Block block = record.shape.size() < 2
                                          ? checkpoint::Block{.col = row, .rows = 1, .cols = elems}
                                          : checkpoint::Block{.row = row, .rows = elems / cols, .cols = cols};
      return reader_.read_block(record, block, out);
    }
    const auto elems = out.size() / static_cast<size_t>(io::size_of(added->second.dtype));
    const std::vector<float> values(elems, name.ends_with(".weight") ? 1 : 0);
    convert_elements(io::FileDType::kF32, std::as_bytes(std::span(values)), added->second.dtype, out);
  }
  int64_t num_added() const { return static_cast<int64_t>(added_.size()); }

 private:
  std::unique_ptr<checkpoint::CheckpointReader> owned_;
  checkpoint::CheckpointReader& reader_;
  std::map<std::string, io::TensorSpec, std::less<>> added_;
};

/// Throws an input error if the checkpoint has a weight for which the family has no tensor.
void check_all_used(const checkpoint::CheckpointReader& reader, const HfConfig& config) {
  std::set<std::string> used;
  for (const TensorMapping& mapping : tensor_mappings(*config.family, config.model)) {
    for (const TensorPart& part : mapping.parts) used.insert(part.name);
  }
  for (const checkpoint::TensorRecord& record : reader.tensors()) {
    if (record.group != checkpoint::Group::kWeights || used.contains(record.name)) continue;
    throw input_error("hf", reader.path().string(), " contains ", record.name, ", but ", config.family->class_name,
                      " has no such tensor: weights and configuration do not match; export another checkpoint");
  }
}

/// Returns a configuration that continues training from the checkpoint at `out`. The user must add a dataset.
std::string starting_config(const ModelSource& source, const StartingTexts& texts, const std::filesystem::path& out) {
  const model::ModelConfig& model = source.model;
  const std::filesystem::path path = std::filesystem::absolute(out).lexically_normal();
  const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();
  const std::string run = config::value_line("run.init_from", folder.string());
  const std::string name = folder.filename().string();
  constexpr int64_t kLongest = 1024;  // tokens; a longer sequence may need too much memory for a first try
  const bool learned = model.pos.type == model::PosType::kLearned;
  const int64_t known = learned ? model.pos.max_positions : extras_of(source.metadata).max_positions;
  const int64_t length = known > 0 ? std::min(known, kLongest) : kLongest;
  return str_cat(
      "# Continues training the ", texts.origin, ":\n#   ashlar train ", (folder / "config.toml").string(),
      " data.path=DATASET\n",
      texts.tokenizer.empty()
          ? "# The dataset must use the model's token ids; the import has no tokenizer to compare with.\n"
          : str_cat("# DATASET: ashlar data build TEXT --tokenizer ",
                    std::filesystem::absolute(texts.tokenizer).lexically_normal().string(), " --out DATASET\n"),
      "# Steps, batch and learning rate are a start; `ashlar explain all` lists every key.\n",
      model.moe.experts > 0 && model.moe.balance == model::Balance::kNone
          ? "# The class trains without a balance loss of the experts; for one, set moe.balance = \"sequence\".\n"
          : "",
      "\n[run]\n", run, "   # weights from here, a fresh optimizer\n", config::value_line("run.dir", "runs/" + name),
      "\n\n# The model of run.init_from: a different value is an error.\n", config::model_to_toml(model),
      "\n[train]\nsteps = 1000\nsequence_length = ", length, known > length ? str_cat("   # at most ", known) : "",
      "\nglobal_batch = 16\nmicro_batch = 1\n\n[optimizer]\nlr = 2e-5   # low, since these weights are "
      "trained\n");
}

/// Reads the end-of-text ids of generation_config.json, and stores them if they differ from the ids of config.json.
void read_generation_config(const std::filesystem::path& folder, HfExtras& extras) {
  const std::filesystem::path file = folder / kGenerationFile;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return;
  std::vector<int64_t> ids = parse_generation_eos(io::read_text_file(file), file.string());
  if (ids != extras.eos_token_ids) extras.generation_eos_token_ids = std::move(ids);
}

/// Returns the tokenizer of a Hugging Face folder as the JSON text that a checkpoint stores; empty if there is none.
std::string tokenizer_of(const std::filesystem::path& folder, ImportReport& report) {
  if (!data::holds_tokenizer(folder.string())) return "";
  try {
    const auto tokenizer = data::tokenizer_of_path(folder.string());
    report.tokenizer = tokenizer->identity();
    if (tokenizer->vocab_size() > report.config.model.vocab_size) {
      report.config.notes.push_back(str_cat(
          "the tokenizer has ids up to ", tokenizer->vocab_size() - 1, ", but the model has embeddings only up to ",
          report.config.model.vocab_size - 1, ": a text with a higher id cannot be trained on"));
    }
    return tokenizer->to_json();
  } catch (const Error& e) {
    throw Error(e.code(), "import", str_cat(text_of(e), "; --no-tokenizer imports the model alone"));
  }
}

/// Returns the text of each tokenizer file of the export. Sets the end-of-text id of `config` from the tokenizer if
/// `config` has none.
std::map<std::string, std::string> tokenizer_files(const OpenedExport& opened, Log& log) {
  std::map<std::string, std::string> files;
  if (opened.tokenizer) {
    data::HuggingFaceFiles made = data::hugging_face_files(*opened.tokenizer, opened.config.extras.max_positions);
    if (!made.note.empty()) log.info("note: " + made.note);
    files = std::move(made.bytes);
  }
  files[kGenerationFile] = generation_config(opened.config.extras);
  return files;
}

/// Returns the family of an export and the model to export, which is the checkpoint's model after completed(). Sets
/// `stored` to the checkpoint's model itself.
HfConfig config_for(const checkpoint::CheckpointReader& reader, const ExportOptions& options,
                    model::ModelConfig& stored) {
  const config::RunConfig run = config::stored_config(reader.config_toml(), reader.path().string());
  HfConfig config;
  config.model = stored = run.model;
  config.extras = extras_of(reader.metadata());
  if (const int64_t rows = stored.pos.max_positions;
      stored.pos.type == model::PosType::kLearned && options.max_positions > 0 && options.max_positions != rows) {
    throw input_error("export", "--max-positions ", options.max_positions, ": expected ", rows,
                      ", the size of the model's table of learned positions; remove --max-positions");
  }
  if (options.max_positions > 0) {
    config.extras.max_positions = options.max_positions;
  } else if (config.extras.max_positions == 0) {
    config.extras.max_positions = run.train.sequence_length;
  }
  const Family* wanted = options.family;
  if (const auto origin = reader.metadata().find(kClassKey); wanted == nullptr && origin != reader.metadata().end()) {
    wanted = family_from_class(origin->second);
  }
  config.family = &choose_family(stored, wanted);
  config.model = completed(*config.family, stored);
  check_all_used(reader, config);
  return config;
}

}  // namespace

std::string summary(const ImportReport& report, const std::filesystem::path& out) {
  return str_cat("imported ", report.config.family->class_name, ": ", report.parameters, " parameters in ",
                 report.tensors, " tensors, ", report.bytes, " bytes, to ", out.string(), ", ",
                 report.tokenizer.empty() ? "without a tokenizer" : str_cat("with its tokenizer: ", report.tokenizer));
}

std::optional<int64_t> begin_id(const io::Metadata& metadata) { return extras_of(metadata).bos_token_id; }

int64_t max_positions(const io::Metadata& metadata) { return extras_of(metadata).max_positions; }

std::vector<int64_t> end_ids(const io::Metadata& metadata) {
  const HfExtras extras = extras_of(metadata);
  return extras.generation_eos_token_ids.empty() ? extras.eos_token_ids : extras.generation_eos_token_ids;
}

std::string source_digest(const std::filesystem::path& hf_directory) {
  constexpr size_t kEnd = 64 << 10;
  std::map<std::string, uint64_t> weights;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(hf_directory, ignored)) {
    if (entry.path().extension() != ".safetensors") continue;
    const io::InputFile file(entry.path());
    const auto size = static_cast<size_t>(file.size_bytes());
    std::string ends(2 * std::min(size, kEnd), 0);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(ends));
    file.read_at(0, bytes.first(bytes.size() / 2));
    file.read_at(static_cast<int64_t>(size - bytes.size() / 2), bytes.last(bytes.size() / 2));
    weights[entry.path().filename().string()] = hash64(str_cat(size, ",", ends));
  }
  std::string all = io::read_text_file(hf_directory / std::string(kConfigFile), int64_t{64} << 20);
  for (const auto& [name, hash] : weights) all += str_cat("\n", name, " ", hex64(hash));
  return hex64(hash64(all));
}

int64_t ModelSource::parameters() const {
  int64_t sum = 0;
  for (const io::TensorSpec& tensor : tensors) sum += tensor.num_elems();
  return sum;
}

ModelSource model_of_folder(const std::filesystem::path& hf_directory, const ImportOptions& options,
                            ImportReport& report) {
  const auto folder = std::make_shared<ImportedModel>(import_hf(hf_directory, options.ignored_keys));
  report.config = folder->config();
  read_generation_config(hf_directory, report.config.extras);
  ModelSource source{
      .model = folder->config().model,
      .tensors = folder->tensors(),
      .read = [folder](const io::TensorSpec& tensor, std::span<std::byte> out) { folder->read(tensor.name, out); },
      .tokenizer_json = options.tokenizer ? tokenizer_of(hf_directory, report) : "",
      .metadata = to_metadata(report.config)};
  source.metadata[kSourceKey] = source_digest(hf_directory);
  return source;
}

ModelSource model_of_checkpoint(const std::filesystem::path& checkpoint, const config::RunConfig& stored) {
  const auto reader = std::make_shared<checkpoint::CheckpointReader>(checkpoint);
  ModelSource source{
      .model = stored.model,
      .read = [reader](const io::TensorSpec& tensor, std::span<std::byte> out) { reader->read(tensor.name, out); },
      .tokenizer_json = reader->tokenizer_json()};
  for (const checkpoint::TensorRecord& tensor : reader->tensors())
    if (tensor.group == checkpoint::Group::kWeights) source.tensors.push_back(tensor);
  for (const auto& [key, value] : reader->metadata())
    if (key.starts_with(kPrefix)) source.metadata[key] = value;
  source.metadata.try_emplace(kMaxPositions, std::to_string(stored.train.sequence_length));
  return source;
}

int64_t write_model(const ModelSource& source, const StartingTexts& texts, const std::filesystem::path& out) {
  std::vector<std::byte> buffer;
  const checkpoint::TensorSource tensors{
      .tensors = source.tensors,
      .produce = [&](const io::TensorSpec& tensor, const checkpoint::TensorSource::Emit& emit) {
        buffer.resize(static_cast<size_t>(tensor.num_bytes()));
        source.read(tensor, buffer);
        emit(buffer);
      }};
  const std::string starting_toml = starting_config(source, texts, out);
  const checkpoint::Saved saved = checkpoint::write_tensors({.dir = out,
                                                             .source = tensors,
                                                             .config_toml = config::model_to_toml(source.model),
                                                             .tokenizer_json = source.tokenizer_json,
                                                             .metadata = source.metadata});
  io::write_file_atomically(saved.path / "config.toml", starting_toml);
  return saved.bytes;
}

ImportReport import_to_checkpoint(const std::filesystem::path& hf_directory, const std::filesystem::path& out,
                                  const ImportOptions& options) {
  ImportReport report;
  const ModelSource source = model_of_folder(hf_directory, options, report);
  const StartingTexts texts{.origin = str_cat(report.config.family->class_name, " imported here"),
                            .tokenizer = source.tokenizer_json.empty() ? "" : hf_directory.string()};
  report.bytes = write_model(source, texts, out);
  report.tensors = static_cast<int64_t>(source.tensors.size());
  report.parameters = source.parameters();
  return report;
}

OpenedExport open_export(const std::filesystem::path& checkpoint, const ExportOptions& options, Log& log,
                         comm::ControlPlane& ranks) {
  auto reader = std::make_unique<checkpoint::CheckpointReader>(
      checkpoint::open_checkpoint(checkpoint::resolve(checkpoint, log, ranks), ranks));
  OpenedExport opened{.checkpoint = reader->path(), .config_toml = reader->config_toml()};
  if (reader->state()) {
    opened.step = reader->state()->step;
    opened.tokens = reader->state()->tokens;
  }
  model::ModelConfig stored;
  comm::try_on_all_ranks(ranks, [&] {
    opened.config = config_for(*reader, options, stored);
    if (!options.tokenizer || reader->tokenizer_json().empty()) return;
    opened.tokenizer = data::tokenizer_from_json(reader->tokenizer_json());
    std::vector<int64_t>& ends = opened.config.extras.eos_token_ids;
    if (ends.empty()) ends = {opened.tokenizer->eod_id()};
  });
  auto source = std::make_unique<CheckpointSource>(std::move(reader), stored, opened.config);
  opened.num_added = source->num_added();
  opened.source = std::move(source);
  if (opened.num_added > 0)
    log.info(str_cat("note: ", opened.config.family->class_name, " has ", opened.num_added,
                     " biases and norm vectors that this model does not have; they are written as zeros (gains as "
                     "ones), which does not change any result"));
  return opened;
}

ExportReport export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& hf_directory,
                               const ExportOptions& options, Log& log, comm::ControlPlane& ranks) {
  const OpenedExport opened = open_export(checkpoint, options, log, ranks);
  std::map<std::string, std::string> beside;
  comm::try_on_all_ranks(ranks, [&] {
    if (options.tokenizer) beside = tokenizer_files(opened, log);
    if (options.card) beside["README.md"] = options.card(opened);
  });
  const ExportArgs args{.config = opened.config,
                        .source = *opened.source,
                        .directory = hf_directory,
                        .dtype = options.dtype,
                        .max_shard_bytes = options.max_shard_bytes,
                        .beside = std::move(beside),
                        .log = log};
  return {.family = opened.config.family, .files = export_hf(args, ranks)};
}

}  // namespace ashlar::hf
