#include "launch/hf/family.h"

#include "core/base/error.h"

namespace ashlar::hf {
namespace {

struct Names {
  Family family;
  std::string_view class_name, model_type, prefix;
};

constexpr Names kNames[] = {
    {Family::kGpt2, "GPT2LMHeadModel", "gpt2", "transformer."},
    {Family::kOpenAiGpt, "OpenAIGPTLMHeadModel", "openai-gpt", "transformer."},
    {Family::kGptJ, "GPTJForCausalLM", "gptj", "transformer."},
    {Family::kGptNeoX, "GPTNeoXForCausalLM", "gpt_neox", "gpt_neox."},
    {Family::kLlama, "LlamaForCausalLM", "llama", "model."},
    {Family::kQwen2, "Qwen2ForCausalLM", "qwen2", "model."},
    {Family::kPhi, "PhiForCausalLM", "phi", "model."},
    {Family::kPhi3, "Phi3ForCausalLM", "phi3", "model."},
    {Family::kPersimmon, "PersimmonForCausalLM", "persimmon", "model."},
    {Family::kStableLm, "StableLmForCausalLM", "stablelm", "model."},
    {Family::kFalcon, "FalconForCausalLM", "falcon", "transformer."},
    {Family::kBloom, "BloomForCausalLM", "bloom", "transformer."},
    {Family::kQwen3, "Qwen3ForCausalLM", "qwen3", "model."},
    {Family::kOlmo2, "Olmo2ForCausalLM", "olmo2", "model."},
    {Family::kOlmo3, "Olmo3ForCausalLM", "olmo3", "model."},
    {Family::kGlm, "GlmForCausalLM", "glm", "model."},
    {Family::kGlm4, "Glm4ForCausalLM", "glm4", "model."},
    {Family::kGranite, "GraniteForCausalLM", "granite", "model."},
    {Family::kGraniteSwa, "GraniteSWAForCausalLM", "granite_swa", "model."},
    {Family::kHyperClovaX, "HyperCLOVAXForCausalLM", "hyperclovax", "model."},
    {Family::kCohere, "CohereForCausalLM", "cohere", "model."},
    {Family::kChameleon, "ChameleonForConditionalGeneration", "chameleon", "model."},
    {Family::kCohere2, "Cohere2ForCausalLM", "cohere2", "model."},
    {Family::kHelium, "HeliumForCausalLM", "helium", "model."},
    {Family::kHunYuan, "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", "model."},
    {Family::kSeedOss, "SeedOssForCausalLM", "seed_oss", "model."},
    {Family::kErnie45, "Ernie4_5ForCausalLM", "ernie4_5", "model."},
    {Family::kMistral, "MistralForCausalLM", "mistral", "model."},
    {Family::kMinistral, "MinistralForCausalLM", "ministral", "model."},
    {Family::kMinistral3, "Ministral3ForCausalLM", "ministral3", "model."},
    {Family::kStarcoder2, "Starcoder2ForCausalLM", "starcoder2", "model."},
    {Family::kGptNeo, "GPTNeoForCausalLM", "gpt_neo", "transformer."},
    {Family::kMpt, "MptForCausalLM", "mpt", "transformer."},
    {Family::kOlmo, "OlmoForCausalLM", "olmo", "model."},
    {Family::kSmolLm3, "SmolLM3ForCausalLM", "smollm3", "model."},
    {Family::kGemma, "GemmaForCausalLM", "gemma", "model."},
    {Family::kGemma2, "Gemma2ForCausalLM", "gemma2", "model."},
    {Family::kGemma3, "Gemma3ForCausalLM", "gemma3_text", "model."},
    {Family::kGemma4, "Gemma4ForCausalLM", "gemma4_text", "model."},
    {Family::kVaultGemma, "VaultGemmaForCausalLM", "vaultgemma", "model."},
    {Family::kExaone4, "Exaone4ForCausalLM", "exaone4", "model."},
    {Family::kCwm, "CwmForCausalLM", "cwm", "model."},
    {Family::kNemotron, "NemotronForCausalLM", "nemotron", "model."},
    {Family::kNanoChat, "NanoChatForCausalLM", "nanochat", "model."},
    {Family::kArcee, "ArceeForCausalLM", "arcee", "model."},
    {Family::kJais2, "Jais2ForCausalLM", "jais2", "model."},
    {Family::kOpt, "OPTForCausalLM", "opt", "model."},
    {Family::kBioGpt, "BioGptForCausalLM", "biogpt", "biogpt."},
    {Family::kXglm, "XGLMForCausalLM", "xglm", "model."},
    {Family::kCodeGen, "CodeGenForCausalLM", "codegen", "transformer."},
    {Family::kGptBigCode, "GPTBigCodeForCausalLM", "gpt_bigcode", "transformer."},
    {Family::kQwen, "QWenLMHeadModel", "qwen", "transformer."},
    {Family::kBaichuan, "BaichuanForCausalLM", "baichuan", "model."},
    {Family::kApertus, "ApertusForCausalLM", "apertus", "model."},
    {Family::kMiniCpm3, "MiniCPM3ForCausalLM", "minicpm3", "model."},
    {Family::kYoutu, "YoutuForCausalLM", "youtu", "model."},
};

/// Names of the same classes in older files, read alone.
struct OtherName {
  std::string_view class_name;
  Family family;
};
constexpr OtherName kOtherNames[] = {{"MPTForCausalLM", Family::kMpt}, {"LLaMAForCausalLM", Family::kLlama}};

const Names& names_of(Family family) {
  for (const Names& row : kNames) {
    if (row.family == family) return row;
  }
  throw Bug("hf::Family out of range");
}

}  // namespace

std::string_view class_name(Family family) { return names_of(family).class_name; }
std::string_view model_type(Family family) { return names_of(family).model_type; }
std::string_view name_prefix(Family family) { return names_of(family).prefix; }

std::optional<Family> family_from_class(std::string_view name) {
  for (const Names& row : kNames) {
    if (row.class_name == name) return row.family;
  }
  for (const OtherName& row : kOtherNames) {
    if (row.class_name == name) return row.family;
  }
  return std::nullopt;
}

std::optional<Family> family_from_model_type(std::string_view name) {
  for (const Names& row : kNames) {
    if (row.model_type == name) return row.family;
  }
  return std::nullopt;
}

}  // namespace ashlar::hf
