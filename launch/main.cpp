#include <cstdio>

int main() {
  std::fputs("ashlar\n", stdout);
  return 0;
}
