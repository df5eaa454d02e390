#include "kernels/cuda/attention/cudnn_attention.h"

#include <iterator>
#include <span>
#include <sstream>

#include "absl/strings/str_format.h"
#include "core/base/error.h"

namespace ashlar::cudnn {

namespace {

struct NamedRows {
  const char* name;
  Rows AttentionCase::*rows;
};
constexpr NamedRows kRows[] = {{"q", &AttentionCase::q},     {"k", &AttentionCase::k},       {"v", &AttentionCase::v},
                               {"out", &AttentionCase::out}, {"dout", &AttentionCase::dout}, {"dq", &AttentionCase::dq},
                               {"dk", &AttentionCase::dk},   {"dv", &AttentionCase::dv}};
constexpr size_t kForwardRows = 4;

std::span<const NamedRows> rows_in(bool backward) {
  return std::span(kRows).first(backward ? std::size(kRows) : kForwardRows);
}

Rows rows_of(const ConstView& view, int64_t batch) { return {.batch = batch, .row = view.stride}; }

/// The frontend takes inputs and outputs of a graph as non-const pointers.
void* address(const ConstView& view) { return const_cast<void*>(view.data); }

/// Returns the fields that forward and backward have in common.
template <typename Args>
AttentionCase common_case(const Args& a) {
  const AttentionShape& s = a.shape;
  return {.B = s.B,
          .T = s.T_q,
          .H = s.H,
          .G = s.G,
          .D = s.D,
          .scale = s.scores.scale,
          .q = rows_of(a.q, s.q_batch_stride),
          .k = rows_of(a.k, s.kv_batch_stride),
          .v = rows_of(a.v, s.v_stride()),
          .out = rows_of(a.out, s.T_q * a.out.stride)};
}

}  // namespace

AttentionCase case_of(const AttentionForward& a) { return common_case(a); }

AttentionCase case_of(const AttentionBackward& a) {
  const AttentionShape& s = a.shape;
  AttentionCase c = common_case(a);
  c.backward = true;
  c.dout = rows_of(a.dout, s.T_q * a.dout.stride);
  c.dq = rows_of(a.dq, s.q_batch_stride);
  c.dk = rows_of(a.dk, s.kv_batch_stride);
  c.dv = rows_of(a.dv, s.v_stride());
  return c;
}

std::string text_of(const AttentionCase& c) {
  std::string text = absl::StrFormat("%s B=%d T=%d H=%d G=%d D=%d scale=%.17g", c.backward ? "backward" : "forward",
                                     c.B, c.T, c.H, c.G, c.D, c.scale);
  for (const NamedRows& named : rows_in(c.backward)) {
    const Rows& rows = c.*named.rows;
    text += absl::StrFormat(" %s=%d/%d", named.name, rows.batch, rows.row);
  }
  return text;
}

AttentionCase case_of(std::string_view text) {
  AttentionCase c{.backward = text.starts_with("backward")};
  std::istringstream in{std::string(text)};
  std::string word;
  in >> word;
  const auto read = [&](std::string_view name, auto& value) {
    std::getline(in >> std::ws, word, '=');
    if (word != name || !(in >> value)) in.setstate(std::ios::failbit);
  };
  read("B", c.B), read("T", c.T), read("H", c.H), read("G", c.G), read("D", c.D), read("scale", c.scale);
  for (const NamedRows& named : rows_in(c.backward)) {
    Rows& rows = c.*named.rows;
    char slash = 0;
    read(named.name, rows.batch);
    in >> slash >> rows.row;
  }
  if (!in || text_of(c) != text)
    throw damaged_error("choices", "expected a description of an attention call, got \"", text,
                        "\"; remove choices.json from the run directory to choose again");
  return c;
}

AttentionArrays arrays_of(const AttentionForward& a) {
  return {.q = address(a.q), .k = address(a.k), .v = address(a.v), .out = a.out.data, .lse = a.lse.data};
}

AttentionArrays arrays_of(const AttentionBackward& a) {
  return {.q = address(a.q),
          .k = address(a.k),
          .v = address(a.v),
          .out = address(a.out),
          .lse = address(a.lse),
          .dout = address(a.dout),
          .dq = a.dq.data,
          .dk = a.dk.data,
          .dv = a.dv.data};
}

}  // namespace ashlar::cudnn
