#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/attention.h"

/// The parts of attention that are compiled once per instruction set, and how their work is cut. Used by attention.cpp
/// and its tests only.
namespace ashlar::cpu::attention {

/// Queries and keys are taken in blocks of this many. 64 x 64 scores and one 64 x 64 operand fit a 32 KiB L1 cache.
inline constexpr int64_t kBlockSize = 64;

/// A piece of work whose result does not depend on how the rest is cut.
struct Item {
  int64_t b = 0;
  int64_t h_begin = 0, h_end = 0;      ///< query heads, all of one KV head
  int64_t t_begin = 0, t_end = 0;      ///< queries; t_begin is a multiple of kBlockSize
  int64_t key_begin = 0, key_end = 0;  ///< keys; key_begin is a multiple of kBlockSize
  bool want_dq = false;                ///< backward: write dq of these queries (needs all keys)
  bool want_dkv = false;  ///< backward: write dk, dv of these keys (needs all queries and heads of the KV head)
};

/// How one call is cut into items, and what each thread needs for it.
struct Plan {
  /// Backward in one pass gives dq, dk and dv of a KV head together; in two passes scores are computed twice but every
  /// query block and every range of keys is an item of its own. Both add in the same order: same bits.
  enum class Kind : uint8_t { kForward, kFused, kTwoPass };

  Kind kind = Kind::kForward;
  int64_t B = 0, H = 0, G = 0, T_q = 0, T_kv = 0;
  int64_t span = 0;  ///< forward: queries an item; two passes: keys an item of the first
  int64_t num_items = 0;
  int64_t num_dkv_items = 0;  ///< two passes: the first num_dkv_items items write dk and dv, the others dq
  int64_t thread_bytes = 0;   ///< scratch of one thread

  Item item(int64_t index) const;  ///< costly items come first
};

/// Pure functions of the shapes and dtype.
Plan plan_forward(const AttentionShape& shape, DType storage, int threads);
Plan plan_backward(const AttentionShape& shape, DType storage, int threads);

/// Does one item with the best instruction set allowed. `scratch`: plan.thread_bytes bytes, 64-byte aligned.
void run_forward_item(const AttentionForward& args, const Item& item, std::byte* scratch);
void run_backward_item(const AttentionBackward& args, const Item& item, std::byte* scratch);

/// Scratch bytes of one item of at most `queries` by `keys`.
int64_t forward_item_bytes(int64_t D, DType storage, int64_t queries);
int64_t backward_item_bytes(int64_t D, DType storage, int64_t keys);

/// Hands out 64-byte aligned parts of a block; without a block it only counts, so that the same lines size and carve.
class ScratchCarver {
 public:
  explicit ScratchCarver(std::byte* base) : base_(base) {}

  template <typename T>
  T* take(int64_t count) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_bytes_);
    used_bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return part;
  }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* base_;
  int64_t used_bytes_ = 0;
};

}  // namespace ashlar::cpu::attention
