#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/attention.h"
#include "kernels/cpu/cpu_info.h"

/// The division of attention into items of work, and the kernels for one item, which are compiled once per instruction
/// set. Only this folder and its tests use this header.
namespace ashlar::cpu::attention {

/// The number of queries or keys in a block. 64 x 64 scores and one 64 x 64 operand fit into a 32 KiB L1 cache.
inline constexpr int64_t kBlockSize = 64;

/// A piece of work of one call. Its result does not depend on how the rest of the call is divided.
struct Item {
  int64_t b = 0;
  int64_t h_begin = 0, h_end = 0;      ///< query heads, all of one KV head
  int64_t t_begin = 0, t_end = 0;      ///< queries; t_begin is a multiple of kBlockSize
  int64_t key_begin = 0, key_end = 0;  ///< keys; key_begin is a multiple of kBlockSize
  bool want_dq = false;                ///< backward: write dq of these queries (needs all keys)
  bool want_dkv = false;  ///< backward: write dk, dv of these keys (needs all queries and heads of the KV head)
  /// Backward: sums of score gradients, [B, H, blocks of queries, buckets], for the gradient of T5's table; null if
  /// this gradient is not wanted. The array is for the whole call; the item writes the sums of its queries, for which
  /// it must have all keys.
  double* bias_sums = nullptr;

  double* bias_sums_of(const AttentionShape& s, int64_t h, int64_t t) const {
    const int64_t blocks = (s.T_q + kBlockSize - 1) / kBlockSize;
    return bias_sums == nullptr ? nullptr
                                : bias_sums + ((b * s.H + h) * blocks + t / kBlockSize) * s.scores.t5_bias.rows;
  }
};

/// Division of one call into items, and the scratch memory of each thread.
struct Plan {
  /// kFused is a backward in one pass: it computes dq, dk and dv of a KV head together. kTwoPass computes scores twice,
  /// but has more and smaller items: one for the dq of each block of queries, one for the dk and dv of each range of
  /// keys. Both add in the same order and give the same bits.
  enum class Kind : uint8_t { kForward, kFused, kTwoPass };

  Kind kind = Kind::kForward;
  int64_t B = 0, H = 0, G = 0, T_q = 0, T_kv = 0;
  int64_t span = 0;  ///< number of queries of an item (forward), or of keys of an item that writes dk and dv
  int64_t num_items = 0;
  int64_t num_dkv_items = 0;  ///< two passes: the first num_dkv_items items write dk and dv, the others dq
  int64_t thread_bytes = 0;   ///< bytes of scratch memory of one thread

  Item item(int64_t index) const;  ///< expensive items come first
};

/// Kernels of forward or backward, compiled for one instruction set.
template <typename Args>
struct ItemKernels {
  /// Computes one item. `scratch`: Plan::thread_bytes bytes, 64-byte aligned, content undefined before and after.
  void (*run)(const Args& args, const Item& item, std::byte* scratch) = nullptr;
  /// Returns the bytes of scratch memory of an item with at most `length` queries (forward) or keys (backward).
  int64_t (*scratch_bytes)(const AttentionShape& shape, DType storage, int64_t length) = nullptr;
};
ItemKernels<AttentionForward> forward_kernels(Isa isa);
ItemKernels<AttentionBackward> backward_kernels(Isa isa);

/// Calls f(S(), T()) with the types of storage and arithmetic.
template <typename F>
auto with_types(DType storage, const F& f) {
  switch (storage) {
    case DType::kFloat32: return f(float(), float());
    case DType::kBFloat16: return f(BF16(), float());
    default: return f(double(), double());
  }
}

/// plan_forward and plan_backward divide a call into items. They are pure functions of their arguments.
Plan plan_forward(const AttentionShape& shape, DType storage, int threads, Isa isa);
Plan plan_backward(const AttentionShape& shape, DType storage, int threads, Isa isa);

/// Divides a block of memory into 64-byte aligned parts. If the base is null, ScratchLayout only counts bytes, so that
/// the same code computes the size and assigns the parts.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* base) : base_(base) {}

  template <typename T>
  T* allocate(int64_t count) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_bytes_);
    used_bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return part;
  }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* base_;
  int64_t used_bytes_ = 0;
};

/// Makes the kernels of forward or backward. Run is a stateless lambda that computes one item: run(S(), T(), args,
/// item, scratch). Scratch is the struct that divides the scratch memory of one item.
template <typename Args, template <typename T> typename Scratch, typename Run>
ItemKernels<Args> item_kernels(Run) {
  return {.run =
              [](const Args& args, const Item& item, std::byte* scratch) {
                with_types(args.q.dtype, [&](auto s, auto t) { Run()(s, t, args, item, scratch); });
              },
          .scratch_bytes =
              [](const AttentionShape& shape, DType storage, int64_t length) {
                ScratchLayout layout(nullptr);
                with_types(storage, [&](auto, auto t) { Scratch<decltype(t)>(layout, shape, length); });
                return layout.used_bytes();
              }};
}

}  // namespace ashlar::cpu::attention
