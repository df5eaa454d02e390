#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ashlar::hf {

/// The Hugging Face model classes that are read and written.
enum class Family : uint8_t {
  kGpt2,
  kOpenAiGpt,
  kGptJ,
  kGptNeoX,
  kLlama,
  kQwen2,
  kPhi,
  kPhi3,
  kPersimmon,
  kStableLm,
  kFalcon,
  kBloom,
  kQwen3,
  kOlmo2,
  kOlmo3,
  kGlm,
  kGlm4,
  kGranite,
  kGraniteSwa,
  kHyperClovaX,
  kCohere,
  kChameleon,
  kCohere2,
  kHelium,
  kHunYuan,
  kSeedOss,
  kErnie45,
  kMistral,
  kMinistral,
  kMinistral3,
  kStarcoder2,
  kGptNeo,
  kMpt,
  kOlmo,
  kSmolLm3,
  kGemma,
  kGemma2,
  kGemma3,
  kGemma4,
  kVaultGemma,
  kExaone4,
  kCwm,
  kNemotron,
  kNanoChat,
  kArcee,
  kJais2,
  kOpt,
  kBioGpt,
  kXglm,
  kCodeGen,
  kGptBigCode,
  kQwen,
  kBaichuan,
  kApertus,
  kMiniCpm3,
  kYoutu,
};

/// In the order in which an export without a wanted class tries them: the plainest layout first.
inline constexpr std::array kFamilies = {
    Family::kLlama,      Family::kQwen2,      Family::kMistral,   Family::kGpt2,     Family::kOpenAiGpt,
    Family::kGptJ,       Family::kGptNeoX,    Family::kPhi,       Family::kPhi3,     Family::kPersimmon,
    Family::kOlmo,       Family::kStableLm,   Family::kFalcon,    Family::kBloom,    Family::kMinistral,
    Family::kCwm,        Family::kMinistral3, Family::kGptNeo,    Family::kMpt,      Family::kQwen3,
    Family::kOlmo2,      Family::kOlmo3,      Family::kExaone4,   Family::kGranite,  Family::kGraniteSwa,
    Family::kSeedOss,    Family::kHelium,     Family::kErnie45,   Family::kGlm,      Family::kGlm4,
    Family::kCohere,     Family::kCohere2,    Family::kChameleon, Family::kHunYuan,  Family::kHyperClovaX,
    Family::kStarcoder2, Family::kSmolLm3,    Family::kArcee,     Family::kNemotron, Family::kNanoChat,
    Family::kJais2,      Family::kGemma,      Family::kGemma2,    Family::kGemma3,   Family::kGemma4,
    Family::kVaultGemma, Family::kGptBigCode, Family::kOpt,       Family::kBioGpt,   Family::kXglm,
    Family::kCodeGen,    Family::kQwen,       Family::kBaichuan,  Family::kApertus,  Family::kYoutu,
    Family::kMiniCpm3,
};

std::string_view class_name(Family family);  ///< "GPT2LMHeadModel", as in config.json `architectures`
std::string_view model_type(Family family);  ///< "gpt2", as in config.json `model_type`
/// What its parameter names begin with: "transformer.", "model.", "gpt_neox.". A file of the model without its head
/// leaves it out.
std::string_view name_prefix(Family family);

std::optional<Family> family_from_class(std::string_view name);
std::optional<Family> family_from_model_type(std::string_view name);

}  // namespace ashlar::hf
