#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

TensorNames fairseq_tensors(TensorNames own) {
  own.norm1 = "self_attn_layer_norm";
  own.norm2 = "final_layer_norm";
  own.attn_out = "self_attn.out_proj";
  own.up = "fc1";
  own.down = "fc2";
  return own;
}

Rows fairseq_dropouts() {
  return {always_zero("layerdrop", "expected 0: layer dropout is not supported; set it to 0"),
          always_zero("activation_dropout", "expected 0: dropout inside the FFN is not supported; set it to 0")};
}

}  // namespace ashlar::hf
