#!/usr/bin/env bash
# nccl.sh RANKS: gpu_nccl on so many ranks. Ranks that share a GPU are refused by NCCL unless each says that it is another
# machine (tests/mpi/README.md); they then talk over sockets.
# Exit codes: gpu_nccl's.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=1 NCCL_BUFFSIZE=1048576
# shellcheck disable=SC2154,SC2016  # of common.sh; expanded on each rank
on_ranks "$1" bash -c 'export NCCL_HOSTID=rank-$OMPI_COMM_WORLD_RANK && exec "$0"' "$here/gpu_nccl"
