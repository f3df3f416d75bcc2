#!/usr/bin/env bash
# Runs one command on all hosts of a cluster file over SSH.
#
#   ssh.sh start cluster.yaml runs/x impala --env CartPole-v1     starts or continues the run; leaves hosts alone
#                                                                 on which it runs already
#   ssh.sh stop cluster.yaml runs/x                               ends the run on all hosts, with a checkpoint
#   ssh.sh log cluster.yaml runs/x                                shows what each host has printed last
#
# The names of the hosts are those that SSH knows.  On each of them Callboard is installed at the same place, CALLBOARD,
# and the command runs in the folder from which this script is started.
set -euo pipefail
CALLBOARD=${CALLBOARD:-$PWD/.venv/bin/callboard}
action=$1 cluster=$(realpath "$2") run=$3
shift 3

# The first host comes first: it is that of the first learner.
hosts=$("$(dirname "$CALLBOARD")/python" - "$cluster" <<'PYTHON'
import pathlib, sys
from callboard.launch.launchers.hosts.cluster_file import read_cluster
cluster = read_cluster(pathlib.Path(sys.argv[1]))
print(*sorted(cluster.hosts, key=lambda host: host != cluster.first))
PYTHON
)

# The same once more, for the shells of the other machines.
here=$(printf %q "$PWD") at=$(printf %q "$run") command=$(printf %q "$CALLBOARD")
file=$(printf %q "$cluster") folder=$(printf %q "$(dirname "$cluster")")

on() {  # host, command
    ssh -o BatchMode=yes "$1" "cd $here || exit; $2"
}

case $action in
start)
    options=$(printf '%q ' "$@" --launcher hosts --cluster "$cluster" --run-dir "$run")
    for host in $hosts; do
        if on "$host" "{ kill -0 \$(cat $at/$host.pid); } 2> /dev/null"; then
            echo "$host: runs already"
            continue
        fi
        # By another name first: it may be the very same file, on this machine or on storage that all share.
        on "$host" "mkdir -p $folder $at && cat > $file.new && mv $file.new $file" < "$cluster"
        on "$host" "nohup $command train $options --host $host >> $at/$host.out 2>&1 < /dev/null & \
            echo \$! > $at/$host.pid"
        echo "$host: started"
    done
    ;;
stop)
    first=${hosts%% *}
    on "$first" "kill -TERM \$(cat $at/$first.pid)"
    ;;
log)
    for host in $hosts; do
        echo "== $host"
        on "$host" "tail -n 5 $at/$host.out"
    done
    ;;
*)
    echo "ssh.sh: unknown action $action: there are start, stop and log" >&2
    exit 2
    ;;
esac
