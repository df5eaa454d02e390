#pragma once

#include <type_traits>

#include "core/tensor/view.h"

namespace ashlar {

namespace detail {

// Every member can be initialised from {}, and only as many members as there are.
// clang-format off
#define ASHLAR_BRACES_1 {}
#define ASHLAR_BRACES_2 ASHLAR_BRACES_1, {}
#define ASHLAR_BRACES_3 ASHLAR_BRACES_2, {}
#define ASHLAR_BRACES_4 ASHLAR_BRACES_3, {}
#define ASHLAR_BRACES_5 ASHLAR_BRACES_4, {}
#define ASHLAR_BRACES_6 ASHLAR_BRACES_5, {}
#define ASHLAR_BRACES_7 ASHLAR_BRACES_6, {}
#define ASHLAR_BRACES_8 ASHLAR_BRACES_7, {}
#define ASHLAR_BRACES_9 ASHLAR_BRACES_8, {}
#define ASHLAR_BRACES_10 ASHLAR_BRACES_9, {}
#define ASHLAR_BRACES_11 ASHLAR_BRACES_10, {}
#define ASHLAR_BRACES_12 ASHLAR_BRACES_11, {}
#define ASHLAR_BRACES_13 ASHLAR_BRACES_12, {}
#define ASHLAR_BRACES_14 ASHLAR_BRACES_13, {}
#define ASHLAR_BRACES_15 ASHLAR_BRACES_14, {}
#define ASHLAR_BRACES_16 ASHLAR_BRACES_15, {}
#define ASHLAR_BRACES_17 ASHLAR_BRACES_16, {}
#define ASHLAR_BRACES_18 ASHLAR_BRACES_17, {}
#define ASHLAR_BRACES_19 ASHLAR_BRACES_18, {}
#define ASHLAR_BRACES_20 ASHLAR_BRACES_19, {}
#define ASHLAR_BRACES_21 ASHLAR_BRACES_20, {}
#define ASHLAR_BRACES_22 ASHLAR_BRACES_21, {}
#define ASHLAR_BRACES_23 ASHLAR_BRACES_22, {}
#define ASHLAR_BRACES_24 ASHLAR_BRACES_23, {}
#define ASHLAR_BRACES_25 ASHLAR_BRACES_24, {}
// clang-format on

template <typename T>
constexpr int num_fields() {
  if constexpr (requires { T{ASHLAR_BRACES_25}; }) {
    return 25;
  } else if constexpr (requires { T{ASHLAR_BRACES_24}; }) {
    return 24;
  } else if constexpr (requires { T{ASHLAR_BRACES_23}; }) {
    return 23;
  } else if constexpr (requires { T{ASHLAR_BRACES_22}; }) {
    return 22;
  } else if constexpr (requires { T{ASHLAR_BRACES_21}; }) {
    return 21;
  } else if constexpr (requires { T{ASHLAR_BRACES_20}; }) {
    return 20;
  } else if constexpr (requires { T{ASHLAR_BRACES_19}; }) {
    return 19;
  } else if constexpr (requires { T{ASHLAR_BRACES_18}; }) {
    return 18;
  } else if constexpr (requires { T{ASHLAR_BRACES_17}; }) {
    return 17;
  } else if constexpr (requires { T{ASHLAR_BRACES_16}; }) {
    return 16;
  } else if constexpr (requires { T{ASHLAR_BRACES_15}; }) {
    return 15;
  } else if constexpr (requires { T{ASHLAR_BRACES_14}; }) {
    return 14;
  } else if constexpr (requires { T{ASHLAR_BRACES_13}; }) {
    return 13;
  } else if constexpr (requires { T{ASHLAR_BRACES_12}; }) {
    return 12;
  } else if constexpr (requires { T{ASHLAR_BRACES_11}; }) {
    return 11;
  } else if constexpr (requires { T{ASHLAR_BRACES_10}; }) {
    return 10;
  } else if constexpr (requires { T{ASHLAR_BRACES_9}; }) {
    return 9;
  } else if constexpr (requires { T{ASHLAR_BRACES_8}; }) {
    return 8;
  } else if constexpr (requires { T{ASHLAR_BRACES_7}; }) {
    return 7;
  } else if constexpr (requires { T{ASHLAR_BRACES_6}; }) {
    return 6;
  } else if constexpr (requires { T{ASHLAR_BRACES_5}; }) {
    return 5;
  } else if constexpr (requires { T{ASHLAR_BRACES_4}; }) {
    return 4;
  } else if constexpr (requires { T{ASHLAR_BRACES_3}; }) {
    return 3;
  } else if constexpr (requires { T{ASHLAR_BRACES_2}; }) {
    return 2;
  } else if constexpr (requires { T{ASHLAR_BRACES_1}; }) {
    return 1;
  } else {
    return 0;
  }
}

// clang-format off
#undef ASHLAR_BRACES_1
#undef ASHLAR_BRACES_2
#undef ASHLAR_BRACES_3
#undef ASHLAR_BRACES_4
#undef ASHLAR_BRACES_5
#undef ASHLAR_BRACES_6
#undef ASHLAR_BRACES_7
#undef ASHLAR_BRACES_8
#undef ASHLAR_BRACES_9
#undef ASHLAR_BRACES_10
#undef ASHLAR_BRACES_11
#undef ASHLAR_BRACES_12
#undef ASHLAR_BRACES_13
#undef ASHLAR_BRACES_14
#undef ASHLAR_BRACES_15
#undef ASHLAR_BRACES_16
#undef ASHLAR_BRACES_17
#undef ASHLAR_BRACES_18
#undef ASHLAR_BRACES_19
#undef ASHLAR_BRACES_20
#undef ASHLAR_BRACES_21
#undef ASHLAR_BRACES_22
#undef ASHLAR_BRACES_23
#undef ASHLAR_BRACES_24
#undef ASHLAR_BRACES_25
// clang-format on

}  // namespace detail

/// Calls `visit` with each ConstView and MutView among the members of an args struct, those of nested structs included:
/// what the call reads and what it writes. A new member needs no edit anywhere.
template <typename T, typename Visit>
void for_each_view(const T& value, const Visit& visit) {
  if constexpr (std::is_same_v<T, ConstView> || std::is_same_v<T, MutView>) {
    if (value) visit(value);
  } else if constexpr (std::is_aggregate_v<T> && std::is_class_v<T>) {
    const auto each = [&](const auto&... members) { (for_each_view(members, visit), ...); };
    constexpr int n = detail::num_fields<T>();
    static_assert(n <= 24, "more members than for_each_view knows");
#define ASHLAR_FIELDS(count, ...)      \
  else if constexpr (n == count) {     \
    const auto& [__VA_ARGS__] = value; \
    each(__VA_ARGS__);                 \
  }
    if constexpr (n == 0 || requires {
                    value.size();
                    value[0];
                  }) {
      // an array of bytes holds no view
    }
    ASHLAR_FIELDS(1, a)
    ASHLAR_FIELDS(2, a, b)
    ASHLAR_FIELDS(3, a, b, c)
    ASHLAR_FIELDS(4, a, b, c, d)
    ASHLAR_FIELDS(5, a, b, c, d, e)
    ASHLAR_FIELDS(6, a, b, c, d, e, f)
    ASHLAR_FIELDS(7, a, b, c, d, e, f, g)
    ASHLAR_FIELDS(8, a, b, c, d, e, f, g, h)
    ASHLAR_FIELDS(9, a, b, c, d, e, f, g, h, i)
    ASHLAR_FIELDS(10, a, b, c, d, e, f, g, h, i, j)
    ASHLAR_FIELDS(11, a, b, c, d, e, f, g, h, i, j, k)
    ASHLAR_FIELDS(12, a, b, c, d, e, f, g, h, i, j, k, l)
    ASHLAR_FIELDS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
    ASHLAR_FIELDS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, o)
    ASHLAR_FIELDS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p)
    ASHLAR_FIELDS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q)
    ASHLAR_FIELDS(17, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r)
    ASHLAR_FIELDS(18, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s)
    ASHLAR_FIELDS(19, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t)
    ASHLAR_FIELDS(20, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u)
    ASHLAR_FIELDS(21, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v)
    ASHLAR_FIELDS(22, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w)
    ASHLAR_FIELDS(23, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, x)
    ASHLAR_FIELDS(24, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w, x, y)
#undef ASHLAR_FIELDS
  }
}

}  // namespace ashlar
