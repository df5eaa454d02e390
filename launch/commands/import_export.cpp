#include "launch/commands/import_export.h"

#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/commands/arguments.h"
#include "launch/hf/hf_checkpoint.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {
namespace {

std::string class_list() {
  std::string list;
  for (const hf::Family& family : hf::families()) list += str_cat(list.empty() ? "" : ", ", family.class_name);
  return list;
}

std::optional<io::FileDType> dtype_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  if (*text == "fp32") return io::FileDType::kF32;
  if (*text == "bf16") return io::FileDType::kBF16;
  if (*text == "fp16") return io::FileDType::kF16;
  if (*text == "fp64") return io::FileDType::kF64;
  throw input_error("export", "option --dtype = ", *text, ": expected fp32, bf16, fp16 or fp64");
}

}  // namespace

const char* const kImportHelp =
    "ashlar import HF_DIR OUT [options]\n"
    "\n"
    "Reads a Hugging Face model (config.json and model.safetensors, or its shards) and writes a checkpoint to OUT,\n"
    "which must not exist, with a config.toml: `ashlar train OUT/config.toml data.path=DIR` trains from it. Dense\n"
    "decoders of about fifty classes are read (a folder of another class is refused with their names). Weights stay\n"
    "in the dtype of the file. The tokenizer is included: `generate` and `eval` use it, `export` writes it again,\n"
    "and `ashlar data build --tokenizer HF_DIR` makes a dataset of the same ids. An option of config.json that this\n"
    "program does not support is an error that names it.\n"
    "\n"
    "  --no-tokenizer     without the tokenizer\n"
    "  --ignore-key KEY   an unknown key of config.json without effect; repeatable\n";

const char* const kExportHelp =
    "ashlar export CHECKPOINT HF_DIR [options]\n"
    "\n"
    "Writes the weights of a checkpoint, or of a run directory's newest one, as config.json and model.safetensors to\n"
    "HF_DIR, for Hugging Face transformers; a model larger than --max-shard-bytes as model-00001-of-0000N.safetensors\n"
    "and so on with model.safetensors.index.json. After an import the same tensors are written bit for bit. A model\n"
    "that no class supports is refused with the unsupported setting; biases that only the class has are written as "
    "zeros,\n"
    "which gives the same model. The tokenizer is written as tokenizer.json and tokenizer_config.json, its ids "
    "unchanged.\n"
    "\n"
    "Several ranks (ashlar launch -np N export ...) write the files together; HF_DIR must be on a shared file system.\n"
    "Memory: a few windows of 8 MiB per rank; for GPT2LMHeadModel the largest matrix. Nothing in HF_DIR is\n"
    "overwritten: it must not contain a model. config.json is written last; files of a killed export are\n"
    "removed by the next one.\n"
    "\n"
    "  --class NAME         e.g. LlamaForCausalLM (default: as imported, else the simplest class that supports the "
    "model)\n"
    "  --no-tokenizer       without the tokenizer and generation_config.json\n"
    "  --dtype T            fp32, bf16, fp16 or fp64 (default: as stored)\n"
    "  --max-positions N    longest context to put in config.json (default: as imported or trained); the rows of\n"
    "                       a learned position table, if the model has one\n"
    "  --max-shard-bytes N  bytes of tensors in one file, e.g. 500MB or 2GiB (default: 5GB, as transformers);\n"
    "                       a larger tensor gets its own file; 0: one file\n";

int run_import_command(std::span<const std::string> words, Log& log) {
  Arguments arguments("import", words);
  hf::ImportOptions options;
  while (const auto key = arguments.option("--ignore-key")) options.ignored_keys.push_back(*key);
  options.tokenizer = !arguments.flag("--no-tokenizer");
  const std::vector<std::string> paths = arguments.positionals();
  if (paths.size() != 2) {
    throw input_error("import", "expected a Hugging Face directory and a checkpoint to write, got ", paths.size(),
                      " paths; usage: ashlar import HF_DIR OUT");
  }
  const hf::ImportReport report = hf::import_to_checkpoint(paths[0], paths[1], options);
  for (const std::string& note : report.config.notes) log.info(str_cat("note: ", note));
  log.info(hf::summary(report, paths[1]));
  return 0;
}

namespace {

struct ExportWords {
  hf::ExportOptions options;
  std::string checkpoint, directory;
};

ExportWords parse_export(std::span<const std::string> words) {
  Arguments arguments("export", words);
  ExportWords parsed;
  hf::ExportOptions& options = parsed.options;
  if (const auto name = arguments.option("--class")) {
    options.family = hf::family_from_class(*name);
    if (options.family == nullptr) {
      throw input_error("export", "option --class = ", *name, ": expected one of ", class_list());
    }
  }
  options.tokenizer = !arguments.flag("--no-tokenizer");
  options.dtype = dtype_of(arguments.option("--dtype"));
  options.max_positions = arguments.integer("--max-positions", 0, 1, int64_t{1} << 30);
  options.max_shard_bytes = arguments.bytes("--max-shard-bytes", hf::kDefaultShardBytes);
  const std::vector<std::string> paths = arguments.positionals();
  if (paths.size() != 2) {
    throw input_error("export", "expected a checkpoint and a directory to write, got ", paths.size(),
                      " paths; usage: ashlar export CHECKPOINT HF_DIR");
  }
  parsed.checkpoint = paths[0];
  parsed.directory = paths[1];
  return parsed;
}

}  // namespace

int run_export_command(std::span<const std::string> words, Session& session) {
  comm::ControlPlane& ranks = session.bootstrap.control();
  ExportWords parsed;
  comm::try_on_all_ranks(ranks, [&] { parsed = parse_export(words); });
  const hf::ExportReport report =
      hf::export_checkpoint(parsed.checkpoint, parsed.directory, parsed.options, session.log, ranks);
  session.log.info(str_cat("exported ", report.family->class_name, " in ", report.files.dtype, ": ",
                           report.files.tensors, " tensors, ", report.files.bytes, " bytes",
                           report.files.files > 1 ? str_cat(" in ", report.files.files, " files") : "", ", to ",
                           parsed.directory));
  return 0;
}

}  // namespace ashlar::launch
