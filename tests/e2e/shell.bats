# A place without a relay: the same verbs over one-shot commands, and what it refuses.
load lib.bash

more_setup() {
	serve --allow-fake --sweep-every 50ms --retry-after 50ms
	berth env add -q bare --provider fake --config '{"relay": false}' >/dev/null
}

hold() { read -r lease generation < <(berth lease acquire -q bare "$@"); }
in_place() { berth exec "$lease" -- "$@"; }

@test "runs, exit codes and output are what they are elsewhere" {
	same "$(berth run -q --env bare -- sh -c 'echo out; echo err >&2' 2>err)" out
	has "$(<err)" '^err$'
	for code in 0 1 3; do exits "$code" berth run -q --env bare -- sh -c "exit $code"; done
	exits 127 berth run -q --env bare -- no-such-command 2>/dev/null
	exits 126 berth run -q --env bare -- /etc/passwd 2>/dev/null
	exits 143 berth run -q --env bare -- sh -c 'kill $$'
	exits 124 berth run -q --env bare --timeout 1s -- sleep 60
	same "$(relays)" ""
	same "$(berth audit --json | jq length)" 0
}

@test "a lease says that its place has no relay, and a terminal is refused with the reason" {
	hold
	berth lease show "$lease" --json >lease.json
	same "$(jq -c '[.fencing, .metadata.noRelay]' lease.json)" '["server",true]'
	call POST "/api/environment-leases/$lease/exec" '{"command": ["sh"], "tty": {}}'
	answered 422 unsupported_environment
	has "$body" 'this place has no relay: a command cannot have a terminal'
	call POST "/api/environment-leases/$lease/exec" '{"command": ["cat"], "stdinStream": true}'
	answered 422 unsupported_environment
	exits 125 script -qec "$BERTH exec -it $lease -- sh" /dev/null >said
	has "$(<said)" 'this place has no relay: a command cannot have a terminal'
}

@test "standard input that comes with the command is exact, and so is what comes out" {
	hold
	head -c 1000000 /dev/urandom >sent
	jq -Rs --rawfile data <(base64 -w0 sent) -n \
		'{command: ["cat"], stdin: $data, stdinEncoding: "base64"}' >order
	curl -sf --max-time 30 --unix-socket "$BERTH_DATA/berth.sock" -H 'Content-Type: application/json' \
		--data-binary @order "http://x/api/environment-leases/$lease/exec?stream=0" >answer
	jq -r .stdout answer | base64 -d | cmp - sent
	same "$(jq -c '[.exitCode, .stdoutTruncated]' answer)" '[0,false]'
}

@test "files go in and out, with any name, and nothing outside is reached" {
	hold
	head -c 2500000 /dev/urandom >sent
	berth cp -q sent "$lease:big"
	in_place cat big | cmp - sent
	berth cp -q "$lease:big" back
	cmp sent back
	mkdir -p tree/sub
	printf x >"tree/sub/-odd \$(name)'\""
	berth cp -q tree "$lease:tree"
	same "$(in_place ls tree/sub)" "-odd \$(name)'\""
	files=/api/environment-leases/$lease/files
	call GET "$files/list?path=tree"
	same "$(jq -r '.entries[].path' <<<"$body")" sub
	in_place ln -s /etc/passwd link
	call GET "$files?path=link"
	answered 400 bad_path
	call GET "$files?path=../../journal.jsonl"
	answered 400 bad_path
	call POST "$files/rename" '{"from": "big", "to": "tree/moved"}'
	answered 200
	call DELETE "$files?path=tree&recursive=1"
	in_place test ! -e tree
}

@test "Ctrl-C ends a command that cannot be sent signals" {
	hold
	in_background "$BERTH" exec "$lease" -- sh -c "echo \$\$ >$T/pid; exec sleep 600" >said 2>&1
	client=$!
	wait_for 10 test -s "$T/pid"
	pid=$(<"$T/pid")
	kill -INT "$client"
	wait_for 10 gone "$client"
	has "$(<said)" 'cancelling exec'
	wait_for 10 gone "$pid"
}

no_lease_is_active() { same "$(berth lease ls bare --status active --json | jq length)" 0; }

@test "after a crash of the server the run is lost, its command is ended, and nothing is left" {
	run=$(berth run -q --detach --env bare -- sh -c "echo \$\$ >$T/pid; exec sleep 600")
	wait_for 10 test -s "$T/pid"
	pid=$(<"$T/pid")
	end "$server" KILL
	alive "$pid"
	serve --allow-fake --sweep-every 50ms --retry-after 50ms
	wait_for 20 run_is "$run" failed
	same "$(run_field "$run" .errorCode)" process_lost
	has "$(run_field "$run" .error)" 'a place without a relay'
	wait_for 20 gone "$pid"
	# It is tried once more, as always when a run was lost.
	retry=$(berth runs --json | jq -er --arg run "$run" '.items[] | select(.id != $run).id')
	berth cancel -q "$retry" >/dev/null
	wait_for 20 run_is "$retry" cancelled
	wait_for 20 no_lease_is_active
	same "$(berth audit --json | jq length)" 0
}
