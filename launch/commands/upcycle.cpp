#include <filesystem>

#include "core/base/error.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/hf/hf_checkpoint.h"
#include "launch/hf/upcycle.h"
#include "launch/training/run_identity.h"

namespace ashlar::launch {

const char* const kUpcycleHelp = R"(ashlar upcycle SOURCE OUT moe.experts=N [moe.key=value ...] [--seed N]

Turns a dense model into one with experts (sparse upcycling, arXiv:2212.05055): every expert of a layer gets the
weights of the layer's feed-forward network, the routers get random ones. The result computes what SOURCE does, up to
rounding, since the weights of a token's experts sum to one; moe keys with which they would not are refused.

SOURCE is a checkpoint, a run directory (its newest checkpoint) or a Hugging Face directory. OUT must not exist; it
gets a config.toml: `ashlar train OUT/config.toml data.path=DIR` trains on, `ashlar export OUT HF_DIR` writes it for
transformers. Tensors keep their dtype; needs the memory of a few tensors.

  moe.key=value   the experts, e.g. moe.experts=8 moe.top_k=2 (the default) moe.every=2 (experts in every second
                  layer, as in the paper); `ashlar explain moe` lists the keys
  --seed N        seed of the routers' weights (default 1)
)";

namespace {

namespace fs = std::filesystem;

/// Opens a checkpoint, the newest one of a run directory, or a Hugging Face directory, and sets `tokenizer` to what
/// `data build --tokenizer` needs.
hf::ModelSource open_model(const fs::path& path, std::string& tokenizer) {
  if (const auto origin = training::find_origin(path)) {
    tokenizer = "";
    return hf::model_of_checkpoint(origin->path, origin->config);
  }
  std::error_code unseen;
  if (!fs::is_directory(path, unseen))
    throw input_error("upcycle", path.string(),
                      ": expected a checkpoint, a run directory with checkpoints or a Hugging Face directory, got ",
                      fs::exists(path, unseen) ? "another file" : "nothing", "; correct the path");
  hf::ImportReport report;
  hf::ModelSource model = hf::model_of_folder(path, {}, report);
  tokenizer = model.tokenizer_json.empty() ? "" : path.string();
  return model;
}

/// Returns the model with the keys moe.* of the command line.
model::ModelConfig with_experts(const model::ModelConfig& dense, const std::string& source,
                                const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!key.starts_with("moe."))
      throw input_error("upcycle", printable(key), ": expected only keys of the section moe; set others in training");
  }
  return config::resolve(config::parse_config(config::model_to_toml(dense), source, keys),
                         {.purpose = config::Purpose::kModel})
      .config.model;
}

}  // namespace

int run_upcycle_command(Words words, Session& session) {
  Arguments arguments("upcycle", words);
  const auto seed = static_cast<uint64_t>(arguments.integer("--seed", 1, 0, 4294967295));
  std::vector<std::string> paths = arguments.positionals();
  const std::vector<std::string> keys = take_overrides(paths);
  arguments.expect(paths, 2, "a dense model and a checkpoint to write",
                   " paths; usage: ashlar upcycle SOURCE OUT moe.experts=N [moe.key=value ...]");
  std::string tokenizer;
  const hf::ModelSource dense = open_model(paths[0], tokenizer);
  const hf::ModelSource sparse = hf::upcycled(dense, with_experts(dense.model, paths[0], keys), seed);
  const int64_t bytes =
      hf::write_model(sparse, {.origin = str_cat("model upcycled from ", paths[0]), .tokenizer = tokenizer}, paths[1]);
  session.log.info(str_cat("upcycled ", paths[0], ": ", sparse.model.moe.experts, " experts in each of ",
                           sparse.model.expert_layers(), " layers, ", sparse.parameters(), " parameters (dense ",
                           dense.parameters(), "), ", bytes, " bytes, to ", paths[1]));
  return 0;
}

}  // namespace ashlar::launch
