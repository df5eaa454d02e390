# shellcheck shell=bash
# What the GPU's clocks did while something was measured, by nvidia-smi. A rate means little without it: a card that is
# held back by its power limit, by heat or by its owner's settings has another peak. run.sh and bench.sh source it.

clocks_fields=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.draw,power.limit
clocks_fields+=,temperature.gpu,utilization.gpu
# clocks_watch FILE: writes a line each second into FILE, until clocks_end. No file where nvidia-smi does not run.
clocks_watch() {
  local device=${CUDA_VISIBLE_DEVICES:-0} reasons query
  clocks_pid=''
  # Drivers before 535 call the reasons by another name.
  for reasons in clocks_event_reasons clocks_throttle_reasons; do
    query=(-i "${device%%,*}" "--query-gpu=$clocks_fields,$reasons.active" '--format=csv,noheader,nounits')
    nvidia-smi "${query[@]}" >"$1" 2>/dev/null </dev/null || continue
    nvidia-smi "${query[@]}" -l 1 >>"$1" 2>/dev/null </dev/null &
    clocks_pid=$!
    return
  done
  rm -f "$1"
}
clocks_end() {
  if [ -n "${clocks_pid-}" ]; then
    kill "$clocks_pid" 2>/dev/null
    wait "$clocks_pid" 2>/dev/null
  fi
  clocks_pid=''
}

# clocks_summary text|json FILE: the card, its clocks and power, and how often it was throttled, of those samples in
# which it worked (all, if it never did).
clocks_summary() {
  if [ ! -s "$2" ]; then
    [ "$1" = json ] && printf 'null' || printf 'clocks unknown: nvidia-smi does not run here'
    return
  fi
  # shellcheck disable=SC2016
  awk -F ', *' -v as="$1" '
    # The model says how the card is built in, and so what power it gets.
    function kind(name) {
      if (name ~ /NVL/) return "NVL"
      if (name ~ /PCI[eE]/) return "PCIe"
      if (name ~ /SXM|HBM3$|H200$|B200$/) return "SXM"
      return "of unknown kind"
    }
    function bit(hex, number,    digit) {
      digit = index("0123456789abcdef", tolower(substr(hex, length(hex) - int(number / 4), 1))) - 1
      return int(digit / 2 ^ (number % 4)) % 2
    }
    function median(values, n,    i, j, t) {
      for (i = 2; i <= n; ++i) {
        t = values[i]
        for (j = i; j > 1 && values[j - 1] > t; --j) values[j] = values[j - 1]
        values[j] = t
      }
      return values[int((n + 1) / 2)]
    }
    BEGIN {
      reason[1] = "application clocks setting"; reason[2] = "power cap"; reason[3] = "hardware slowdown"
      reason[5] = "software thermal slowdown"; reason[6] = "hardware thermal slowdown"; reason[7] = "power brake"
    }
    NF < 11 { next }
    { line[++lines] = $0; if ($10 + 0 > 0) ++busy }
    END {
      if (lines == 0) { printf "%s", as == "json" ? "null" : "clocks unknown: nvidia-smi tells none"; exit }
      for (i = 1; i <= lines; ++i) {
        split(line[i], f, /, */)
        if (busy > 0 && f[10] + 0 == 0) continue
        sm[++n] = f[3] + 0; watts[n] = f[7] + 0; memory[n] = f[5] + 0
        if (f[9] + 0 > celsius) celsius = f[9] + 0
        held = 0
        for (b = 1; b <= 7; ++b) if (b in reason && bit(f[11], b)) { ++times[b]; held = 1 }
        throttled += held
      }
      s = median(sm, n); w = median(watts, n); m = median(memory, n)
      for (b = 1; b <= 7; ++b) if (times[b] > 0) {
        list = list (list == "" ? "" : ", ") (as == "json" ? "\"" reason[b] "\": " times[b] : reason[b] " " times[b])
      }
      if (as == "json") {
        printf "{\"name\": \"%s\", \"kind\": \"%s\", \"driver\": \"%s\", \"sm_mhz\": %d, \"sm_mhz_least\": %d, " \
          "\"sm_mhz_max\": %d, \"memory_mhz\": %d, \"memory_mhz_max\": %d, \"watts\": %.1f, \"watts_limit\": %.1f, " \
          "\"celsius\": %d, \"samples\": %d, \"throttled\": %d, \"reasons\": {%s}}", f[1], kind(f[1]), f[2], s, sm[1], \
          f[4], m, f[6], w, f[8], celsius, n, throttled, list
      } else {
        printf "%s (%s), driver %s: SM %d of %d MHz (least %d), memory %d of %d MHz, %.0f of %.0f W, %d C; %s", f[1], \
          kind(f[1]), f[2], s, f[4], sm[1], m, f[6], w, f[8], celsius, \
          (throttled > 0 ? "throttled in " throttled " of " n " samples: " list : "not throttled in " n " samples")
      }
    }' "$2"
}
