#!/usr/bin/env bash
# Makes an archive of the built program that runs from any folder. See --help and launch/packaging/README.md.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/launch/scripts/common.sh"

usage() {
  cat <<'END'
launch/scripts/archive.sh [--out FILE]

Writes the program of build/ (or $ASHLAR_BUILD_DIR) with its libraries, Open MPI, mpirun, configurations, manual page,
completions and licences into FILE, by default ashlar-VERSION-x86_64-linux.tar.gz. It runs from any folder of a Linux
whose C library is not older than this machine's, without packages, MPI or root. Not in it: the C library, NVIDIA's
driver and CUDA's libraries. Prints the size, and the oldest C library on which it runs.

  --out FILE   ends in .tar, .tar.gz or .tar.xz; an existing FILE is replaced once the new one is complete
  --help       this text
END
}

out=
while [ $# -gt 0 ]; do
  case $1 in
    --out)
      [ $# -ge 2 ] || fail 2 "--out needs a file name"
      out=$2
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    *) fail 2 "unknown argument '$1'; --help lists what there is" ;;
  esac
  shift
done

program=$build_dir/ashlar
[ -x "$program" ] || fail 2 "expected the program $program, got none; build it: cmake --preset release && cmake --build build"
! grep -q '^ASHLAR_NATIVE:BOOL=ON' "$build_dir/CMakeCache.txt" ||
  fail 2 "$build_dir is built for this machine's processor alone; build with --preset release, without ASHLAR_NATIVE"
for tool in cmake ompi_info patchelf readelf; do
  [ -x "$(command -v $tool)" ] || fail 2 "$tool is missing; install the packages of $package_list"
done
missing=$(ldd "$program" | sed -n 's/ => not found//p' | tr -d '\t' | tr '\n' ' ')
[ -z "$missing" ] || fail 2 "$program lacks libraries on this machine: $missing"

version=$("$program" --version | sed -n '1s/^ashlar \([^ ]*\).*/\1/p')
name=ashlar-$version-$(uname -m)-linux
out=${out:-$name.tar.gz}
case $out in *.tar | *.tar.gz | *.tar.xz) ;; *) fail 2 "--out '$out': expected a name that ends in .tar, .tar.gz or .tar.xz" ;; esac
folder=$(cd "$(dirname "$out")" 2>/dev/null && pwd) || fail 2 "--out '$out': there is no such folder"
work=$(mktemp -d "$folder/.archive.XXXXXX")
trap 'rm -rf "$work"' EXIT
top=$work/$name mpi=$work/$name/mpi

# libraries FILE...: prints the libraries that the files load, one path a line, without those that belong to the machine:
# the C library's and the driver's.
libraries() {
  ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|mvec|dl|pthread|rt|resolv|util|nsl|anl|nss_[a-z]+|cuda|nvidia-[a-z]+))\.so[^/]*$'
}

# path_of NAME: a folder of Open MPI.
path_of() { ompi_info --path "$1" --parsable | sed 's/^[^/]*//'; }

# Open MPI looks for its parts at fixed places below a prefix, and OPAL_PREFIX names another one: here the folder mpi/.
# Not copied: plugins of fabrics, whose libraries must fit the machine's drivers, and those for files and OpenSHMEM,
# which Ashlar does not use.
copy_open_mpi() {
  local prefix plugins helps plugin
  prefix=$(path_of prefix) plugins=$(path_of pkglibdir) helps=$(path_of pkgdatadir)
  [ -e "$(path_of bindir)/orterun" ] && [ -e "$plugins/mca_pml_ob1.so" ] ||
    fail 2 "expected Open MPI 4, got '$(mpirun --version 2>&1 | head -n 1)'; build with libopenmpi-dev of Debian 12"
  plugin_folder=$mpi/${plugins#"$prefix"/}
  mkdir -p "$mpi/bin" "$mpi/lib" "$plugin_folder" "$mpi/${helps#"$prefix"/}"
  # It calls itself by its name, which tells `ashlar launch` its options.
  cp -L "$(path_of bindir)/orterun" "$mpi/bin/mpirun"
  cp -L "$(path_of bindir)/orted" "$mpi/bin/"
  cp -L "$helps"/*.txt "$mpi/${helps#"$prefix"/}/"
  for plugin in "$plugins"/mca_*.so; do
    case ${plugin##*/mca_} in
      *_ucx.so | *_ofi.so | btl_openib.so | mtl_* | pml_cm.so | *_monitoring.so) ;;
      fbtl_* | fcoll_* | fs_* | io_* | sharedfp_* | memheap_* | scoll_* | spml_* | sshmem_* | atomic_*) ;;
      *) cp -L "$plugin" "$plugin_folder/" ;;
    esac
  done
}

# The commands that users type. Without a fitting C library the shell would say "not found", or the loader a page.
write_commands() {
  local loader
  loader=$(patchelf --print-interpreter "$program")
  cat >"$top/bin/ashlar" <<END
#!/bin/sh
here=\$(cd "\$(dirname "\$(readlink -f "\$0")")/.." && pwd)
has=none
if [ -e $loader ]; then
  has=\$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
  minor=\${has#2.}
  if [ "\${minor:-${c_library#2.}}" -ge ${c_library#2.} ]; then exec "\$here/libexec/ashlar" "\$@"; fi
fi
echo "ashlar: [system] expected the GNU C library $c_library or newer, got \$has; use a container of a newer system" >&2
exit 2
END
  cat >"$top/bin/mpirun" <<'END'
#!/bin/sh
# Open MPI's mpirun, which is told where it is.
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)/mpi
export OPAL_PREFIX=$here PMIX_MCA_mca_base_component_disable_dlopen=1 PMIX_MCA_pcompress_base_silence_warning=1 HWLOC_PLUGINS_PATH=$here/lib
exec "$here/bin/mpirun" "$@"
END
  chmod +x "$top"/bin/{ashlar,mpirun}
}

# Libraries that only Open MPI needs go to mpi/lib, so that without mpi/ none of them stands in the way of a machine's.
copy_libraries() {
  local direct own file
  direct=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^libmpi\.so')
  own=$(libraries "$program" | grep -F -f <(sed 's#^#/#' <<<"$direct"))
  # shellcheck disable=SC2086
  own=$(printf '%s\n' $own "$(libraries $own)" | sort -u)
  # shellcheck disable=SC2086
  cp -L $own "$top/lib/"
  for file in $(libraries "$program" "$mpi"/bin/{mpirun,orted} "$plugin_folder"/*.so); do
    [ -e "$top/lib/${file##*/}" ] || cp -L "$file" "$mpi/lib/"
  done
}

# What is loaded is looked for here first, whatever LD_LIBRARY_PATH says. A library's own path would keep it from that.
set_search_paths() {
  local file
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib:$ORIGIN/../mpi/lib' "$top/libexec/ashlar"
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib:$ORIGIN/../../lib' "$mpi"/bin/{mpirun,orted}
  for file in "$top"/lib/*.so* "$mpi"/lib/*.so* "$plugin_folder"/*.so; do
    case $(readelf -d "$file") in *'(RUNPATH)'* | *'(RPATH)'*) patchelf --remove-rpath "$file" ;; esac
  done
}

# The licences of the packages from which files were copied.
copy_licences() {
  local package folder=$top/share/doc/ashlar/licences
  [ -x "$(command -v dpkg-query)" ] || fail 2 "dpkg-query is missing, which names the licences of the libraries; use Debian 12"
  mkdir "$folder"
  # A file of /usr/lib may be listed as one of /lib.
  for package in $({ libraries "$program" "$mpi/bin/mpirun" "$plugin_folder"/*.so; path_of pkglibdir; } |
    sed 's#^\(/usr\)\?\(/.*\)#\2\n/usr\2#' | xargs dpkg-query -S 2>/dev/null | sed 's/[:,].*//' | sort -u); do
    cp -L "/usr/share/doc/$package/copyright" "$folder/$package"
  done
}

# Prints the newest version of the C library that a file asks for, like 2.34.
oldest_c_library() {
  find "$top" -type f \( -name '*.so*' -o -path '*/bin/*' -o -path '*/libexec/*' \) -exec readelf -V {} + |
    grep -o 'GLIBC_[0-9.]*[0-9]' | sort -Vu | tail -n 1 | sed 's/.*_//'
}

start=$(now_us)
cmake --install "$build_dir" --prefix "$top" --strip >/dev/null
mkdir "$top/lib" "$top/libexec"
mv "$top/bin/ashlar" "$top/libexec/"
copy_open_mpi
copy_libraries
set_search_paths
copy_licences
c_library=$(oldest_c_library)
write_commands
tar --create --auto-compress --file "$work/${out##*/}" --directory "$work" --sort=name --owner=0 --group=0 "$name"
size=$(du -sm "$top" | cut -f1)
mv "$work/${out##*/}" "$out"
printf '%s: %d MB, %d MB unpacked; needs glibc %s or newer (built on glibc %s); %s s\n' "$out" \
  "$(($(stat -c %s "$out") / 1000000))" "$size" "$c_library" "$(getconf GNU_LIBC_VERSION | sed 's/.* //')" \
  "$(seconds_since "$start")"
