#!/bin/sh
# The demo process of `proctor dev`: writes a line into a log every second.
# Kill it (kill -9) and its agent starts it again.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
pid_file=$here/heartbeat.pid
log=$here/heartbeat.log

# The log stays small: its last lines are kept.
trim() {
    [ -f "$log" ] && tail -n 300 "$log" >"$log.new" && mv "$log.new" "$log"
}

case "$1" in
start)
    "$here/heartbeat.sh" run </dev/null >/dev/null 2>&1 &
    echo $! >"$pid_file.new" && mv "$pid_file.new" "$pid_file"
    ;;
run)
    trap '' HUP
    beats=0
    while :; do
        [ $((beats % 300)) -eq 0 ] && trim
        beats=$((beats + 1))
        echo "$(date '+%Y-%m-%d %H:%M:%S') heartbeat $beats of pid $$" >>"$log"
        sleep 1
    done
    ;;
stop)
    kill "$(cat "$pid_file")"
    ;;
version)
    echo 1.0
    ;;
*)
    echo "usage: $0 start|run|stop|version" >&2
    exit 2
    ;;
esac
