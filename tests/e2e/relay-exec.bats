# Commands in a held place: every byte of their streams, their signals, and that they go on whoever
# goes away.
load lib.bash
load relay.bash

more_setup() {
	serve
	read -r lease generation < <(berth lease acquire -q Local)
}
more_teardown() { end_places; }

exec_field() { field_of "$2" raw "http://x/api/execs/$1"; }
exec_is() { same "$(exec_field "$1" .status)" "$2"; }
detached() { berth exec -d "$lease" --cwd "$PWD" -- "$@"; }

@test "64 MB of any bytes go through stdin and stdout unchanged" {
	head -c 67108864 /dev/urandom >sent
	berth exec -i "$lease" -- cat <sent >back
	cmp sent back
}

@test "stdout and stderr stay apart, and the exit code comes through" {
	exits 7 berth exec "$lease" -- sh -c 'printf "o\000ut"; printf "\377err" >&2; exit 7' >out 2>err
	same "$(od -An -c out | tr -s ' ')" ' o \0 u t'
	same "$(od -An -tx1 err | tr -d ' \n')" ff657272
	exits 127 berth exec "$lease" -- no-such-command 2>/dev/null
	exits 126 berth exec "$lease" -- /etc/passwd 2>/dev/null
	exits 137 berth exec "$lease" -- sh -c 'kill -KILL $$'
	exits 124 berth exec --timeout 1s "$lease" -- sleep 60
}

@test "input that nobody reads holds nobody up" {
	head -c 20000000 /dev/zero | timeout 20 "$BERTH" exec -i "$lease" -- true
	id=$(raw -X POST -H 'Content-Type: application/json' -d '{"command": ["sleep", "60"], "stdinStream": true}' \
		"http://x/api/environment-leases/$lease/exec?detach=1" | jq -r .id)
	head -c 20000000 /dev/zero >zeros
	in_background curl -sS --unix-socket "$BERTH_DATA/berth.sock" -X POST -T zeros \
		-H 'Content-Type: application/octet-stream' "http://x/api/execs/$id/stdin" >answer
	sender=$!
	before=$(rss "$server")
	call POST "/api/execs/$id/signal" '{"signal": "TERM"}'
	answered 200
	wait_for 20 exec_is "$id" ended
	wait_for 20 gone "$sender"
	same "$(jq -r .code answer)" conflict
	[ $(($(rss "$server") - before)) -lt 32768 ]
}

@test "input in pieces, and its end when it is said" {
	id=$(raw -X POST -H 'Content-Type: application/json' -d '{"command": ["cat"], "stdinStream": true, "stdin": "one "}' \
		"http://x/api/environment-leases/$lease/exec?detach=1" | jq -r .id)
	for piece in 'two ' 'three'; do
		same "$(raw -H 'Content-Type: application/octet-stream' --data-binary "$piece" \
			"http://x/api/execs/$id/stdin" | jq .bytes)" ${#piece}
	done
	exec_is "$id" running
	raw -f -X POST "http://x/api/execs/$id/stdin?end=1"
	wait_for 10 exec_is "$id" ended
	same "$(raw -H 'Accept: application/octet-stream' "http://x/api/execs/$id/output")" "one two three"
	call POST "/api/execs/$id/stdin?end=1"
	answered 409 conflict
}

@test "output from an offset, as lines or as bytes, also after the end" {
	id=$(detached sh -c 'printf 0123456789; printf ERR >&2; exit 3')
	wait_for 10 exec_is "$id" ended
	same "$(raw -H 'Accept: application/octet-stream' "http://x/api/execs/$id/output?since=7")" 789ERR
	raw "http://x/api/execs/$id/output?since=5&follow=1" >lines
	same "$(jq -r 'select(.type == "stdout").data' lines)" 56789
	same "$(jq -r 'select(.type == "stderr") | [.data, .offset, .streamOffset] | @csv' lines)" '"ERR",10,0'
	same "$(tail -1 lines | jq -c '[.type, .exitCode, .offset]')" '["exit",3,13]'
	same "$(exec_field "$id" .exitCode)" 3
	call GET /api/execs/00000000-0000-4000-8000-000000000000
	answered 404 not_found
}

@test "a reader that stops reading stops nobody and fills nothing" {
	before=$(rss "$server")
	id=$(detached sh -c 'head -c 200000000 /dev/zero; touch written')
	in_background curl -sS --unix-socket "$BERTH_DATA/berth.sock" -H 'Accept: application/octet-stream' \
		"http://x/api/execs/$id/output?follow=1" -o /dev/null --limit-rate 1000
	in_background curl -sS --unix-socket "$BERTH_DATA/berth.sock" \
		"http://x/api/execs/$id/output?follow=1" -o /dev/null --limit-rate 1000
	wait_for 60 test -e written
	wait_for 20 exec_is "$id" ended
	[ $(($(rss "$server") - before)) -lt 32768 ]
	same "$(raw -H 'Accept: application/octet-stream' "http://x/api/execs/$id/output" | wc -c)" 200000000
}

@test "a command outlives its client and its server, and attach misses nothing" {
	in_background "$BERTH" exec "$lease" --cwd "$PWD" -- \
		sh -c 'for i in $(seq 1 400); do echo $i; sleep 0.01; done; exit 5' >/dev/null
	client=$!
	running() { id=$(raw "http://x/api/environment-leases/$lease/execs" | jq -er '.[0].id'); }
	wait_for 10 running
	running
	end $client KILL
	in_background "$BERTH" attach "$id" >got
	follower=$!
	wait_for 10 grep -qx 20 got
	for round in 1 2; do
		end "$server" KILL
		serve
	done
	exits 5 wait $follower
	cmp got <(seq 1 400)
	same "$(exec_field "$id" .exitCode)" 5
}

@test "with onDisconnect kill the command ends with its client" {
	in_background curl -sS --unix-socket "$BERTH_DATA/berth.sock" -H 'Content-Type: application/json' \
		-d "{\"command\": [\"sh\", \"-c\", \"echo \$\$ >$PWD/pid; sleep 300\"], \"onDisconnect\": \"kill\"}" \
		"http://x/api/environment-leases/$lease/exec" -o /dev/null
	client=$!
	wait_for 10 test -s pid
	alive "$(cat pid)"
	end $client KILL
	wait_for 20 gone "$(cat pid)"
}

@test "Ctrl-C is the command's own; the second one ends it" {
	in_background "$BERTH" exec "$lease" --cwd "$PWD" -- \
		sh -c 'trap "echo caught; exit 9" INT; echo ready; while :; do sleep 0.05; done' >got 2>err
	cli=$!
	wait_for 10 grep -q ready got
	kill -INT $cli
	exits 9 wait $cli
	grep -q caught got
	in_background "$BERTH" exec "$lease" --cwd "$PWD" -- \
		sh -c 'trap "" INT TERM; echo $$ >pid; while :; do sleep 0.05; done' >got 2>err
	cli=$!
	wait_for 10 test -s pid
	kill -INT $cli
	wait_for 10 grep -q 'again kills it' err
	alive "$(cat pid)"
	kill -INT $cli
	exits 137 wait $cli
	wait_for 10 gone "$(cat pid)"
}
