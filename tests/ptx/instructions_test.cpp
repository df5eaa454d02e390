// Each instruction against what the PTX ISA's page says of it, computed here in other words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "tests/gpu_emulator/emulator.h"
#include "tests/ptx/thread.h"

namespace ashlar::ptx {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string module_of(const std::string& body, const std::string& before = "") {
  return ".version 9.0\n.target sm_80\n.address_size 64\n" + before +
         ".visible .entry k(\n .param .u64 k_param_0\n)\n{\n.reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<9>;\n"
         ".reg .f32 %f<9>;\n.reg .b64 %rd<20>;\n.reg .f64 %fd<9>;\nld.param.u64 %rd10, [k_param_0];\n" +
         body + "\nret;\n}\n";
}

bool anywhere(const void*, int64_t) { return true; }

/// Runs one warp over memory of the host; thread 0's place is its begin.
void run(const std::string& text, void* memory, const MayTouch& may_touch = anywhere) {
  const Program program("test.ptx", text);
  std::vector<std::byte> argument(sizeof(memory));
  std::memcpy(argument.data(), &memory, sizeof(memory));
  emulator::run({.name = "k", .grid = {1}, .block = {32}, .shared_bytes = 0, .thread = [&] {
                   Thread(program, may_touch).run(*program.find("k"), {argument});
                 }});
}

/// d = instruction(a, b, c), all of one type. Registers: r for 32 bits, rd for 64, f, fd, h for 16; p1 is true.
template <typename T>
T apply(const std::string& instruction, std::type_identity_t<T> a, std::type_identity_t<T> b = {},
        std::type_identity_t<T> c = {}) {
  constexpr bool kFloat = std::is_floating_point_v<T>;
  const std::string reg = sizeof(T) == 2 ? "%h" : sizeof(T) == 4 ? (kFloat ? "%f" : "%r") : kFloat ? "%fd" : "%rd";
  const std::string type = (kFloat ? ".f" : ".u") + std::to_string(sizeof(T) * 8);
  alignas(16) T memory[4] = {a, b, c, T{}};
  std::string body = "setp.eq.u64 %p1, %rd10, %rd10;\n";
  for (int i = 0; i < 3; ++i) {
    body +=
        "ld.global" + type + " " + reg + std::to_string(i + 1) + ", [%rd10+" + std::to_string(i * sizeof(T)) + "];\n";
  }
  body += instruction + "\nst.global" + type + " [%rd10+" + std::to_string(3 * sizeof(T)) + "], " + reg + "0;\n";
  run(module_of(body), memory);
  return memory[3];
}

TEST(PtxInteger, SumsAndProductsWrap) {
  EXPECT_EQ(apply<uint32_t>("add.s32 %r0, %r1, %r2;", 0xffffffff, 3), 2U);
  EXPECT_EQ(apply<uint32_t>("sub.s32 %r0, %r1, %r2;", 2, 5), static_cast<uint32_t>(-3));
  EXPECT_EQ(apply<uint64_t>("add.s64 %rd0, %rd1, -8;", 3), static_cast<uint64_t>(-5));
  EXPECT_EQ(apply<uint32_t>("mul.lo.s32 %r0, %r1, %r2;", 0x12345678, 0x9abcdef0), 0x12345678U * 0x9abcdef0U);
  EXPECT_EQ(apply<uint32_t>("mul.hi.u32 %r0, %r1, %r2;", 0x80000000, 6), 3U);
  EXPECT_EQ(apply<uint32_t>("mul.hi.s32 %r0, %r1, %r2;", static_cast<uint32_t>(-1), 6), 0xffffffffU);
  EXPECT_EQ(apply<uint64_t>("mul.hi.u64 %rd0, %rd1, %rd2;", uint64_t{1} << 63, 10), 5U);
  EXPECT_EQ(apply<uint64_t>("mul.hi.s64 %rd0, %rd1, %rd2;", static_cast<uint64_t>(-1), 10), ~uint64_t{0});
  EXPECT_EQ(apply<uint32_t>("mad.lo.s32 %r0, %r1, %r2, %r3;", 7, static_cast<uint32_t>(-3), 1),
            static_cast<uint32_t>(-20));
  EXPECT_EQ(apply<uint64_t>("cvt.u32.u64 %r1, %rd1;\ncvt.u32.u64 %r2, %rd2;\nmul.wide.s32 %rd0, %r1, %r2;",
                            static_cast<uint64_t>(-5), 7),
            static_cast<uint64_t>(-35));
  EXPECT_EQ(apply<uint64_t>("cvt.u32.u64 %r1, %rd1;\ncvt.u32.u64 %r2, %rd2;\nmul.wide.u32 %rd0, %r1, %r2;",
                            static_cast<uint32_t>(-5), 7),
            7 * uint64_t{0xfffffffb});
  EXPECT_EQ(apply<uint32_t>("div.s32 %r0, %r1, %r2;", static_cast<uint32_t>(-7), 2), static_cast<uint32_t>(-3));
  EXPECT_EQ(apply<uint32_t>("rem.s32 %r0, %r1, %r2;", static_cast<uint32_t>(-7), 2), static_cast<uint32_t>(-1));
  EXPECT_EQ(apply<uint32_t>("div.u32 %r0, %r1, %r2;", static_cast<uint32_t>(-7), 2), 0x7ffffffcU);
  EXPECT_EQ(apply<uint32_t>("min.s32 %r0, %r1, %r2;", static_cast<uint32_t>(-7), 2), static_cast<uint32_t>(-7));
  EXPECT_EQ(apply<uint32_t>("min.u32 %r0, %r1, %r2;", static_cast<uint32_t>(-7), 2), 2U);
  EXPECT_EQ(apply<uint32_t>("abs.s32 %r0, %r1;", static_cast<uint32_t>(-7)), 7U);
  EXPECT_EQ(apply<uint64_t>("neg.s64 %rd0, %rd1;", 7), static_cast<uint64_t>(-7));
}

TEST(PtxInteger, CarriesGoFromOneToTheNext) {
  // 128-bit sum and difference in halves.
  const uint64_t a = 0xfedcba9876543210, b = 0x123456789abcdef1;
  EXPECT_EQ(apply<uint64_t>("add.cc.u64 %rd4, %rd1, %rd2;\naddc.u64 %rd0, %rd3, 1;", a, b, 5),
            6 + static_cast<uint64_t>((static_cast<unsigned __int128>(a) + b) >> 64));
  EXPECT_EQ(apply<uint64_t>("sub.cc.u64 %rd4, %rd1, %rd2;\nsubc.u64 %rd0, %rd3, 1;", b, a, 5), 3U);
  EXPECT_EQ(apply<uint32_t>("mad.lo.cc.u32 %r4, %r1, %r2, %r3;\nmadc.hi.u32 %r0, %r1, %r2, 0;", 0xffffffff, 0xffffffff,
                            0xffffffff),
            0xffffffffU);
}

TEST(PtxInteger, Bits) {
  EXPECT_EQ(apply<uint32_t>("shl.b32 %r0, %r1, %r2;", 5, 3), 40U);
  EXPECT_EQ(apply<uint32_t>("shl.b32 %r0, %r1, %r2;", 5, 32), 0U) << "amounts stop at the width";
  EXPECT_EQ(apply<uint32_t>("shr.s32 %r0, %r1, %r2;", 0x80000000, 40), 0xffffffffU);
  EXPECT_EQ(apply<uint32_t>("shr.u32 %r0, %r1, %r2;", 0x80000000, 31), 1U);
  EXPECT_EQ(apply<uint32_t>("and.b32 %r0, %r1, %r2;", 12, 10), 8U);
  EXPECT_EQ(apply<uint32_t>("xor.b32 %r0, %r1, %r2;", 12, 10), 6U);
  EXPECT_EQ(apply<uint64_t>("not.b64 %rd0, %rd1;", 0), ~uint64_t{0});
  EXPECT_EQ(apply<uint32_t>("popc.b32 %r0, %r1;", 0xf0f), 8U);
  EXPECT_EQ(apply<uint32_t>("clz.b32 %r0, %r1;", 1), 31U);
  EXPECT_EQ(apply<uint32_t>("brev.b32 %r0, %r1;", 0x80000001), 0x80000001U);
  EXPECT_EQ(apply<uint32_t>("brev.b32 %r0, %r1;", 2), 0x40000000U);
  EXPECT_EQ(apply<uint32_t>("bfind.u32 %r0, %r1;", 0x100), 8U);
  EXPECT_EQ(apply<uint32_t>("bfind.shiftamt.u32 %r0, %r1;", 0x100), 23U);
  EXPECT_EQ(apply<uint32_t>("bfind.u32 %r0, %r1;", 0), 0xffffffffU);
  EXPECT_EQ(apply<uint32_t>("bfe.u32 %r0, %r1, 4, 8;", 0xabcd), 0xbcU);
  EXPECT_EQ(apply<uint32_t>("bfe.s32 %r0, %r1, 4, 8;", 0xabcd), 0xffffffbcU);
  EXPECT_EQ(apply<uint32_t>("bfi.b32 %r0, %r1, %r2, 8, 4;", 0x5, 0xffff), 0xf5ffU);
  EXPECT_EQ(apply<uint32_t>("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 0xf0000000, 0x1, 4), 0x1fU);
  EXPECT_EQ(apply<uint32_t>("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", 0xf0000000, 0x1, 40), 0x1U);
  EXPECT_EQ(apply<uint32_t>("prmt.b32 %r0, %r1, %r2, 0x3541;", 0x44332211, 0x88776655), 0x44665522U);
  EXPECT_EQ(apply<uint32_t>("prmt.b32 %r0, %r1, %r2, 0x0008;", 0x44332281, 0), 0x818181ffU) << "the sign of a byte";
  EXPECT_EQ(apply<uint32_t>("lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", 0xff00, 0xf0f0, 0xcccc),
            (0xff00U & 0xf0f0U) | (0xff00U & 0xccccU) | (0xf0f0U & 0xccccU));
}

TEST(PtxFloat, RoundingIsWhatTheInstructionSays) {
  const float third = 1.0F / 3;
  EXPECT_EQ(apply<float>("add.f32 %f0, %f1, %f2;", 1, third), 1 + third);
  EXPECT_EQ(apply<float>("fma.rn.f32 %f0, %f1, %f2, %f3;", third, 3, -1), std::fma(third, 3.0F, -1.0F));
  EXPECT_NE(apply<float>("fma.rn.f32 %f0, %f1, %f2, %f3;", third, 3, -1), 0.0F) << "one rounding";
  EXPECT_EQ(apply<float>("mul.f32 %f4, %f1, %f2;\nadd.f32 %f0, %f4, %f3;", third, 3, -1), 0.0F) << "two";
  EXPECT_EQ(apply<float>("add.rm.f32 %f0, %f1, %f2;", 1, 0x1p-40F), 1.0F);
  EXPECT_EQ(apply<float>("add.rp.f32 %f0, %f1, %f2;", 1, 0x1p-40F), 1.0F + 0x1p-23F);
  EXPECT_EQ(apply<double>("add.rz.f64 %fd0, %fd1, %fd2;", -1, -0x1p-80), -1.0);
  EXPECT_EQ(apply<double>("div.rn.f64 %fd0, %fd1, %fd2;", 1, 3), 1.0 / 3);
  EXPECT_EQ(apply<double>("sqrt.rn.f64 %fd0, %fd1;", 2), std::sqrt(2.0));
  EXPECT_EQ(apply<float>("rcp.rn.f32 %f0, %f1;", 3), third);
}

TEST(PtxFloat, SpecialValues) {
  const float tiny = 0x1p-140F;
  EXPECT_EQ(apply<float>("mul.f32 %f0, %f1, %f2;", tiny, 1), tiny);
  EXPECT_EQ(apply<float>("mul.ftz.f32 %f0, %f1, %f2;", tiny, 1), 0.0F);
  EXPECT_TRUE(std::signbit(apply<float>("mul.ftz.f32 %f0, %f1, %f2;", -tiny, 1)));
  EXPECT_EQ(apply<float>("add.sat.f32 %f0, %f1, %f2;", 1, 1), 1.0F);
  EXPECT_EQ(apply<float>("cvt.sat.f32.f32 %f0, %f1;", -3), 0.0F);
  EXPECT_EQ(apply<float>("max.f32 %f0, %f1, %f2;", std::nanf(""), 3), 3.0F);
  EXPECT_FALSE(std::signbit(apply<float>("max.f32 %f0, %f1, %f2;", -0.0F, 0.0F)));
  EXPECT_TRUE(std::signbit(apply<float>("min.f32 %f0, %f1, %f2;", 0.0F, -0.0F)));
  EXPECT_EQ(apply<float>("neg.f32 %f0, %f1;", 3), -3.0F);
  EXPECT_EQ(apply<float>("abs.f32 %f0, %f1;", -3), 3.0F);
  EXPECT_EQ(apply<double>("copysign.f64 %fd0, %fd1, %fd2;", -1, 5), -5.0);
  EXPECT_EQ(apply<float>("mov.f32 %f0, 0f40490FDB;", 0), 3.14159274F);
  EXPECT_EQ(apply<double>("mov.f64 %fd0, 0d3FF8000000000000;", 0), 1.5);
}

TEST(PtxFloat, ApproximationsAreClose) {
  for (const float x : {0.1F, 1.0F, 2.5F, 17.0F}) {
    EXPECT_NEAR(apply<float>("ex2.approx.ftz.f32 %f0, %f1;", x), std::exp2(x), std::exp2(x) * 1e-6);
    EXPECT_NEAR(apply<float>("lg2.approx.f32 %f0, %f1;", x), std::log2(x), 1e-6);
    EXPECT_NEAR(apply<float>("rsqrt.approx.f32 %f0, %f1;", x), 1 / std::sqrt(x), 1e-6);
    EXPECT_NEAR(apply<float>("tanh.approx.f32 %f0, %f1;", x), std::tanh(x), 1e-6);
  }
}

/// Which of the comparisons hold, as a text.
template <typename T>
std::string holding(const std::string& type, T a, T b, const std::vector<std::string>& all) {
  std::string result;
  for (const std::string& how : all) {
    const std::string reg = std::is_same_v<T, double> ? "%fd" : "%r";
    const std::string one = std::is_same_v<T, double> ? "0d3FF0000000000000" : "1";
    const std::string zero = std::is_same_v<T, double> ? "0d0000000000000000" : "0";
    const std::string select = std::is_same_v<T, double> ? "selp.f64 " : "selp.b32 ";
    const T d = apply<T>("setp." + how + "." + type + " %p2, " + reg + "1, " + reg + "2;\n" + select + reg + "0, " +
                             one + ", " + zero + ", %p2;",
                         a, b);
    if (d != 0) result += how + " ";
  }
  return result;
}

TEST(PtxCompare, NumbersAndNaN) {
  const std::vector<std::string> all = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                        "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  EXPECT_EQ(holding<double>("f64", 1, 2, all), "ne lt le neu ltu leu num ");
  EXPECT_EQ(holding<double>("f64", 2, 2, all), "eq le ge equ leu geu num ");
  EXPECT_EQ(holding<double>("f64", kNan, 2, all), "equ neu ltu leu gtu geu nan ");
  EXPECT_EQ(holding<uint32_t>("s32", static_cast<uint32_t>(-1), 1, {"eq", "ne", "lt", "le", "gt", "ge"}), "ne lt le ");
  EXPECT_EQ(holding<uint32_t>("u32", static_cast<uint32_t>(-1), 1, {"lo", "ls", "hi", "hs", "gt"}), "hi hs gt ");
}

TEST(PtxCompare, CombinesWithAPredicateAndGivesBothSides) {
  const std::string select = "\nselp.b32 %r4, 1, 0, %p2;\nselp.b32 %r5, 2, 0, %p3;\nadd.s32 %r0, %r4, %r5;";
  EXPECT_EQ(apply<uint32_t>("setp.lt.u32 %p2|%p3, %r1, %r2;" + select, 1, 2), 1U);
  EXPECT_EQ(apply<uint32_t>("setp.lt.and.u32 %p2|%p3, %r1, %r2, !%p1;" + select, 1, 2), 0U);
  EXPECT_EQ(apply<uint32_t>("setp.lt.or.u32 %p2|%p3, %r1, %r2, %p1;" + select, 1, 2), 3U);
  EXPECT_EQ(apply<uint32_t>("setp.lt.xor.u32 %p2|%p3, %r1, %r2, %p1;" + select, 1, 2), 2U);
  EXPECT_EQ(apply<uint32_t>("mov.u32 %r0, 5;\n@%p1 mov.u32 %r0, 6;\n@!%p1 mov.u32 %r0, 7;", 0), 6U);
  EXPECT_EQ(apply<uint32_t>("not.pred %p2, %p1;\nor.pred %p3, %p1, %p2;" + select, 0), 2U);
  EXPECT_EQ(
      apply<double>("testp.finite.f64 %p2, %fd1;\nselp.f64 %fd0, 0d3FF0000000000000, 0d0000000000000000, %p2;", kInf),
      0.0);
}

TEST(PtxConvert, BetweenIntegersExtendsBySign) {
  EXPECT_EQ(apply<uint64_t>("cvt.u32.u64 %r1, %rd1;\ncvt.s64.s32 %rd0, %r1;", 0xfffffffb), static_cast<uint64_t>(-5));
  EXPECT_EQ(apply<uint64_t>("cvt.u32.u64 %r1, %rd1;\ncvt.u64.u32 %rd0, %r1;", ~uint64_t{0}), 0xffffffffU);
  EXPECT_EQ(apply<uint32_t>("cvt.s32.s8 %r0, %r1;", 0x1ff), 0xffffffffU);
  EXPECT_EQ(apply<uint32_t>("cvt.u32.u16 %r0, %r1;", 0x12345), 0x2345U);
}

TEST(PtxConvert, FloatsToIntegersStopAtTheBorders) {
  const auto to_int = [](const std::string& how, double x) {
    return static_cast<int32_t>(apply<uint64_t>(
        "mov.b64 %fd1, %rd1;\ncvt." + how + ".s32.f64 %r1, %fd1;\ncvt.s64.s32 %rd0, %r1;", std::bit_cast<uint64_t>(x)));
  };
  EXPECT_EQ(to_int("rni", 2.5), 2);
  EXPECT_EQ(to_int("rni", 3.5), 4);
  EXPECT_EQ(to_int("rzi", -2.9), -2);
  EXPECT_EQ(to_int("rmi", -2.1), -3);
  EXPECT_EQ(to_int("rpi", 2.1), 3);
  EXPECT_EQ(to_int("rzi", 1e20), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(to_int("rzi", -kInf), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(to_int("rzi", kNan), 0);
  EXPECT_EQ(apply<double>("cvt.rni.f64.f64 %fd0, %fd1;", 2.5), 2.0);
  EXPECT_EQ(apply<float>("mov.b32 %r1, %f1;\ncvt.rn.f32.s32 %f0, %r1;", std::bit_cast<float>(16777217)), 16777216.0F);
  EXPECT_EQ(apply<double>("cvt.rn.f32.f64 %f1, %fd1;\ncvt.f64.f32 %fd0, %f1;", 1.0 / 3), double{1.0F / 3});
  EXPECT_EQ(apply<double>("cvt.rz.f32.f64 %f1, %fd1;\ncvt.f64.f32 %fd0, %f1;", 1 + 0x1.8p-24), 1.0);
}

TEST(PtxConvert, Bf16) {
  EXPECT_EQ(apply<uint32_t>("mov.b32 %f1, %r1;\ncvt.rn.bf16.f32 %h0, %f1;\ncvt.u32.u16 %r0, %h0;", 0x3f808000),
            0x3f80U);
  EXPECT_EQ(apply<uint32_t>("mov.b32 %f1, %r1;\ncvt.rn.bf16.f32 %h0, %f1;\ncvt.u32.u16 %r0, %h0;", 0x3f818000), 0x3f82U)
      << "ties to even";
  EXPECT_EQ(
      apply<uint32_t>("mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\ncvt.rn.bf16x2.f32 %r0, %f1, %f2;", 0x40000000, 0x3f800000),
      0x40003f80U)
      << "the first is the upper half";
}

TEST(PtxMove, PacksAndUnpacks) {
  EXPECT_EQ(apply<uint64_t>("mov.b64 {%r1, %r2}, %rd1;\nmov.b64 %rd0, {%r2, %r1};", 0x1111111122222222),
            0x2222222211111111U);
  EXPECT_EQ(apply<uint32_t>("mov.b32 {%h1, %h2}, %r1;\nmov.b32 %r0, {%h2, %h1};", 0x11112222), 0x22221111U);
  EXPECT_EQ(apply<uint32_t>("mov.u32 %r0, %ntid.x;", 0), 32U);
}

TEST(PtxControl, LoopsAndCalls) {
  EXPECT_EQ(apply<uint32_t>("mov.u32 %r0, 0;\n$again:\nadd.s32 %r0, %r0, %r1;\nsub.s32 %r2, %r2, 1;\nsetp.ne.s32 %p2, "
                            "%r2, 0;\n@%p2 bra $again;",
                            3, 5),
            15U);
  // An inner scope hides %r1.
  EXPECT_EQ(apply<uint32_t>("{\n.reg .b32 %r1;\nmov.u32 %r1, 9;\n}\nmov.u32 %r0, %r1;", 4), 4U);
  alignas(16) uint64_t memory[2] = {20, 0};
  run(module_of("ld.global.u64 %rd1, [%rd10];\n{\n.param .b64 p0;\nst.param.b64 [p0+0], %rd1;\n.param .b64 r0;\n"
                "call.uni (r0), twice, (p0);\nld.param.b64 %rd2, [r0+0];\n}\nst.global.u64 [%rd10+8], %rd2;",
                ".func (.param .b64 ret) twice(.param .b64 a)\n{\n.reg .b64 %rd<3>;\nld.param.b64 %rd1, [a];\n"
                "add.s64 %rd2, %rd1, %rd1;\nst.param.b64 [ret], %rd2;\nret;\n}\n"),
      memory);
  EXPECT_EQ(memory[1], 40U);
}

TEST(PtxMemory, SharedAndLocalAndConstants) {
  alignas(16) uint32_t memory[33] = {};
  run(module_of(".shared .align 4 .b8 s[128];\n.local .align 8 .b8 stack[16];\nmov.u32 %r1, %tid.x;\nmul.lo.s32 %r2, "
                "%r1, 4;\nmov.u32 %r3, s;\n"
                "add.s32 %r4, %r3, %r2;\nst.shared.u32 [%r4], %r1;\nbar.sync 0;\nsub.s32 %r5, 31, %r1;\nmul.lo.s32 "
                "%r5, %r5, 4;\n"
                "add.s32 %r5, %r3, %r5;\nld.shared.u32 %r6, [%r5];\nmov.u64 %rd1, stack;\nst.local.u32 [%rd1+4], "
                "%r6;\nld.local.u32 %r7, [%rd1+4];\n"
                "ld.const.u32 %r8, [table+4];\nadd.s32 %r7, %r7, %r8;\ncvt.u64.u32 %rd2, %r2;\nadd.s64 %rd3, %rd10, "
                "%rd2;\nst.global.u32 [%rd3], %r7;\n"
                "atom.global.add.u32 %r6, [%rd10+128], 2;",
                ".const .align 4 .u32 table[2] = {7, 100};\n"),
      memory);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(memory[i], 131 - i);
  EXPECT_EQ(memory[32], 64U);
}

TEST(PtxMemory, VectorsAreAligned) {
  alignas(16) float memory[8] = {1, 2, 3, 4, 0, 0, 0, 0};
  run(module_of("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd10];\nst.global.v2.f32 [%rd10+24], {%f4, %f3};"), memory);
  EXPECT_EQ(memory[6], 4.0F);
  EXPECT_EQ(memory[7], 3.0F);
  try {
    run(module_of("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd10+8];"), memory);
    FAIL() << "a load of 16 bytes at an odd place";
  } catch (const emulator::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("ld.global.v4.f32 of 16 bytes at an address"));
    EXPECT_THAT(error.what(), HasSubstr("test.ptx:"));
  }
}

// Of 16 bytes, the last ones may lie behind the memory if they are not read.
TEST(PtxMemory, AsynchronousCopiesReadTheirSourceBytesAlone) {
  const auto copied = [](const std::string& source_bytes) {
    alignas(16) uint32_t memory[5] = {1, 2, 3, 4, 5};
    run(module_of(".shared .align 16 .b8 s[16];\nmov.u32 %r1, s;\nmov.u32 %r2, " + source_bytes +
                  ";\ncp.async.cg.shared.global [%r1], [%rd10+16], 16, %r2;\ncp.async.wait_all;\n"
                  "ld.shared.u32 %r3, [%r1];\nst.global.u32 [%rd10], %r3;"),
        memory, [&](const void* at, int64_t bytes) {
          const auto* begin = static_cast<const char*>(at);
          return begin >= reinterpret_cast<char*>(memory) && begin + bytes <= reinterpret_cast<char*>(memory + 5);
        });
    return memory[0];
  };
  EXPECT_EQ(copied("4"), 5U);
  EXPECT_EQ(copied("0"), 0U);
  for (const char* too_many : {"5", "16"}) EXPECT_THROW(copied(too_many), emulator::Error) << too_many;
}

TEST(PtxMemory, AddressesBelongToTheirSpace) {
  alignas(16) uint32_t memory[4] = {};
  const auto error_of = [&](const std::string& body) -> std::string {
    try {
      run(module_of(".local .align 8 .b8 stack[16];\n.shared .align 4 .b8 s[8];\n" + body), memory);
    } catch (const emulator::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("mov.u64 %rd1, stack;\nld.global.u32 %r1, [%rd1];"), HasSubstr("outside of what it may touch"));
  EXPECT_THAT(error_of("ld.local.u32 %r1, [%rd10];"), HasSubstr("outside of what it may touch"));
  EXPECT_THAT(error_of("mov.u64 %rd1, stack;\nst.local.u32 [%rd1+16], %r1;"),
              HasSubstr("outside of what it may touch"));
  EXPECT_NE(error_of("mov.u32 %r1, s;\nst.shared.u32 [%r1+8], %r1;"), "");
  EXPECT_EQ(error_of("mov.u32 %r1, s;\ncvt.u64.u32 %rd1, %r1;\ncvta.shared.u64 %rd2, %rd1;\nst.u32 [%rd2], %r1;"), "");
}

TEST(PtxWarp, ShufflesStayInTheirSegment) {
  const auto shuffled = [](const std::string& how) {
    alignas(16) uint32_t memory[32] = {};
    run(module_of("mov.u32 %r1, %tid.x;\nshfl.sync." + how +
                  ", -1;\nmul.wide.u32 %rd1, %r1, 4;\nadd.s64 %rd1, %rd10, %rd1;\n"
                  "selp.b32 %r3, 100, 0, %p2;\nadd.s32 %r2, %r2, %r3;\nst.global.u32 [%rd1], %r2;"),
        memory);
    return std::vector<uint32_t>(memory, memory + 32);
  };
  const auto down = shuffled("down.b32 %r2|%p2, %r1, 5, 31");
  const auto up = shuffled("up.b32 %r2|%p2, %r1, 3, 6144");  // segments of 8: 24 << 8
  const auto butterfly = shuffled("bfly.b32 %r2|%p2, %r1, 6, 31");
  const auto index = shuffled("idx.b32 %r2|%p2, %r1, 9, 4127");  // segments of 16: 16 << 8 | 31
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(down[i], i + 5 < 32 ? 100 + i + 5 : i);
    EXPECT_EQ(up[i], i % 8 >= 3 ? 100 + i - 3 : i);
    EXPECT_EQ(butterfly[i], 100 + (i ^ 6));
    EXPECT_EQ(index[i], 100 + (i & 16) + 9);
  }
}

TEST(PtxText, UnknownInstructionsAreNamed) {
  const auto error_of = [](const std::string& body) -> std::string {
    try {
      const Program program("file.ptx", module_of(body));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd10];"),
              HasSubstr("file.ptx:15: unknown instruction 'tex.2d.v4.f32.f32'"));
  EXPECT_THAT(error_of("max.NaN.f32 %f0, %f1, %f2;"), HasSubstr("unknown instruction"));
  EXPECT_THAT(error_of("bra $nowhere;"), HasSubstr("no label '$nowhere'"));
  EXPECT_THAT(error_of("mov.u32 %r0, %r99;"), HasSubstr("expected an operand"));
}

// As nvcc writes them for sm_100.
TEST(PtxText, ParametersMayTellWhatTheyPointTo) {
  const std::string plain = ".param .u64 k_param_0", body = "mov.u32 %r0, 7;\nst.global.u32 [%rd10], %r0;";
  for (const std::string target : {".ptr .align 1", ".ptr .global .align 64", ".ptr"}) {
    std::string text = module_of(body);
    text.replace(text.find(plain), plain.size(), ".param .u64 " + target + " k_param_0");
    uint32_t memory = 0;
    run(text, &memory);
    EXPECT_EQ(memory, 7U) << target;
    text.replace(text.find(target), 4, ".pointer");
    EXPECT_THROW(Program("file.ptx", text), Error);
  }
}

}  // namespace
}  // namespace ashlar::ptx
