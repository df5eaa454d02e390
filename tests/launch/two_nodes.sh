#!/usr/bin/env bash
# two_nodes.sh DIR COMMAND...: runs COMMAND on a, the first of two nodes on this machine; when it ends, so do both.
# Each node has its own host name, process ids, shared memory, DIR/private and, where the machine lets it, network: a
# cable between them, cable-a and cable-b (DIR/network says `own` or `shared`). They share all other files. mpirun on a
# reaches b as by ssh, with node_agent.sh; NODE_B is b's first process: killed, it takes the node with it.
# Nothing outside changes: all of it is namespaces, which end with their first process. Exit code: COMMAND's; 77 and a
# line on standard error where there are no namespaces to be had.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# own NAME: what a node has for itself. Run by the first process in its namespaces.
own() {
  mount -t proc proc /proc
  mount -t tmpfs tmpfs /dev/shm
  mount -t tmpfs tmpfs "$dir/private"
  hostname "$1"
}

case $1 in
  --on-a)
    dir=$2
    shift 2
    own a
    # Of names that are addresses of this machine mpirun would take both nodes for it.
    printf '127.0.0.1 localhost\n10.99.0.1 a\n10.99.0.2 b\n' >"$dir/hosts"
    mount --bind "$dir/hosts" /etc/hosts
    network=()
    if [ "$(cat "$dir/network")" = own ]; then network=(-n); fi
    # What it says when b is killed is known.
    unshare -mup ${network[@]+"${network[@]}"} -f --kill-child "$0" --on-b "$dir" 2>"$dir/b.log" &
    for ((i = 0; i < 1000; ++i)); do
      [ ! -s "$dir/b" ] || break
      sleep 0.01
    done
    NODE_B=$(cat "$dir/b")
    export NODE_B TMPDIR=$dir/tmp OMPI_MCA_plm_rsh_agent=$here/node_agent.sh
    if [ ${#network[@]} -gt 0 ]; then
      ip link add cable-a type veth peer name cable-b netns "$NODE_B"
      ip address add 10.99.0.1/24 dev cable-a
      ip link set lo up
      ip link set cable-a up
      nsenter -t "$NODE_B" -n \
        sh -c 'ip address add 10.99.0.2/24 dev cable-b && ip link set lo up && ip link set cable-b up'
    else
      export OMPI_MCA_btl_tcp_if_include=lo # all that is there for certain
    fi
    "$@"
    ;;
  --on-b)
    dir=$2
    read -r pid _ </proc/self/stat # as a knows it: /proc is still a's
    own b
    echo "$pid" >"$dir/b"
    sleep infinity &
    wait # and reap what others leave behind
    ;;
  *)
    dir=$1
    shift
    mkdir -p "$dir/private" "$dir/tmp"
    rm -f "$dir/b"
    as=()
    unshare -mup -f true 2>/dev/null || as=(--map-root-user)
    if ! unshare ${as[@]+"${as[@]}"} -mup -f mount -t proc proc /proc; then
      echo 'two_nodes.sh: this machine allows no namespaces for mounts, host name and process ids' >&2
      exit 77
    fi
    network=(-n)
    if unshare ${as[@]+"${as[@]}"} -mupn -f ip link add x type veth peer name y 2>/dev/null; then
      echo own >"$dir/network"
    else
      network=()
      echo shared >"$dir/network"
    fi
    exec unshare ${as[@]+"${as[@]}"} -mup ${network[@]+"${network[@]}"} -f --kill-child "$0" --on-a "$dir" "$@"
    ;;
esac
