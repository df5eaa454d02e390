#include <algorithm>

#include "launch/hf/shared/rows.h"

namespace ashlar::hf {

// clang-format off
const std::vector<Family>& families() {
  // One line for each family: it declares the function of the family's file and calls it. The plainest layout of a
  // kind of model stands first, because an export takes the first family that has the model.
  static const std::vector<Family> all = [] {
    std::vector<Family> made = {
        [] { extern Family llama(); return llama(); }(),
        [] { extern Family qwen2(); return qwen2(); }(),
        [] { extern Family mistral(); return mistral(); }(),
        [] { extern Family gpt2(); return gpt2(); }(),
        [] { extern Family openai_gpt(); return openai_gpt(); }(),
        [] { extern Family gptj(); return gptj(); }(),
        [] { extern Family gpt_neox(); return gpt_neox(); }(),
        [] { extern Family phi(); return phi(); }(),
        [] { extern Family phi3(); return phi3(); }(),
        [] { extern Family persimmon(); return persimmon(); }(),
        [] { extern Family olmo(); return olmo(); }(),
        [] { extern Family stablelm(); return stablelm(); }(),
        [] { extern Family falcon(); return falcon(); }(),
        [] { extern Family bloom(); return bloom(); }(),
        [] { extern Family ministral(); return ministral(); }(),
        [] { extern Family cwm(); return cwm(); }(),
        [] { extern Family ministral3(); return ministral3(); }(),
        [] { extern Family gpt_neo(); return gpt_neo(); }(),
        [] { extern Family mpt(); return mpt(); }(),
        [] { extern Family qwen3(); return qwen3(); }(),
        [] { extern Family olmo2(); return olmo2(); }(),
        [] { extern Family olmo3(); return olmo3(); }(),
        [] { extern Family exaone4(); return exaone4(); }(),
        [] { extern Family granite(); return granite(); }(),
        [] { extern Family granite_swa(); return granite_swa(); }(),
        [] { extern Family seed_oss(); return seed_oss(); }(),
        [] { extern Family helium(); return helium(); }(),
        [] { extern Family ernie4_5(); return ernie4_5(); }(),
        [] { extern Family glm(); return glm(); }(),
        [] { extern Family glm4(); return glm4(); }(),
        [] { extern Family cohere(); return cohere(); }(),
        [] { extern Family cohere2(); return cohere2(); }(),
        [] { extern Family chameleon(); return chameleon(); }(),
        [] { extern Family hunyuan(); return hunyuan(); }(),
        [] { extern Family hyperclovax(); return hyperclovax(); }(),
        [] { extern Family starcoder2(); return starcoder2(); }(),
        [] { extern Family smollm3(); return smollm3(); }(),
        [] { extern Family arcee(); return arcee(); }(),
        [] { extern Family nemotron(); return nemotron(); }(),
        [] { extern Family nanochat(); return nanochat(); }(),
        [] { extern Family jais2(); return jais2(); }(),
        [] { extern Family gemma(); return gemma(); }(),
        [] { extern Family gemma2(); return gemma2(); }(),
        [] { extern Family gemma3(); return gemma3(); }(),
        [] { extern Family gemma4(); return gemma4(); }(),
        [] { extern Family vaultgemma(); return vaultgemma(); }(),
        [] { extern Family gpt_bigcode(); return gpt_bigcode(); }(),
        [] { extern Family opt(); return opt(); }(),
        [] { extern Family biogpt(); return biogpt(); }(),
        [] { extern Family xglm(); return xglm(); }(),
        [] { extern Family codegen(); return codegen(); }(),
        [] { extern Family qwen(); return qwen(); }(),
        [] { extern Family baichuan(); return baichuan(); }(),
        [] { extern Family apertus(); return apertus(); }(),
        [] { extern Family youtu(); return youtu(); }(),
        [] { extern Family minicpm3(); return minicpm3(); }(),
    };
    for (Family& family : made) {
      family.base.init.scheme = family.init_scheme;
      family.rows.push_back(flag("tie_word_embeddings", {FIELD(tied)}, family.tied_by_default));
      family.rows.push_back(init_std(family.init_std_key));
    }
    return made;
  }();
  return all;
}
// clang-format on

const Family* family_from_class(std::string_view class_name) {
  for (const Family& family : families()) {
    const auto& old = family.old_class_names;
    if (family.class_name == class_name || std::find(old.begin(), old.end(), class_name) != old.end()) return &family;
  }
  return nullptr;
}

const Family* family_from_model_type(std::string_view model_type) {
  for (const Family& family : families())
    if (family.model_type == model_type) return &family;
  return nullptr;
}

}  // namespace ashlar::hf
