#include <filesystem>
#include <ostream>

#include "absl/strings/ascii.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/io/atomic_file.h"
#include "data/read/batch_stream.h"
#include "kernels/make_backend.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/new_config/amounts.h"
#include "launch/new_config/new_config.h"
#include "launch/training/memory.h"

namespace ashlar::launch {

const char* const kNewHelp =
    R"(ashlar new --params N --data DIR [--like FAMILY] [--tokens N|auto] [-np N] [--device NAME] [--out FILE] [--force]

Writes a complete configuration to start from. Each choice has a comment that says why, with its source. The file works
unchanged with `ashlar plan`, `params` and `train`, and its plan fits the devices.

  --params N      wanted parameters, e.g. 124M or 1.3B; the model has as many within 3%, embeddings counted
  --data DIR      a dataset of `ashlar data build`; its tokenizer gives the vocabulary
  --like FAMILY   whose architecture: a family of `ashlar zoo`, e.g. gpt2, qwen3, gemma3, or one of its models, e.g.
                  qwen3-30b-a3b (default: llama3). Of a family, the model of the nearest size; a dense one, if it has any
  --tokens N      to train on, e.g. 10B; auto (the default): 20 for each parameter that a token meets
  -np N           ranks of the run (default: 1)
  --device NAME   a device of configs/devices, e.g. h100-sxm, or the path of a device file. Without it: this machine, as
                  `ashlar bench device` measured it; before that, only memory is planned
  --out FILE      the file to write (default: FAMILY-PARAMS.toml, e.g. llama3-124m.toml)
  --force         replaces a file that exists
)";

namespace {

struct NewArguments {
  std::string params, data, like, out;
  std::optional<std::string> tokens, device;
  int64_t ranks = 1;
  bool force = false;
};

std::string required(Arguments& arguments, std::string_view name, std::string_view example) {
  const std::optional<std::string> value = arguments.option(name);
  if (!value || value->empty())
    throw input_error("new", "option ", name, " is missing: expected ", name, " ", example, "; see ashlar new --help");
  return *value;
}

NewArguments parse_new(Words words) {
  Arguments arguments("new", words);
  NewArguments a;  // assigned one by one, since g++ 12 destroys members twice when an initializer list throws
  a.params = required(arguments, "--params", "124M");
  a.data = required(arguments, "--data", "DIR, a dataset of ashlar data build");
  a.like = arguments.option("--like").value_or("llama3");
  a.tokens = arguments.option("--tokens");
  if (a.tokens == "auto") a.tokens.reset();
  a.ranks = arguments.integer("-np", 1, 1, 1 << 16);
  a.device = arguments.option("--device");
  a.force = arguments.flag("--force");
  a.out = arguments.option("--out").value_or(str_cat(a.like, "-", absl::AsciiStrToLower(a.params), ".toml"));
  arguments.options_only();
  return a;
}

void check_out(const NewArguments& args) {
  if (!args.out.ends_with(".toml") || args.out == ".toml")
    throw input_error("new", "option --out = ", printable(args.out), ": expected the name of a file FILE.toml");
  std::error_code none;
  if (!args.force && std::filesystem::exists(args.out, none))
    throw input_error("new", args.out,
                      " exists: expected a new file; choose another --out, or replace it with --force");
}

}  // namespace

int run_new_command(Words words, Session& session) {
  const int64_t program_bytes = training::resident_bytes();
  const NewArguments args = parse_new(words);
  check_out(args);
  const int64_t parameters = new_config::parse_amount("--params", args.params);
  std::optional<int64_t> tokens;
  if (args.tokens) tokens = new_config::parse_amount("--tokens", *args.tokens);
  const data::TokenDataset dataset(args.data);
  const new_config::NewConfig made = new_config::make_config(
      {.parameters = parameters,
       .like = args.like,
       .tokens = tokens,
       .ranks = args.ranks,
       .data = {.path = args.data,
                .vocab_size = dataset.tokenizer().vocab_size(),
                .tokens = dataset.tokens(data::Part::kTrain),
                .resident_bytes =
                    [&](int64_t sequence_length) { return data::most_resident_bytes(dataset, sequence_length); }},
       .target = plan::find_target(args.device, args.ranks),
       .file = args.out,
       .hardware_threads = kernels::usable_cores(),
       .program_bytes = program_bytes});
  io::write_file_atomically(args.out, made.text);
  for (const std::string& line : made.summary) session.out << line << "\n";
  for (const std::string& warning : made.warnings) session.err << "warning: " << warning << "\n";
  return 0;
}

}  // namespace ashlar::launch
