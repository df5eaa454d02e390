#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/attention.h"

namespace ashlar::cpu {

/// Attention forward and backward of core/backend/attention.h on `threads` cores, in caller-given scratch space.
/// Results are the same bits for any thread count. `workspace`: the bytes the matching function asks for, 64-byte
/// aligned, content garbage before and after.
/// Arguments have passed the contract's check, and head_dim is a multiple of 4 up to 256.
int64_t attention_forward_workspace_bytes(const AttentionForward& args, int threads);
void attention_forward(const AttentionForward& args, int threads, std::byte* workspace);

/// dq may be absent; dk and dv are given or absent together.
int64_t attention_backward_workspace_bytes(const AttentionBackward& args, int threads);
void attention_backward(const AttentionBackward& args, int threads, std::byte* workspace);

}  // namespace ashlar::cpu
