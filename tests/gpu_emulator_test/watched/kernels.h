#pragma once

#include <cstdint>

/// Kernels compiled with watched accesses: wrong ones with one mistake each, and right ones that look alike. Comments
/// in brackets mark the lines that a report must name.
namespace ashlar::instrumented {

// Shared memory of a block of 64 threads. `kRight` has what the wrong form lacks.
template <bool kRight>
void read_before_barrier(float* out);
template <bool kRight>
void write_before_all_have_read(float* out);
template <bool kRight>
void all_write_one_place(float* out);
template <bool kRight>
void read_without_syncwarp(float* out);
template <bool kRight>
void syncwarp_of_half(float* out);
template <bool kRight>
void reduce_by_shuffles(float* out);
template <bool kRight>
void ldmatrix_before_barrier(uint32_t* out);

// cp.async: `from` [64] floats.
template <bool kRight>
void read_before_copy_is_waited_for(const float* from, float* out);
template <bool kRight>
void read_copy_of_others_without_barrier(const float* from, float* out);
template <bool kRight>
void refill_too_early(const float* from, float* out);

// Named barriers and mbarriers: warp 0 makes, warp 1 takes.
template <bool kRight>
void take_without_bar_sync(float* out);
template <bool kRight>
void take_without_mbarrier(float* out);
template <bool kRight>
void make_without_empty_mbarrier(float* out);

// Blocks.
template <bool kRight>
void blocks_write_one_place(float* out);
template <bool kRight>
void read_from_other_block(float* values, float* out);
enum class Fencing { kNone, kOfBlockOnly, kByFirstThread, kByAll, kInWarp };
template <Fencing kFencing>
void sum_by_last_block(const float* in, float* partial, unsigned* ticket, float* out);
template <bool kRight>
void histogram(const int* in, unsigned* counts, unsigned* out);

// One access a thread at `at[offset + threadIdx.x]`.
template <typename T>
void read_at(const T* at, int64_t offset, T* out);
template <typename T>
void write_at(T* at, int64_t offset);
void shared_at(int offset);
void dynamic_at(int offset);
void read_constants(float* out);
void write_constant();
void read_stack_of_others(float* out);
void misaligned_vector(const float* from, int offset, float* out);
void misaligned_shared_vector(int offset, float* out);
void local_array(const float* in, float* out);

// Traffic.
template <typename T>
void copy_strided(const T* from, T* to, int64_t stride, int64_t offset);
template <typename T>
void shared_strided(int stride, float* out);
void matrices_of_stride(int stride, uint32_t* out);
void copy_async_strided(const float* from, int64_t stride, float* out);
void copy_async_part(const float* from, uint32_t lanes, float* out);

}  // namespace ashlar::instrumented
