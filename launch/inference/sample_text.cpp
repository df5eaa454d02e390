#include "launch/inference/sample_text.h"

#include "core/base/printable.h"
#include "launch/inference/generator.h"
#include "launch/inference/text_stream.h"

namespace ashlar::inference {

std::vector<int32_t> prompt_ids(const data::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int32_t> ids;
  try {
    if (!prompt.empty()) tokenizer.encode_with_template(prompt, ids);
  } catch (const data::TextError& error) {
    throw input_error("config", "log.sample = ", printable(prompt), ": byte offset ", error.offset, ": ", error.reason,
                      "; the ", tokenizer.identity(), " tokenizer of the data cannot encode it; change the prompt");
  }
  if (ids.empty()) ids = {tokenizer.eod_id()};
  return ids;
}

std::string sample_text(training::Engine& engine, const data::Tokenizer& tokenizer, const SampleOptions& options) {
  engine.wait_param_sync();
  constexpr double kTemperature = 0.8;
  const GenerateOptions generated{.prompt = prompt_ids(tokenizer, options.prompt),
                                  .new_tokens = options.new_tokens,
                                  .stop_ids = {tokenizer.eod_id()},
                                  .never = ids_without_token(tokenizer, engine.options().model.vocab_size),
                                  .most_context = engine.options().sequence_length,
                                  .sampling = {.temperature = kTemperature, .seed = options.seed}};
  TextStream stream(tokenizer, generated.prompt);
  std::string text;
  generate(engine, generated, [&](int32_t id) {
    if (engine.options().after_node) engine.options().after_node();  // progress, so that this is no hang
    if (id != tokenizer.eod_id()) text += stream.add(id);
  });
  return text + stream.rest();
}

}  // namespace ashlar::inference
