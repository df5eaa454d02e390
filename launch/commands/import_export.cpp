#include "launch/commands/subcommands.h"

#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/atomic_file.h"
#include "launch/commands/arguments.h"
#include "launch/commands/model_card.h"
#include "launch/commands/session.h"
#include "launch/gguf/gguf_export.h"
#include "launch/hf/hf_checkpoint.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {
namespace {

constexpr std::pair<std::string_view, std::optional<io::FileDType>> kDTypes[] = {{"fp32", io::FileDType::kF32},
                                                                                 {"bf16", io::FileDType::kBF16},
                                                                                 {"fp16", io::FileDType::kF16},
                                                                                 {"fp64", io::FileDType::kF64}};

}  // namespace

const char* const kImportHelp =
    "ashlar import HF_DIR OUT [options]\n"
    "\n"
    "Reads a Hugging Face model (config.json and model.safetensors, or its shards) and writes a checkpoint to OUT,\n"
    "which must not exist, with a config.toml: `ashlar train OUT/config.toml data.path=DIR` trains from it. Dense\n"
    "decoders of about fifty classes are supported (for another class, the error lists their names). Weights stay\n"
    "in the dtype of the file. The tokenizer is included: `generate` and `eval` use it, `export` writes it again,\n"
    "and `ashlar data build --tokenizer HF_DIR` makes a dataset of the same ids. An option of config.json that this\n"
    "program does not support is an error that names it.\n"
    "\n"
    "  --no-tokenizer     imports the model without its tokenizer\n"
    "  --ignore-key KEY   accepts an unknown key of config.json that has no effect; repeatable\n";

const char* const kExportHelp = R"(ashlar export CHECKPOINT HF_DIR [options]
ashlar export CHECKPOINT DIR --format gguf [options]

Writes the weights of a checkpoint, or of a run directory's newest one, as config.json and model.safetensors to
HF_DIR, for Hugging Face transformers; a model larger than --max-shard-bytes as model-00001-of-0000N.safetensors
and so on with model.safetensors.index.json. After an import the same tensors are written bit for bit. A model
that no class supports is refused with the unsupported setting; biases that only the class has are written as zeros,
which gives the same model. The tokenizer is written as tokenizer.json and tokenizer_config.json, its ids unchanged.
README.md says how the model was trained. With --format gguf, DIR/model.gguf is written, for llama.cpp: models of the
classes Llama, Qwen3, Gemma3 and GPT-2, with tokenizers of byte-level BPE or of a SentencePiece BPE .model; rank 0
writes it, a tensor in memory at a time.

Several ranks (ashlar launch -np N export ...) write the files together; HF_DIR must be on a shared file system.
Memory: a few windows of 8 MiB per rank; for GPT2LMHeadModel the largest matrix. Nothing in HF_DIR is
overwritten: it must not contain a model. config.json is written last; files of a killed export are
removed by the next one.

  --format hf|gguf     default: hf
  --class NAME         e.g. LlamaForCausalLM (default: as imported, else the simplest class that supports the model)
  --no-tokenizer       without the tokenizer and generation_config.json
  --no-card            without README.md
  --dtype T            fp32, bf16, fp16 or fp64 (default: as stored); of gguf: fp32, bf16 or q8_0 (blocks of 32 values
                       in 34 bytes), and norms and biases stay fp32 (default: bf16 if stored so, else fp32)
  --max-positions N    longest context to put in config.json (default: as imported or trained); the rows of
                       a learned position table, if the model has one
  --max-shard-bytes N  bytes of tensors in one file, e.g. 500MB or 2GiB (default: 5GB, as transformers);
                       a larger tensor gets its own file; 0: one file
)";

int run_import_command(Words words, Session& session) {
  Log& log = session.log;
  Arguments arguments("import", words);
  hf::ImportOptions options;
  while (const auto key = arguments.option("--ignore-key")) options.ignored_keys.push_back(*key);
  options.tokenizer = !arguments.flag("--no-tokenizer");
  const std::vector<std::string> paths = arguments.positionals();
  arguments.expect(paths, 2, "a Hugging Face directory and a checkpoint to write",
                   " paths; usage: ashlar import HF_DIR OUT");
  const hf::ImportReport report = hf::import_to_checkpoint(paths[0], paths[1], options);
  for (const std::string& note : report.config.notes) log.info(str_cat("note: ", note));
  log.info(hf::summary(report, paths[1]));
  return 0;
}

namespace {

enum class ExportFormat : uint8_t { kHf, kGguf };
constexpr auto names_of(ExportFormat) { return enum_names<ExportFormat>("hf", "gguf"); }

constexpr std::pair<std::string_view, std::optional<gguf::TensorType>> kGgufTypes[] = {
    {"fp32", gguf::TensorType::kF32}, {"bf16", gguf::TensorType::kBF16}, {"q8_0", gguf::TensorType::kQ8_0}};

struct ExportWords {
  hf::ExportOptions options;
  ExportFormat format = ExportFormat::kHf;
  std::optional<gguf::TensorType> gguf_type;  ///< absent: by the checkpoint's dtype
  std::string checkpoint, directory;
};

ExportWords parse_export(std::span<const std::string> words) {
  Arguments arguments("export", words);
  ExportWords parsed;
  hf::ExportOptions& options = parsed.options;
  if (const auto name = arguments.option("--class")) {
    options.family = hf::family_from_class(*name);
    if (options.family == nullptr) {
      throw input_error("export", "option --class = ", *name, ": expected one of ",
                        comma_list(hf::families(), &hf::Family::class_name));
    }
  }
  options.tokenizer = !arguments.flag("--no-tokenizer");
  parsed.format = arguments.choice("--format", parsed.format);
  if (parsed.format == ExportFormat::kGguf) {
    parsed.gguf_type = arguments.choice("--dtype", parsed.gguf_type, kGgufTypes);
  } else {
    options.dtype = arguments.choice("--dtype", options.dtype, kDTypes);
  }
  if (!arguments.flag("--no-card")) options.card = model_card;
  options.max_positions = arguments.integer("--max-positions", 0, 1, int64_t{1} << 30);
  options.max_shard_bytes = arguments.bytes("--max-shard-bytes", hf::kDefaultShardBytes);
  const std::vector<std::string> paths = arguments.positionals();
  arguments.expect(paths, 2, "a checkpoint and a directory to write", " paths; usage: ashlar export CHECKPOINT HF_DIR");
  parsed.checkpoint = paths[0];
  parsed.directory = paths[1];
  return parsed;
}

/// (all ranks) Writes model.gguf, and README.md beside it.
int export_to_gguf(const ExportWords& words, Session& session) {
  comm::ControlPlane& ranks = session.bootstrap.control();
  const hf::OpenedExport opened = hf::open_export(words.checkpoint, words.options, session.log, ranks);
  comm::try_on_first_rank(ranks, [&] {
    const std::filesystem::path card = std::filesystem::path(words.directory) / "README.md";
    const bool bf16 = opened.source->find("embed.tokens.weight")->dtype == io::FileDType::kBF16;
    const gguf::TensorType by_dtype = bf16 ? gguf::TensorType::kBF16 : gguf::TensorType::kF32;
    if (words.options.card && std::filesystem::exists(card))
      throw input_error("gguf", printable(card.string()), " exists, and an export overwrites nothing; remove it, or ",
                        "give --no-card");
    const gguf::Report report = gguf::export_gguf(opened, words.directory, words.gguf_type.value_or(by_dtype));
    if (words.options.card) io::write_file_atomically(card, words.options.card(opened));
    session.log.info(str_cat("exported ", report.architecture, ": ", report.tensors, " tensors, ", report.bytes,
                             " bytes, to ", report.file.string()));
  });
  return 0;
}

}  // namespace

int run_export_command(Words words, Session& session) {
  comm::ControlPlane& ranks = session.bootstrap.control();
  ExportWords parsed;
  comm::try_on_all_ranks(ranks, [&] { parsed = parse_export(words); });
  if (parsed.format == ExportFormat::kGguf) return export_to_gguf(parsed, session);
  const hf::ExportReport report =
      hf::export_checkpoint(parsed.checkpoint, parsed.directory, parsed.options, session.log, ranks);
  session.log.info(str_cat("exported ", report.family->class_name, " in ", report.files.dtype, ": ",
                           report.files.tensors, " tensors, ", report.files.bytes, " bytes",
                           report.files.files > 1 ? str_cat(" in ", report.files.files, " files") : "", ", to ",
                           parsed.directory));
  return 0;
}

}  // namespace ashlar::launch
