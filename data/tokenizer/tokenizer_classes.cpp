#include "data/tokenizer/tokenizer_classes.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/json.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

constexpr std::string_view kOfGpt2 = "bos=<|endoftext|> eos=<|endoftext|> unk=<|endoftext|>";
constexpr std::string_view kNoSteps = "its files do not define how a text is split; only its tokenizer.json does";

constexpr TokenizerClass like_roberta(std::string_view name) {
  return {.name = name,
          .pairs = Steps::kGpt2,
          .usual = "bos=<s> eos=</s> unk=<unk> sep=</s> pad=<pad> cls=<s> mask=<mask>",
          .around = Around::kClsSep,
          .must_say = "mask_token"};
}

// kClasses and kRefusedClasses contain every class of transformers 4.57 and 5.24 whose files are vocab.json with
// merges.txt or a SentencePiece model.
constexpr TokenizerClass kClasses[] = {
    {.name = "GPT2Tokenizer", .pairs = Steps::kGpt2, .usual = kOfGpt2},
    {.name = "CodeGenTokenizer", .pairs = Steps::kGpt2, .usual = kOfGpt2},
    {.name = "Qwen2Tokenizer",
     .pairs = Steps::kQwen2,
     .usual = "eos=<|endoftext|> unk=<|endoftext|> pad=<|endoftext|>"},
    {.name = "GPTNeoXTokenizer",
     .pairs = Steps::kGptNeoX,
     .usual = "bos=<|endoftext|> eos=<|endoftext|> unk=<|endoftext|> pad=<|padding|>"},
    {.name = "CohereTokenizer",
     .pairs = Steps::kCohere,
     .usual = "bos=<BOS_TOKEN> eos=<|END_OF_TURN_TOKEN|> unk=<UNK> sep=<SEP> pad=<PAD> cls=<CLS> mask=<MASK_TOKEN>"},
    like_roberta("RobertaTokenizer"),
    like_roberta("BartTokenizer"),
    like_roberta("LongformerTokenizer"),
    like_roberta("LEDTokenizer"),
    like_roberta("MvpTokenizer"),
    {.name = "DebertaTokenizer",
     .pairs = Steps::kGpt2,
     .usual = "bos=[CLS] eos=[SEP] unk=[UNK] sep=[SEP] pad=[PAD] cls=[CLS] mask=[MASK]",
     .around = Around::kClsSep,
     .must_say = "mask_token"},
    {.name = "BlenderbotTokenizer",
     .pairs = Steps::kGpt2,
     .usual = "bos=<s> eos=</s> unk=<unk> sep=</s> pad=<pad> cls=<s> mask<=<mask>",
     .around = Around::kEos,
     .must_say = "add_prefix_space"},
    {.name = "PreTrainedTokenizer", .model = ModelRule::kLibrary, .why = kNoSteps},
    {.name = "TokenizersBackend", .model = ModelRule::kLibrary, .why = kNoSteps},
    {.name = "LlamaTokenizer", .model = ModelRule::kLibrary, .why = kNoSteps, .usual = "bos=<s> eos=</s> unk=<unk>"},
};

/// Classes that are never supported, and why. `names` are the names of classes without "Tokenizer", separated by
/// spaces.
struct RefusedClasses {
  std::string_view why;
  const char* names;
};
constexpr RefusedClasses kRefusedClasses[] = {
    {"its tokens mark the end of a word with </w>, which this program does not support",
     "CLIP OpenAIGPT Herbert BioGpt BlenderbotSmall CTRL Flaubert XLM FSMT Phobert Bertweet"},
    {"its own program code rewrites texts before it encodes them", "Clvp Cpm SpeechT5 BertJapanese"},
    {"its template depends on its language and task", "Whisper"},
    {kNoSteps, "Nougat Qwen3_5 Bloom Esmc"},
    {"it encodes more than text (boxes, entities, tags)", "LayoutLMv3 MarkupLM Luke LayoutXLM"},
    {"releases of transformers give different ids to its texts", "CodeLlama Gemma T5 MT5 Udop Reformer BigBird"},
    {"it normalizes texts differently from the model file",
     "Lasr Parakeet Tipsv2 VideoPrism Albert FNet XLNet RemBert DebertaV2 GPTSw3 Siglip Siglip2 BertGeneration"},
    {"its ids differ from the model file's",
     "XLMRoberta XLMProphetNet ProphetNet Camembert Barthez MBart MBart50 Nllb SeamlessM4T PLBart Pegasus XGLM "
     "MLuke"},
    {"its ids are in a second file, which is not supported", "Bartpho M2M100 Marian Speech2Text"},
};

constexpr TokenizerClass kNoClass = {.pairs = Steps::kGpt2, .model = ModelRule::kLibrary};

/// The tokenizer class for a `model_type` in config.json, for files that name no class.
struct ModelType {
  std::string_view type, name;
};
constexpr ModelType kModelTypes[] = {
    {"qwen2", "Qwen2Tokenizer"},
    {"qwen2_moe", "Qwen2Tokenizer"},
    {"qwen3", "Qwen2Tokenizer"},
    {"qwen3_moe", "Qwen2Tokenizer"},
    {"gpt_neox", "GPTNeoXTokenizer"},
    {"cohere", "CohereTokenizer"},
    {"cohere2", "CohereTokenizer"},
    {"roberta", "RobertaTokenizer"},
    {"bart", "BartTokenizer"},
    {"longformer", "LongformerTokenizer"},
    {"led", "LEDTokenizer"},
    {"mvp", "MvpTokenizer"},
    {"deberta", "DebertaTokenizer"},
    {"blenderbot", "BlenderbotTokenizer"},
    {"clip", "CLIPTokenizer"},
    {"openai-gpt", "OpenAIGPTTokenizer"},
    {"ctrl", "CTRLTokenizer"},
    {"xlm", "XLMTokenizer"},
    {"biogpt", "BioGptTokenizer"},
    {"whisper", "WhisperTokenizer"},
    {"t5", "T5Tokenizer"},
    {"mt5", "MT5Tokenizer"},
    {"umt5", "T5Tokenizer"},
    {"gemma", "GemmaTokenizer"},
    {"gemma2", "GemmaTokenizer"},
    {"gemma3", "GemmaTokenizer"},
    {"gemma3_text", "GemmaTokenizer"},
    {"xlm-roberta", "XLMRobertaTokenizer"},
    {"camembert", "CamembertTokenizer"},
    {"albert", "AlbertTokenizer"},
    {"xlnet", "XLNetTokenizer"},
    {"mbart", "MBartTokenizer"},
    {"pegasus", "PegasusTokenizer"},
    {"big_bird", "BigBirdTokenizer"},
    {"reformer", "ReformerTokenizer"},
    {"rembert", "RemBertTokenizer"},
    {"deberta-v2", "DebertaV2Tokenizer"},
    {"m2m_100", "M2M100Tokenizer"},
    {"marian", "MarianTokenizer"},
    {"xglm", "XGLMTokenizer"},
    {"gpt-sw3", "GPTSw3Tokenizer"},
    {"seamless_m4t", "SeamlessM4TTokenizer"},
};

std::optional<TokenizerClass> find_class(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const TokenizerClass& known : kClasses) {
    if (known.name == name) return known;
  }
  if (name.ends_with("Tokenizer")) name.remove_suffix(9);
  for (const RefusedClasses& refused : kRefusedClasses) {
    const std::vector<std::string> names = absl::StrSplit(refused.names, ' ');
    if (std::find(names.begin(), names.end(), name) != names.end()) return TokenizerClass{.why = refused.why};
  }
  return std::nullopt;
}

std::string text_under(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

std::string class_in_config(const json& config) {
  if (std::string name = text_under(config, "tokenizer_class"); !name.empty()) return name;
  const std::string type = text_under(config, "model_type");
  const auto* const at =
      std::find_if(std::begin(kModelTypes), std::end(kModelTypes), [&](const ModelType& m) { return m.type == type; });
  return at == std::end(kModelTypes) ? "" : std::string(at->name);
}

Error refusal(const TokenizerFiles& files, const std::string& name, std::string_view why, bool pairs) {
  return input_error(
      "tokenizer", files.shown, ": the tokenizer class ", printable(name), " is not supported for ",
      pairs ? "vocab.json with merges.txt" : "a SentencePiece model", ": ", why,
      "; use the tokenizer.json instead, which AutoTokenizer.from_pretrained(...).save_pretrained(DIR) of ",
      "transformers writes",
      pairs ? "" : "; or put the .model alone into a folder to get the ids of the SentencePiece library");
}

TokenizerClass class_for(const TokenizerFiles& files, bool pairs) {
  const std::string name = class_name_of(files);
  if (name.empty()) return kNoClass;
  const std::optional<TokenizerClass> found = find_class(name);
  if (!found) throw refusal(files, name, "unknown class", pairs);
  const bool refused = pairs ? found->pairs == Steps::kRefused : found->model == ModelRule::kRefused;
  if (refused) throw refusal(files, name, found->why.empty() ? "it reads other files" : found->why, pairs);
  return *found;
}

}  // namespace

json object_in(const TokenizerFiles& files, const std::string& name) {
  const std::string* const text = files.find(name);
  if (text == nullptr) return json::object();
  json value;
  io::reading_json(
      [&](const std::string& sentence) { return input_error("tokenizer", files.shown, ": ", name, ": ", sentence); },
      [&] { value = io::parse_json(*text); });
  if (!value.is_object())
    throw input_error("tokenizer", files.shown, ": ", name, ": expected a JSON object, got a JSON ", value.type_name(),
                      "; correct the file");
  return value;
}

std::string class_name_of(const TokenizerFiles& files) {
  if (std::string name = text_under(object_in(files, "tokenizer_config.json"), "tokenizer_class"); !name.empty())
    return name;
  return class_in_config(object_in(files, "config.json"));
}

TokenizerClass class_for_pairs(const TokenizerFiles& files) { return class_for(files, true); }
TokenizerClass class_for_model(const TokenizerFiles& files) { return class_for(files, false); }

bool config_json_decides(const TokenizerFiles& files, const std::string& config_json, bool pairs) {
  if (!text_under(object_in(files, "tokenizer_config.json"), "tokenizer_class").empty()) return false;
  const std::optional<json> config = io::try_parse_json(config_json);
  if (!config || !config->is_object()) return false;
  const std::string name = class_in_config(*config);
  if (name.empty()) return false;
  const std::optional<TokenizerClass> found = find_class(name);
  return !found || (pairs ? found->pairs != Steps::kGpt2 || found->around != Around::kNothing
                          : found->model == ModelRule::kRefused);
}

}  // namespace ashlar::data
