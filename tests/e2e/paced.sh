#!/usr/bin/env bash
# A job that takes a given time and costs the machine nothing: it sleeps. Asked to leave, it notes how much is left, takes the
# time that a checkpoint would, and goes on from there in its next run. A shell, since a Python start costs more than the rest.
# Usage: paced.sh WORK_US CHECKPOINT_US RESTORE_US
set -u
left=$1 checkpoint=$2 restore=$3
file=$EBB_CHECKPOINT_DIR/left
works_from=

tell() {
    printf '{"job":%s,"run":%s,"pid":%s,"event":"%s","left_us":%s}\n' "$EBB_JOB_ID" "$EBB_RUN" $$ "$1" "$left" >>"$EVIDENCE"
}

pause() { # so many microseconds
    local seconds
    printf -v seconds '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000))
    sleep "$seconds" &
    wait $!
}

leave() {
    trap '' TERM
    if [ -n "$works_from" ]; then
        left=$((left - (${EPOCHREALTIME//[!0-9]/} - works_from)))
        left=$((left > 0 ? left : 0))
        pause "$checkpoint"
        mkdir -p "$EBB_CHECKPOINT_DIR"
        echo "$left" >"$file"
    fi
    tell left
    : >"$EBB_YIELD_FILE"
    exit 0
}

trap leave TERM
tell start
if [ -e "$file" ]; then
    read -r left <"$file"
    pause "$restore"
fi
works_from=${EPOCHREALTIME//[!0-9]/}
pause "$left"
trap '' TERM # all is done: a signal from here on changes nothing
echo $$ >"$EBB_DONE_FILE"
tell end
