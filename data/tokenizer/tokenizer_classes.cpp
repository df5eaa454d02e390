#include "data/tokenizer/tokenizer_classes.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/json.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

constexpr std::string_view kOfGpt2 = "bos=<|endoftext|> eos=<|endoftext|> unk=<|endoftext|>";
constexpr std::string_view kOfRoberta = "bos=<s> eos=</s> unk=<unk> sep=</s> pad=<pad> cls=<s> mask=<mask>";
constexpr std::string_view kNoSteps = "its files do not define how a text is split; only its tokenizer.json does";
constexpr std::string_view kWordEnds = "its words end with </w>, which is another BPE variant";
constexpr std::string_view kWords = "it has more than text (boxes, entities, tags)";
constexpr std::string_view kOwnText = "it rewrites texts in its own program code";
constexpr std::string_view kRenumbers = "its ids differ from the model file's";
constexpr std::string_view kRewrites = "it normalizes texts differently from the model file";
constexpr std::string_view kReleases = "releases of transformers give its texts different ids";
constexpr std::string_view kTwoFiles = "its ids are in a second file, which is not supported";

/// Every class of transformers 4.57 and 5.24 whose files are vocab.json with merges.txt or a SentencePiece model.
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
    {.name = "RobertaTokenizer",
     .pairs = Steps::kGpt2,
     .usual = kOfRoberta,
     .around = Around::kClsSep,
     .must_say = "mask_token"},
    {.name = "BartTokenizer",
     .pairs = Steps::kGpt2,
     .usual = kOfRoberta,
     .around = Around::kClsSep,
     .must_say = "mask_token"},
    {.name = "LongformerTokenizer",
     .pairs = Steps::kGpt2,
     .usual = kOfRoberta,
     .around = Around::kClsSep,
     .must_say = "mask_token"},
    {.name = "LEDTokenizer",
     .pairs = Steps::kGpt2,
     .usual = kOfRoberta,
     .around = Around::kClsSep,
     .must_say = "mask_token"},
    {.name = "MvpTokenizer",
     .pairs = Steps::kGpt2,
     .usual = kOfRoberta,
     .around = Around::kClsSep,
     .must_say = "mask_token"},
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
    {.name = "CLIPTokenizer", .why = kWordEnds},
    {.name = "OpenAIGPTTokenizer", .why = kWordEnds},
    {.name = "HerbertTokenizer", .why = kWordEnds},
    {.name = "BioGptTokenizer", .why = kWordEnds},
    {.name = "BlenderbotSmallTokenizer", .why = kWordEnds},
    {.name = "CTRLTokenizer", .why = kWordEnds},
    {.name = "FlaubertTokenizer", .why = kWordEnds},
    {.name = "XLMTokenizer", .why = kWordEnds},
    {.name = "FSMTTokenizer", .why = kWordEnds},
    {.name = "PhobertTokenizer", .why = kWordEnds},
    {.name = "BertweetTokenizer", .why = kWordEnds},
    {.name = "ClvpTokenizer", .why = kOwnText},
    {.name = "WhisperTokenizer", .why = "its template depends on its language and task"},
    {.name = "NougatTokenizer", .why = kNoSteps},
    {.name = "Qwen3_5Tokenizer", .why = kNoSteps},
    {.name = "BloomTokenizer", .why = kNoSteps},
    {.name = "EsmcTokenizer", .why = kNoSteps},
    {.name = "LayoutLMv3Tokenizer", .why = kWords},
    {.name = "MarkupLMTokenizer", .why = kWords},
    {.name = "LukeTokenizer", .why = kWords},
    {.name = "PreTrainedTokenizer", .model = ModelRule::kLibrary, .why = kNoSteps},
    {.name = "TokenizersBackend", .model = ModelRule::kLibrary, .why = kNoSteps},
    {.name = "LlamaTokenizer", .model = ModelRule::kLibrary, .why = kNoSteps, .usual = "bos=<s> eos=</s> unk=<unk>"},
    {.name = "CodeLlamaTokenizer", .why = kReleases},
    {.name = "GemmaTokenizer", .why = kReleases},
    {.name = "T5Tokenizer", .why = kReleases},
    {.name = "MT5Tokenizer", .why = kReleases},
    {.name = "UdopTokenizer", .why = kReleases},
    {.name = "ReformerTokenizer", .why = kReleases},
    {.name = "BigBirdTokenizer", .why = kReleases},
    {.name = "LasrTokenizer", .why = kRewrites},
    {.name = "ParakeetTokenizer", .why = kRewrites},
    {.name = "Tipsv2Tokenizer", .why = kRewrites},
    {.name = "VideoPrismTokenizer", .why = kRewrites},
    {.name = "AlbertTokenizer", .why = kRewrites},
    {.name = "FNetTokenizer", .why = kRewrites},
    {.name = "XLNetTokenizer", .why = kRewrites},
    {.name = "RemBertTokenizer", .why = kRewrites},
    {.name = "DebertaV2Tokenizer", .why = kRewrites},
    {.name = "GPTSw3Tokenizer", .why = kRewrites},
    {.name = "SiglipTokenizer", .why = kRewrites},
    {.name = "Siglip2Tokenizer", .why = kRewrites},
    {.name = "CpmTokenizer", .why = kOwnText},
    {.name = "BertGenerationTokenizer", .why = kRewrites},
    {.name = "SpeechT5Tokenizer", .why = kOwnText},
    {.name = "BertJapaneseTokenizer", .why = kOwnText},
    {.name = "XLMRobertaTokenizer", .why = kRenumbers},
    {.name = "XLMProphetNetTokenizer", .why = kRenumbers},
    {.name = "ProphetNetTokenizer", .why = kRenumbers},
    {.name = "CamembertTokenizer", .why = kRenumbers},
    {.name = "BarthezTokenizer", .why = kRenumbers},
    {.name = "BartphoTokenizer", .why = kTwoFiles},
    {.name = "MBartTokenizer", .why = kRenumbers},
    {.name = "MBart50Tokenizer", .why = kRenumbers},
    {.name = "NllbTokenizer", .why = kRenumbers},
    {.name = "SeamlessM4TTokenizer", .why = kRenumbers},
    {.name = "PLBartTokenizer", .why = kRenumbers},
    {.name = "PegasusTokenizer", .why = kRenumbers},
    {.name = "XGLMTokenizer", .why = kRenumbers},
    {.name = "MLukeTokenizer", .why = kRenumbers},
    {.name = "LayoutXLMTokenizer", .why = kWords},
    {.name = "M2M100Tokenizer", .why = kTwoFiles},
    {.name = "MarianTokenizer", .why = kTwoFiles},
    {.name = "Speech2TextTokenizer", .why = kTwoFiles},
};
constexpr TokenizerClass kNoClass = {.pairs = Steps::kGpt2, .model = ModelRule::kLibrary};

/// The class of a model type, for files that name no class.
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

const TokenizerClass* find_class(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  const auto* const at =
      std::find_if(std::begin(kClasses), std::end(kClasses), [&](const TokenizerClass& c) { return c.name == name; });
  return at == std::end(kClasses) ? nullptr : at;
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
  return input_error("tokenizer", files.shown, ": the tokenizer class ", printable(name), " is not supported for ",
                     pairs ? "vocab.json with merges.txt" : "a SentencePiece model", ": ", why,
                     "; give its tokenizer.json, which AutoTokenizer.from_pretrained(...).save_pretrained(DIR) of ",
                     "transformers writes",
                     pairs ? "" : ", or the .model in a separate folder for the ids of the SentencePiece library");
}

const TokenizerClass& class_for(const TokenizerFiles& files, bool pairs) {
  const std::string name = class_name_of(files);
  if (name.empty()) return kNoClass;
  const TokenizerClass* const found = find_class(name);
  if (found == nullptr) throw refusal(files, name, "unknown class", pairs);
  const bool refused = pairs ? found->pairs == Steps::kRefused : found->model == ModelRule::kRefused;
  if (refused) throw refusal(files, name, found->why.empty() ? "it has other files" : found->why, pairs);
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
  if (!value.is_object()) throw input_error("tokenizer", files.shown, ": ", name, ": expected an object");
  return value;
}

std::string class_name_of(const TokenizerFiles& files) {
  if (std::string name = text_under(object_in(files, "tokenizer_config.json"), "tokenizer_class"); !name.empty())
    return name;
  return class_in_config(object_in(files, "config.json"));
}

const TokenizerClass& class_for_pairs(const TokenizerFiles& files) { return class_for(files, true); }
const TokenizerClass& class_for_model(const TokenizerFiles& files) { return class_for(files, false); }

bool config_json_decides(const TokenizerFiles& files, const std::string& config_json, bool pairs) {
  if (!text_under(object_in(files, "tokenizer_config.json"), "tokenizer_class").empty()) return false;
  const std::optional<json> config = io::try_parse_json(config_json);
  if (!config || !config->is_object()) return false;
  const std::string name = class_in_config(*config);
  if (name.empty()) return false;
  const TokenizerClass* const found = find_class(name);
  return found == nullptr || (pairs ? found->pairs != Steps::kGpt2 || found->around != Around::kNothing
                                    : found->model == ModelRule::kRefused);
}

}  // namespace ashlar::data
