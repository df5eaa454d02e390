#include "launch/commands/generate.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "launch/commands/arguments.h"
#include "launch/training/generator.h"
#include "launch/training/model_loading.h"

namespace ashlar::launch {

const char* const kGenerateHelp =
    "ashlar generate CHECKPOINT [options]\n"
    "\n"
    "Continues a text with the model of a checkpoint, or of a run directory's newest checkpoint.\n"
    "\n"
    "  --prompt TEXT       the text to continue (default: a document's beginning)\n"
    "  --ids 1,2,3         the same as token ids, for a model without a tokenizer; ids are printed then\n"
    "  --tokens N          how many tokens to draw (default 200)\n"
    "  --temperature X     0 = the likeliest token always (default 0.8)\n"
    "  --top-k K           draw from the K likeliest (default 0: all)\n"
    "  --top-p P           draw from the fewest that reach probability P (default 1)\n"
    "  --seed N            of the draw (default 0): same seed, same text\n"
    "  --through-documents go on after an end-of-document token\n"
    "  --no-cache          run the whole text again for every token; slow, same tokens\n"
    "  --dtype T           bf16, fp32 or fp64 (default: as trained)\n"
    "  --threads N         default: all cores\n";

namespace {

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    char* rest = nullptr;
    const long long id = std::strtoll(word.c_str(), &rest, 10);  // beyond its range: the nearest end, refused too
    if (word.empty() || *rest != '\0' || id < 0 || id > INT32_MAX)
      throw input_error("generate", "--ids: ", word, " is not a token id; expected numbers like 1,2,3");
    ids.push_back(static_cast<int32_t>(id));
    begin = end + 1;
  }
  return ids;
}

}  // namespace

int run_generate_command(std::span<const std::string> words, Log& log) {
  Arguments arguments("generate", words);
  const auto prompt = arguments.option("--prompt");
  const auto ids = arguments.option("--ids");
  const auto dtype = arguments.option("--dtype");
  const bool through = arguments.flag("--through-documents");
  training::GenerateOptions options{
      .new_tokens = arguments.integer("--tokens", 200, 1, int64_t{1} << 30),
      .use_cache = !arguments.flag("--no-cache"),
      .sampling = {.temperature = arguments.number("--temperature", 0.8, 0, 1000),
                   .top_k = arguments.integer("--top-k", 0, 0, int64_t{1} << 31),
                   .top_p = arguments.number("--top-p", 1, 0, 1),
                   .seed = static_cast<uint64_t>(arguments.integer("--seed", 0, 0, INT64_MAX))}};
  const int64_t threads = arguments.integer("--threads", 0, 0, 4096);
  const std::vector<std::string> paths = arguments.positionals();
  if (paths.size() != 1)
    throw input_error("generate", "expected one checkpoint or run directory, got ", paths.size(),
                      "; usage: ashlar generate CHECKPOINT [options]");
  if (prompt && ids) throw input_error("generate", "--prompt and --ids exclude each other; give one");

  // Rotary tables must reach the end of the text; the prompt has at most as many tokens as bytes.
  const int64_t prompt_tokens = static_cast<int64_t>(prompt ? prompt->size() : ids ? ids->size() : 0) + 1;
  training::LoadedModel m = training::load_model(
      {.path = paths[0], .dtype = dtype, .threads = threads, .positions = prompt_tokens + options.new_tokens}, log);
  const int64_t vocab = m.engine->options().model.vocab_size;
  if (!m.tokenizer && !ids)
    throw input_error("generate", m.checkpoint.string(),
                      " has no tokenizer (an import); give the prompt as --ids 1,2,3");
  if (ids) {
    options.prompt = parse_ids(*ids);
  } else {
    try {
      options.prompt = m.tokenizer->encode(prompt.value_or(""));
    } catch (const data::TextError& error) {
      throw input_error("generate", "--prompt, byte offset ", error.offset, ": ", error.reason, "; the ",
                        m.tokenizer->identity(), " tokenizer of ", m.checkpoint.string(), " cannot encode it");
    }
    if (options.prompt.empty()) options.prompt = {m.tokenizer->eod_id()};
  }
  for (const int32_t id : options.prompt) {
    if (id >= vocab)
      throw input_error("generate", "token id ", id, " in the prompt; the model knows ids below ", vocab);
  }
  if (m.tokenizer && !through) options.stop_id = m.tokenizer->eod_id();

  if (ids) {
    training::generate(*m.engine, options, [](int32_t id) { std::cout << id << ' ' << std::flush; });
    std::cout << '\n';
    return 0;
  }
  std::cout << prompt.value_or("");
  // Tokens are written as they come; a character cut in the middle waits for its rest.
  std::vector<int32_t> waiting;
  const auto flush_text = [&](bool all) {
    const std::string text = m.tokenizer->decode(waiting);
    const auto incomplete = [&] {
      size_t tail = 0;
      while (tail < 3 && tail < text.size() && (text[text.size() - 1 - tail] & 0xC0) == 0x80) ++tail;
      if (tail >= text.size()) return false;
      const auto lead = static_cast<unsigned char>(text[text.size() - 1 - tail]);
      const size_t needed = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
      return needed > tail;
    };
    if (!all && waiting.size() < 4 && incomplete()) return;
    std::cout << text << std::flush;
    waiting.clear();
  };
  training::generate(*m.engine, options, [&](int32_t id) {
    if (id == options.stop_id) return;
    waiting.push_back(id);
    flush_text(false);
  });
  flush_text(true);
  std::cout << '\n';
  return 0;
}

}  // namespace ashlar::launch
