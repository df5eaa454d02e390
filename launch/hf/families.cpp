#include <algorithm>

#include "launch/hf/shared/rows.h"

namespace ashlar::hf {

// One line for each family: the name of its function. An export takes the first family that can represent the model, so
// a simple family comes before the families that extend it.
#define ASHLAR_HF_FAMILIES(X) \
  X(llama)                    \
  X(qwen2)                    \
  X(mistral)                  \
  X(gpt2)                     \
  X(openai_gpt)               \
  X(gptj)                     \
  X(gpt_neox)                 \
  X(phi)                      \
  X(phi3)                     \
  X(persimmon)                \
  X(olmo)                     \
  X(stablelm)                 \
  X(falcon)                   \
  X(bloom)                    \
  X(ministral)                \
  X(cwm)                      \
  X(ministral3)               \
  X(gpt_neo)                  \
  X(mpt)                      \
  X(qwen3)                    \
  X(olmo2)                    \
  X(olmo3)                    \
  X(exaone4)                  \
  X(granite)                  \
  X(granite_swa)              \
  X(seed_oss)                 \
  X(helium)                   \
  X(ernie4_5)                 \
  X(glm)                      \
  X(glm4)                     \
  X(cohere)                   \
  X(cohere2)                  \
  X(chameleon)                \
  X(hunyuan)                  \
  X(hyperclovax)              \
  X(starcoder2)               \
  X(smollm3)                  \
  X(arcee)                    \
  X(nemotron)                 \
  X(nanochat)                 \
  X(jais2)                    \
  X(gemma)                    \
  X(gemma2)                   \
  X(gemma3)                   \
  X(gemma4)                   \
  X(vaultgemma)               \
  X(gpt_bigcode)              \
  X(opt)                      \
  X(biogpt)                   \
  X(xglm)                     \
  X(codegen)                  \
  X(qwen)                     \
  X(baichuan)                 \
  X(apertus)                  \
  X(youtu)                    \
  X(minicpm3)                 \
  X(mixtral)                  \
  X(qwen3_moe)                \
  X(qwen2_moe)                \
  X(olmoe)                    \
  X(granitemoe)               \
  X(granitemoeshared)         \
  X(deepseek_v2)              \
  X(deepseek_v3)              \
  X(glm4_moe)                 \
  X(ernie4_5_moe)             \
  X(gpt_oss)                  \
  X(llama4_text)

#define DECLARE(NAME) Family NAME();
ASHLAR_HF_FAMILIES(DECLARE)
#undef DECLARE

const std::vector<Family>& families() {
#define MAKE(NAME) NAME(),
  static const std::vector<Family> all = [] {
    std::vector<Family> made = {ASHLAR_HF_FAMILIES(MAKE)};
    for (Family& family : made) {
      family.base.init.scheme = family.init_scheme;
      family.rows.push_back(flag("tie_word_embeddings", {FIELD(tied)}, family.tied_by_default));
      family.rows.push_back(init_std(family.init_std_key));
    }
    return made;
  }();
#undef MAKE
  return all;
}

const Family* family_from_class(std::string_view class_name) {
  for (const Family& family : families()) {
    const auto& old = family.old_class_names;
    if (family.class_name == class_name || std::ranges::find(old, class_name) != old.end()) return &family;
  }
  return nullptr;
}

const Family* family_from_model_type(std::string_view model_type) {
  for (const Family& family : families())
    if (family.model_type == model_type) return &family;
  return nullptr;
}

}  // namespace ashlar::hf
