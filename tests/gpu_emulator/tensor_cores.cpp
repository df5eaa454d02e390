// mma.sync and ldmatrix: which lane holds which element is that of the figures in the PTX ISA's chapters on them.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {
namespace {

float low_bf16(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float high_bf16(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); }

struct MmaInput {
  const uint32_t* a;
  const uint32_t* b;
  const float* c;
};

// Products are exact in fp32; sums are taken in ascending k, rounded each time. A GPU rounds otherwise.
void multiply(const WarpOperands& lanes) {
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto* in = static_cast<const MmaInput*>(lanes.in[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const int row = group + i % 2 * 8, k = pair + i / 2 * 8;
      a[row][k] = low_bf16(in->a[i]);
      a[row][k + 1] = high_bf16(in->a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[pair + i * 8][group] = low_bf16(in->b[i]);
      b[pair + i * 8 + 1][group] = high_bf16(in->b[i]);
    }
    for (int i = 0; i < 4; ++i) d[group + i / 2 * 8][pair + i % 2] = in->c[i];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    auto* out = static_cast<float*>(lanes.out[lane]);
    for (int i = 0; i < 4; ++i) out[i] = d[group + i / 2 * 8][pair + i % 2];
  }
}

struct LoadInput {
  uint32_t address;
  int matrices;
  bool transposed;
};

void load_matrices(const WarpOperands& lanes) {
  Block& block = current_block();
  const LoadInput first = *static_cast<const LoadInput*>(lanes.in[0]);
  for (int matrix = 0; matrix < first.matrices; ++matrix) {
    uint16_t values[8][8];
    std::array<uint32_t, 8> addresses;
    for (int row = 0; row < 8; ++row) {
      const auto* in = static_cast<const LoadInput*>(lanes.in[matrix * 8 + row]);
      std::memcpy(values[row], block.shared_pointer(in->address, 16, 16, lanes.loc), 16);
      block.ldmatrix_row(in->address, matrix * 8 + row, lanes.loc);
      addresses[row] = in->address;
    }
    block.ldmatrix_passes(addresses);
    for (int lane = 0; lane < 32; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2;
      const uint32_t low = first.transposed ? values[column][row] : values[row][column];
      const uint32_t high = first.transposed ? values[column + 1][row] : values[row][column + 1];
      static_cast<uint32_t*>(lanes.out[lane])[matrix] = low | high << 16;
    }
  }
}

}  // namespace

void mma_m16n8k16_bf16(float* d, const uint32_t* a, const uint32_t* b, const float* c, Loc loc) {
  const MmaInput in{a, b, c};
  current_block().warp_call(
      {.mask = kAllLanes, .name = "mma.sync", .aligned = true, .in = &in, .out = d, .compute = multiply}, loc);
}

void ldmatrix(uint32_t* r, int matrices, bool transposed, uint32_t shared_address, Loc loc) {
  const LoadInput in{shared_address, matrices, transposed};
  current_block().warp_call(
      {.mask = kAllLanes, .name = "ldmatrix", .aligned = true, .in = &in, .out = r, .compute = load_matrices}, loc);
}

}  // namespace ashlar::emulator
