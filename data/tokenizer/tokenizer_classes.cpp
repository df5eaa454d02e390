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

/// The class (without "Tokenizer") for each `model_type` in config.json, for files that name no class: as the auto
/// classes of transformers 4.56 and 5.23 choose it, of two different choices the one that is not supported. Types whose
/// files are read like those without a class are left out.
struct ModelTypes {
  std::string_view name;
  const char* types;
};
constexpr ModelTypes kModelTypes[] = {
    {"Albert", "albert nystromformer yoso"},
    {"Bart", "bart florence2"},
    {"Barthez", "barthez"},
    {"Bartpho", "bartpho"},
    {"BertGeneration", "bert-generation"},
    {"BertJapanese", "bert-japanese"},
    {"Bertweet", "bertweet"},
    {"BigBird", "big_bird"},
    {"BioGpt", "biogpt"},
    {"BlenderbotSmall", "blenderbot-small"},
    {"Blenderbot", "blenderbot"},
    {"Bloom", "bloom"},
    {"CLIP", "aimv2 clip clipseg groupvit omdet-turbo oneformer owlv2 owlvit sam3 sam3_video xclip"},
    {"CTRL", "ctrl"},
    {"Camembert", "camembert"},
    {"Clvp", "clvp"},
    {"CodeLlama", "code_llama"},
    {"Cohere", "aya_vision cohere cohere2"},
    {"Cpm", "cpm"},
    {"Deberta", "deberta"},
    {"DebertaV2", "deberta-v2"},
    {"Esmc", "esmc esmfold2"},
    {"FNet", "fnet"},
    {"FSMT", "fsmt"},
    {"Flaubert", "flaubert"},
    {"GPTNeoX", "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmo2 olmoe rwkv stablelm xlstm"},
    {"GPTSw3", "gpt-sw3"},
    {"Gemma",
     "diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 siglip2 "
     "t5gemma zaya"},
    {"Herbert", "herbert"},
    {"LED", "led"},
    {"Lasr", "lasr_ctc lasr_encoder"},
    {"LayoutLMv3", "layoutlmv3 lilt"},
    {"LayoutXLM", "layoutxlm"},
    {"Longformer", "longformer"},
    {"Luke", "luke"},
    {"M2M100", "m2m_100"},
    {"MBart50", "mbart50"},
    {"MBart", "mbart"},
    {"MLuke", "mluke"},
    {"MT5", "mt5"},
    {"Marian", "marian"},
    {"MarkupLM", "markuplm"},
    {"Mvp", "mvp"},
    {"Nllb", "nllb nllb-moe"},
    {"Nougat", "nougat pp_formulanet"},
    {"OpenAIGPT", "openai-gpt"},
    {"PLBart", "plbart"},
    {"Parakeet", "granite_speech5_ctc nemotron3_5_asr nemotron_asr_streaming parakeet_ctc parakeet_rnnt parakeet_tdt"},
    {"Pegasus", "bigbird_pegasus pegasus pegasus_x"},
    {"Phobert", "phobert"},
    {"ProphetNet", "prophetnet"},
    {"Qwen2",
     "audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr "
     "moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 "
     "qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice"},
    {"Qwen3_5", "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp"},
    {"Reformer", "reformer"},
    {"RemBert", "rembert"},
    {"Roberta", "bridgetower clap data2vec-text ibert mega mra roberta roberta-prelayernorm"},
    {"SeamlessM4T", "seamless_m4t seamless_m4t_v2"},
    {"Siglip", "siglip"},
    {"Speech2Text", "speech_to_text"},
    {"SpeechT5", "speecht5"},
    {"T5", "longt5 musicgen musicgen_melody pix2struct switch_transformers t5 umt5"},
    {"Tipsv2", "tipsv2"},
    {"Udop", "udop"},
    {"VideoPrism", "videoprism"},
    {"Whisper", "whisper"},
    {"XGLM", "xglm"},
    {"XLMProphetNet", "xlm-prophetnet"},
    {"XLMRoberta", "gte jina_embeddings_v3 kosmos-2 metaclip_2 trocr xlm-roberta xlm-roberta-xl xmod"},
    {"XLM", "xlm"},
    {"XLNet", "xlnet"},
};

bool lists(const char* words, std::string_view word) {
  const std::vector<std::string> all = absl::StrSplit(words, ' ');
  return std::find(all.begin(), all.end(), word) != all.end();
}

std::optional<TokenizerClass> find_class(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const TokenizerClass& known : kClasses) {
    if (known.name == name) return known;
  }
  if (name.ends_with("Tokenizer")) name.remove_suffix(9);
  for (const RefusedClasses& refused : kRefusedClasses)
    if (lists(refused.names, name)) return TokenizerClass{.why = refused.why};
  return std::nullopt;
}

std::string text_under(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

std::string class_in_config(const json& config) {
  if (std::string name = text_under(config, "tokenizer_class"); !name.empty()) return name;
  const std::string type = text_under(config, "model_type");
  const auto* const at = std::find_if(std::begin(kModelTypes), std::end(kModelTypes),
                                      [&](const ModelTypes& m) { return lists(m.types, type); });
  return at == std::end(kModelTypes) ? "" : str_cat(at->name, "Tokenizer");
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
