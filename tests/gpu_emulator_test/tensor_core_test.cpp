// mma.sync and ldmatrix against the element formulas of the PTX ISA ("Matrix Fragments for mma.m16n8k16", ldmatrix),
// written down here once more, value by value, and products in fp64.
#include <array>
#include <random>

#include "core/base/bf16.h"
#include "tests/gpu/conformance/ptx.h"
#include "tests/gpu_emulator_test/emulator_test.h"

namespace ashlar::emulated {
namespace {

// groupID and threadID_in_group of the PTX ISA.
int group_id(int lane) { return lane >> 2; }
int thread_in_group(int lane) { return lane % 4; }

// The value a_i of the lane: i = 0 to 7, two to a register.
std::pair<int, int> a_element(int lane, int i) {
  const bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
  const int row = upper ? group_id(lane) : group_id(lane) + 8;
  const int column = thread_in_group(lane) * 2 + (i & 1) + (i < 4 ? 0 : 8);
  return {row, column};
}
std::pair<int, int> b_element(int lane, int i) {
  return {thread_in_group(lane) * 2 + (i & 1) + (i < 2 ? 0 : 8), group_id(lane)};
}
std::pair<int, int> c_element(int lane, int i) {
  return {i < 2 ? group_id(lane) : group_id(lane) + 8, thread_in_group(lane) * 2 + (i & 1)};
}

struct Operands {
  std::array<uint32_t, 4> a[32];
  std::array<uint32_t, 2> b[32];
  std::array<float, 4> c[32], d[32];
};

void multiply(Operands* all) {
  const unsigned lane = threadIdx.x % 32;
  uint32_t a[4], b[2];
  float c[4], d[4];
  for (int i = 0; i < 4; ++i) a[i] = all->a[lane][i];
  for (int i = 0; i < 2; ++i) b[i] = all->b[lane][i];
  for (int i = 0; i < 4; ++i) c[i] = all->c[lane][i];
  mma_m16n8k16(d, a, b, c);
  mma_m16n8k16(c, a, b, c);  // in place
  for (int i = 0; i < 4; ++i) all->d[lane][i] = d[i];
  for (int i = 0; i < 4; ++i) all->c[lane][i] = c[i];
}

template <int kMatrices, bool kTransposed>
void load(const uint16_t* rows, uint32_t* out, int stride) {
  ASHLAR_DYNAMIC_SHARED(uint16_t, shared);
  for (int i = static_cast<int>(threadIdx.x); i < 32 * 8; i += 32) shared[i / 8 * stride + i % 8] = rows[i];
  __syncwarp();
  uint32_t r[kMatrices];
  const int row = static_cast<int>(threadIdx.x) % (8 * kMatrices);
  const uint32_t address = shared_address(shared + row * stride);
  if constexpr (kMatrices == 1) kTransposed ? ldmatrix_x1_trans(r, address) : ldmatrix_x1(r, address);
  if constexpr (kMatrices == 2) kTransposed ? ldmatrix_x2_trans(r, address) : ldmatrix_x2(r, address);
  if constexpr (kMatrices == 4) kTransposed ? ldmatrix_x4_trans(r, address) : ldmatrix_x4(r, address);
  for (int i = 0; i < kMatrices; ++i) out[static_cast<int>(threadIdx.x) * kMatrices + i] = r[i];
}

void exp2_all(const float* x, float* y) { y[threadIdx.x] = ex2(x[threadIdx.x]); }

class TensorCores : public testing::Emulator {
 protected:
  // Row r of what is loaded holds 100 r, 100 r + 1, ... 100 r + 7.
  template <int kMatrices, bool kTransposed>
  void expect_loads() {
    std::vector<uint16_t> rows(32 * 8);
    for (int i = 0; i < 32 * 8; ++i) rows[i] = static_cast<uint16_t>(i / 8 * 100 + i % 8);
    for (const int stride : {8, 16, 72}) {
      std::vector<uint32_t> out(32 * kMatrices);
      run({.policy = emulator::Policy::kPct}, {.shared_bytes = 32 * stride * 2}, load<kMatrices, kTransposed>,
          rows.data(), out.data(), stride);
      for (int lane = 0; lane < 32; ++lane) {
        for (int matrix = 0; matrix < kMatrices; ++matrix) {
          // "Each thread holds a fragment of a row": thread T of row T / 4 has the elements 2 (T % 4) and the next.
          const int row = lane / 4, column = 2 * (lane % 4);
          const auto element = [&](int r, int c) {
            return static_cast<uint32_t>((matrix * 8 + (kTransposed ? c : r)) * 100 + (kTransposed ? r : c));
          };
          const uint32_t expected = element(row, column) | element(row, column + 1) << 16;
          ASSERT_EQ(out[lane * kMatrices + matrix], expected) << "lane " << lane << ", matrix " << matrix;
        }
      }
    }
  }
};

TEST_F(TensorCores, ProductOfRandomMatrices) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 20; ++trial) {
    BF16 a[16][16], b[16][8];
    float c[16][8];
    for (auto& row : a)
      for (BF16& x : row) x = BF16(normal(random));
    for (auto& row : b)
      for (BF16& x : row) x = BF16(normal(random));
    for (auto& row : c)
      for (float& x : row) x = normal(random);
    Operands operands{};
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 8; ++i) {
        const auto [row, column] = a_element(lane, i);
        operands.a[lane][i / 2] |= uint32_t{a[row][column].bits} << (i % 2 * 16);
      }
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = b_element(lane, i);
        operands.b[lane][i / 2] |= uint32_t{b[row][column].bits} << (i % 2 * 16);
      }
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = c_element(lane, i);
        operands.c[lane][i] = c[row][column];
      }
    }
    run({.policy = emulator::Policy::kRandom, .seed = static_cast<uint64_t>(trial)}, {}, multiply, &operands);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = c_element(lane, i);
        double sum = c[row][column], size = std::abs(sum);
        for (int k = 0; k < 16; ++k) {
          const double product = double{static_cast<float>(a[row][k])} * static_cast<float>(b[k][column]);
          sum += product;
          size += std::abs(product);
        }
        // 16 additions, each rounded once.
        ASSERT_NEAR(operands.d[lane][i], sum, 16 * size * 0x1p-24) << "lane " << lane << ", value " << i;
        ASSERT_EQ(operands.c[lane][i], operands.d[lane][i]);
      }
    }
  }
}

TEST_F(TensorCores, LoadMatrices) {
  expect_loads<1, false>();
  expect_loads<2, false>();
  expect_loads<4, false>();
}

TEST_F(TensorCores, LoadTransposedMatrices) {
  expect_loads<1, true>();
  expect_loads<2, true>();
  expect_loads<4, true>();
}

TEST_F(TensorCores, Exp2) {
  std::vector<float> x(32), y(32);
  for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i) * 0.37F - 20;
  run({}, {}, exp2_all, x.data(), y.data());
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(y[i], std::exp2(double{x[i]}), y[i] * 0x1p-22);
}

}  // namespace
}  // namespace ashlar::emulated
