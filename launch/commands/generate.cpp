#include "launch/commands/subcommands.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>

#include "absl/strings/str_split.h"
#include "launch/commands/load_arguments.h"
#include "launch/commands/session.h"
#include "launch/hf/hf_checkpoint.h"
#include "launch/inference/generator.h"
#include "launch/inference/model_loading.h"
#include "launch/inference/text_stream.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

const char* const kGenerateHelp =
    "ashlar generate CHECKPOINT [run.device=NAME] [options]\n"
    "\n"
    "Continues a text with the model of a checkpoint, or of a run directory's newest checkpoint. Ids without a token\n"
    "in the tokenizer are never drawn. Non-finite logits end the command with exit code 4.\n"
    "\n"
    "  run.device=NAME     cpu or cuda (default: as trained; the CPU, with a warning, if that is not available)\n"
    "  --prompt TEXT       the text to continue (default: none, a new document begins)\n"
    "  --no-template       omit the template of the tokenizer, such as <s> (imported tokenizers only)\n"
    "  --ids 1,2,3         the prompt as token ids, for a model without a tokenizer; prints ids\n"
    "  --tokens N          how many tokens to draw (default 200)\n"
    "  --temperature X     0 = always the most likely token (default 0.8)\n"
    "  --top-k K           draw from the K most likely tokens (default 0: all)\n"
    "  --top-p P           draw from the smallest set with probability P (default 1)\n"
    "  --seed N            seed of the random draw (default 0): same seed, same text\n"
    "  --through-documents continue after an end-of-document token (of an import: any of its eos_token_id)\n"
    "  --no-cache          recompute the whole text for every token; slow, same tokens\n"
    "  --dtype T           bf16, fp32 or fp64 (default: as trained)\n"
    "  --threads N         threads of each rank (default: cores of the machine / ranks on it)\n"
    "  --tensor N --pipeline N --expert N  under mpirun: tensor, pipeline and expert parallel sizes (default: as\n"
    "                      trained, or what fits)\n";

namespace {

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const auto id = parse_number<int32_t>(word);
    if (!id || *id < 0)
      throw input_error("generate", "--ids: ", word, " is not a token id; expected numbers like 1,2,3");
    ids.push_back(*id);
  }
  return ids;
}

struct GenerateArguments {
  inference::LoadOptions load;
  inference::GenerateOptions generate;
  std::optional<std::string> prompt, ids;
  bool through_documents = false;
  bool without_template = false;
};

GenerateArguments parse_generate(std::span<const std::string> words) {
  Arguments arguments("generate", words);
  GenerateArguments a;
  a.prompt = arguments.option("--prompt");
  a.ids = arguments.option("--ids");
  a.through_documents = arguments.flag("--through-documents");
  a.without_template = arguments.flag("--no-template");
  a.generate = {.new_tokens = arguments.integer("--tokens", 200, 1, int64_t{1} << 30),
                .use_cache = !arguments.flag("--no-cache"),
                .sampling = {.temperature = arguments.number("--temperature", 0.8, 0, 1000),
                             .top_k = arguments.integer("--top-k", 0, 0, int64_t{1} << 31),
                             .top_p = arguments.number("--top-p", 1, 0, 1),
                             .seed = static_cast<uint64_t>(arguments.integer("--seed", 0, 0, INT64_MAX))}};
  a.load = take_load_options(arguments, "; usage: ashlar generate CHECKPOINT [options]");
  a.load.mesh.one_replica = true;
  if (a.prompt && a.ids) throw input_error("generate", "--prompt and --ids exclude each other; give one");
  // The rotary tables must cover the prompt and the new tokens. The prompt is not tokenized yet, so its length is
  // estimated from above: at most one token per byte, plus the tokens of the prompt template.
  constexpr size_t kTemplateTokens = 8;
  const size_t prompt_tokens = (a.prompt ? a.prompt->size() : a.ids ? a.ids->size() : 0) + kTemplateTokens;
  a.load.positions = static_cast<int64_t>(prompt_tokens) + a.generate.new_tokens;
  return a;
}

/// Returns the prompt as token ids.
std::vector<int32_t> read_prompt(const GenerateArguments& a, const inference::LoadedModel& m) {
  if (!m.tokenizer && !a.ids)
    throw input_error("generate", m.checkpoint.string(),
                      " is an import without a tokenizer; give the prompt as --ids 1,2,3");
  std::vector<int32_t> prompt;
  if (a.ids) {
    prompt = parse_ids(*a.ids);
  } else {
    try {
      const std::string text = a.prompt.value_or("");
      if (a.without_template || text.empty()) {
        prompt = m.tokenizer->encode(text);
      } else {
        m.tokenizer->encode_with_template(text, prompt);
      }
    } catch (const data::TextError& error) {
      throw input_error("generate", "--prompt, byte offset ", error.offset, ": ", error.reason, "; the ",
                        m.tokenizer->identity(), " tokenizer of ", m.checkpoint.string(),
                        " cannot encode it; change the prompt");
    }
    if (prompt.empty()) prompt = {m.tokenizer->eod_id()};
  }
  const int64_t vocab = m.engine->options().model.vocab_size;
  for (const int32_t id : prompt) {
    if (id >= vocab)
      throw input_error("generate", "--prompt or --ids: expected token ids below ", vocab,
                        ", the vocabulary size of the model, got ", id, "; change the prompt");
  }
  return prompt;
}

/// Sets the ids that end the text and the ids that are never drawn.
void choose_ids(const GenerateArguments& a, const inference::LoadedModel& m, inference::GenerateOptions& options) {
  const int64_t vocab = m.engine->options().model.vocab_size;
  if (m.tokenizer) options.never = inference::ids_without_token(*m.tokenizer, vocab);
  if (a.through_documents) return;
  for (const int64_t id : hf::end_ids(m.metadata))
    if (id >= 0 && id < vocab) options.stop_ids.push_back(static_cast<int32_t>(id));
  if (m.tokenizer) options.stop_ids.push_back(m.tokenizer->eod_id());
}

}  // namespace

int run_generate_command(Words words, Session& session) {
  comm::ControlPlane& ranks = session.bootstrap.control();
  // The result of this command is the text, so warnings go to standard error and notes are not printed.
  Log log([](std::string_view line) {
    if (line.starts_with("warning: ")) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  });
  GenerateArguments a;
  comm::try_on_all_ranks(ranks, [&] { a = parse_generate(words); });
  if (a.load.threads == 0) a.load.threads = session.cores.threads;
  enter(session, watch::Phase::kLoading);
  const inference::LoadedModel m = inference::load_model(a.load, session.bootstrap, log);
  if (session.watch) session.watch->watchdog().before_end(m.abort);
  inference::GenerateOptions& options = a.generate;
  comm::try_on_all_ranks(ranks, [&] { options.prompt = read_prompt(a, m); });
  comm::try_on_all_ranks(ranks, [&] { choose_ids(a, m, options); });
  std::ostream& out = session.out;

  int64_t token = 0;
  enter(session, watch::Phase::kGenerating, token);
  if (a.ids) {
    inference::generate(*m.engine, options, [&](int32_t id) {
      out << id << ' ' << std::flush;
      enter(session, watch::Phase::kGenerating, ++token);
    });
    out << '\n';
    return 0;
  }
  out << a.prompt.value_or("");
  // Tokens are printed as they are drawn.
  inference::TextStream text(*m.tokenizer, options.prompt);
  inference::generate(*m.engine, options, [&](int32_t id) {
    if (std::ranges::find(options.stop_ids, id) != options.stop_ids.end()) return;
    out << text.add(id) << std::flush;
    enter(session, watch::Phase::kGenerating, ++token);
  });
  out << text.rest();
  out << '\n';
  return 0;
}

}  // namespace ashlar::launch
