#include "core/backend/checks.h"

namespace ashlar {

void check(const ShareHead& a) {
  constexpr std::string_view kWhere = "share_head";
  const DType storage = a.y.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "y", a.y, a.y.rows, a.y.cols, storage);
  ASHLAR_CHECK(a.heads > 0, kWhere, ": heads = ", a.heads);
  check_view(kWhere, "shared", a.shared, a.y.rows, a.shared.cols, storage);
  check_view(kWhere, "own", a.own, a.y.rows, a.y.cols - a.heads * a.shared.cols, storage);
  ASHLAR_CHECK(a.own.cols % a.heads == 0, kWhere, ": own has ", a.own.cols, " columns for ", a.heads, " heads");
}

void check(const ShareHeadBackward& a) {
  constexpr std::string_view kWhere = "share_head_backward";
  const DType storage = a.dy.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "dy", a.dy, a.dy.rows, a.dy.cols, storage);
  ASHLAR_CHECK(a.heads > 0, kWhere, ": heads = ", a.heads);
  check_view(kWhere, "dshared", a.dshared, a.dy.rows, a.dshared.cols, storage);
  check_view(kWhere, "down", a.down, a.dy.rows, a.dy.cols - a.heads * a.dshared.cols, storage);
  ASHLAR_CHECK(a.down.cols % a.heads == 0, kWhere, ": down has ", a.down.cols, " columns for ", a.heads, " heads");
}

}  // namespace ashlar
