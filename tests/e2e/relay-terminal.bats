# Terminals in places, driven through a real one: tmux stands for the person's window.
load lib.bash
load relay.bash

more_setup() {
	serve
	read -r lease generation < <(berth lease acquire -q Local)
	export TERM=screen
	tm -f /dev/null new-session -d -x 90 -y 25 env PS1='outer> ' PATH="$PATH" bash --norc --noprofile
	tm set-option -g status off
	type_in "cd $PWD; clear"
	wait_for 10 shows '^outer> *$'
}
more_teardown() {
	tm kill-server 2>/dev/null || true
	end_places
}

tm() { tmux -S "$T/tmux" "$@" 3>&-; }
screen() { tm capture-pane -p; }
shows() { screen | grep -Eq -- "$1"; }
type_in() { tm send-keys -l "$1"; tm send-keys Enter; }
keys() { tm send-keys "$@"; }
# inside COMMAND: a terminal in the place, and its shell ready
inside() {
	type_in "'$BERTH' exec -it $lease --cwd $PWD -e PS1='inner> ' -e HOME=$HOME -- bash --norc --noprofile"
	wait_for 10 shows '^inner> *$'
}
the_exec() { raw "http://x/api/environment-leases/$lease/execs" | jq -er '.[0].id'; }
# job_is NAME STATE: the process whose id is in the file `job`
job_is() { [ "$(cat "/proc/$(cat job)/comm") $(process_state "$(cat job)")" = "$1 $2" ]; }
ws() { python3 "$BATS_TEST_DIRNAME/ws.py" "$BERTH_DATA/berth.sock" "$@" 3>&-; }
# start_tty COMMAND...: the id of an exec with a terminal
start_tty() {
	printf '%s\n' "$@" | jq -R . | jq -s '{command: ., tty: {rows: 24, cols: 80}}' |
		raw -X POST -H 'Content-Type: application/json' --data-binary @- \
			"http://x/api/environment-leases/$lease/exec?detach=1" | jq -er .id
}

@test "a shell has a terminal with job control, keys act there, its size follows the window" {
	inside
	type_in 'tty >/dev/null && stty size'
	wait_for 10 shows '^25 90$'
	tm resize-window -x 70 -y 20
	type_in 'stty size'
	wait_for 10 shows '^20 70$'
	# A key that comes before the shell has given its terminal to the job is the shell's: the job has
	# the terminal once it is the program asked for, and again once it runs after its stop.
	type_in 'sh -c "echo \$\$ >job; exec sleep 300"'
	wait_for 10 job_is sleep S
	keys C-z
	wait_for 10 shows 'Stopped +sh -c'
	type_in 'fg'
	wait_for 10 job_is sleep S
	keys C-c
	type_in 'echo code $?'
	wait_for 10 shows '^code 130$'
	type_in 'exit 7'
	wait_for 10 shows '^outer> *$'
	type_in 'echo code $?; stty -a | tr " " "\n" | grep -x -- icanon'
	wait_for 10 shows '^code 7$'
	wait_for 10 shows '^icanon$'
}

@test "vim edits a file" {
	inside
	type_in 'vi -u NONE text'
	wait_for 10 shows '^~'
	keys i 'first line' Enter 'second' Escape
	type_in ':wq'
	wait_for 10 test -s text
	wait_for 10 shows '^inner> *$'
	same "$(cat text)" $'first line\nsecond'
}

@test "top draws, goes on drawing, and leaves" {
	inside
	type_in 'top -d 0.2'
	wait_for 10 shows 'load average'
	first=$(screen)
	redrawn() { [ "$(screen)" != "$first" ]; }
	wait_for 10 redrawn
	keys q
	wait_for 10 shows '^inner> *$'
}

@test "ctrl-p ctrl-q leaves it, attach comes back to it as it was" {
	inside
	type_in 'remember=me'
	keys C-p C-q
	wait_for 10 shows 'comes back to it'
	id=$(the_exec)
	type_in "clear; '$BERTH' attach $id"
	wait_for 10 shows 'inner> remember=me'
	type_in 'echo it is $remember'
	wait_for 10 shows '^it is me$'
	keys C-d
	wait_for 10 shows '^outer> *$'
}

@test "a ctrl-p that is not followed by ctrl-q is the shell's" {
	inside
	type_in 'echo once'
	wait_for 10 shows '^once$'
	keys C-p Enter
	twice() { [ "$(screen | grep -cx once)" = 2 ]; }
	wait_for 10 twice
}

@test "a terminal whose server died goes on with the next one" {
	inside
	type_in 'kept=$$; echo before'
	wait_for 10 shows '^before$'
	end "$server" KILL
	serve
	type_in '[ $kept = $$ ] && echo after'
	wait_for 20 shows '^after$'
	same "$(screen | grep -cx before)" 1
	type_in 'exit 3'
	wait_for 10 shows '^outer> *$'
	type_in 'echo code $?'
	wait_for 10 shows '^code 3$'
}

# An interactive shell would mend its terminal itself, so a plain one looks at what it was left with.
@test "the window's terminal is whole again whatever ends berth" {
	for signal in TERM HUP INT QUIT; do
		rm -f after
		type_in "clear; sh -c '\"$BERTH\" exec -it $lease -- sleep 300; stty -a >after'"
		raw_now() { pid=$(pgrep -f -- "^$BERTH exec -it $lease") && stty_of_pane | grep -q -- -icanon; }
		wait_for 10 raw_now
		raw_now
		kill -$signal "$pid"
		wait_for 10 gone "$pid"
		wait_for 10 test -s after
		tr ' ;' '\n\n' <after | grep -qx icanon
		wait_for 10 shows '^outer> *$'
	done
}
stty_of_pane() { stty -a <"$(tm display-message -p '#{pane_tty}')"; }

@test "a run has a terminal too, and attach finds it" {
	type_in "'$BERTH' run --env Local -t -e PS1='inner> ' -- bash --norc --noprofile"
	wait_for 10 shows '^inner> *$'
	type_in 'stty size; pwd'
	wait_for 10 shows '^25 90$'
	wait_for 10 shows "^$PWD$"
	keys C-p C-q
	wait_for 10 shows 'comes back to it'
	id=$(berth runs --json | jq -r '.items[0].id')
	run_is "$id" running
	type_in "clear; '$BERTH' attach $id"
	type_in 'exit 5'
	wait_for 10 shows '^outer> *$'
	type_in 'echo code $?'
	wait_for 10 shows '^code 5$'
	wait_for 10 run_is "$id" failed
}

@test "Ctrl-Z stops berth and not the run" {
	type_in "'$BERTH' run --env Local -q -- sh -c 'for i in \$(seq 1 100); do echo \$i >>ticks; echo \$i; sleep 0.02; done' >got"
	wait_for 10 test -s ticks
	keys C-z
	wait_for 10 shows 'Stopped'
	wait_for 10 grep -qx 100 ticks
	type_in 'fg; echo code $?'
	wait_for 10 shows '^code 0$'
	cmp got <(seq 1 100)
}

@test "berth exec -t without a terminal is refused" {
	exits 125 berth exec -it "$lease" -- true </dev/null 2>err
	has "$(cat err)" 'needs a terminal'
}

@test "the socket says why it closes: exited" {
	id=$(start_tty sh -c 'read line; echo "got $line"; exit 4')
	ws "/api/execs/$id/terminal" --bytes bytes 'type:hello\n' >events
	has "$(cat bytes)" 'got hello'
	same "$(sed -n 1p events | jq -c '[.type, .offset]')" '["attached",0]'
	same "$(jq -c 'select(.type == "exit") | [.exitCode, .reason]' events)" '[4,"exited"]'
	same "$(tail -1 events | jq -c '[.type, .code, .reason]')" '["close",1000,"exited 4"]'
	size=$(wc -c <bytes)
	ws "/api/execs/$id/terminal?since=$((size - 5))" --bytes tail >events
	cmp tail <(tail -c 5 bytes)
	has "$(cat events)" 'exited 4'
}

@test "the socket says why it closes: replaced" {
	id=$(start_tty sh -c 'echo ready; read line; exit 0')
	in_background python3 "$BATS_TEST_DIRNAME/ws.py" "$BERTH_DATA/berth.sock" "/api/execs/$id/terminal" >first
	wait_for 10 grep -q attached first
	in_background python3 "$BATS_TEST_DIRNAME/ws.py" "$BERTH_DATA/berth.sock" "/api/execs/$id/terminal" >second
	wait_for 10 grep -q attached second
	ws "/api/execs/$id/terminal?exclusive=1" wait:ready 'type:x\n' >third
	wait_for 10 grep -q '4001.*replaced' first
	wait_for 10 grep -q '4001.*replaced' second
	has "$(cat third)" 'exited 0'
}

@test "the socket says why it closes: lease_lost" {
	id=$(start_tty sh -c 'echo ready; sleep 300')
	in_background python3 "$BATS_TEST_DIRNAME/ws.py" "$BERTH_DATA/berth.sock" "/api/execs/$id/terminal" >events
	wait_for 10 grep -q attached events
	berth lease release -q "$lease"
	wait_for 20 grep -q '4002.*lease_lost' events
}

@test "control messages resize and signal; nonsense is refused and harms nothing" {
	id=$(start_tty sh -c 'trap "echo winch; stty size" WINCH; trap "echo usr1; exit 6" USR1; echo ready; while :; do sleep 0.05; done')
	ws "/api/execs/$id/terminal" --bytes bytes wait:ready 'say:{"type": "resize", "rows": 33, "cols": 44}' \
		'wait:33 44' 'say:{"type": "resize", "rows": 0}' 'say:not json' 'say:{"type": "dance"}' \
		'say:{"type": "signal", "signal": "NOPE"}' 'say:{"type": "signal", "signal": "USR1", "target": "process"}' >events
	same "$(grep -c '"type":"error"' events)" 4
	has "$(tail -1 events)" 'exited 6'
}

@test "a terminal is no page for strangers" {
	id=$(start_tty sleep 300)
	call GET "/api/execs/$id/terminal"
	answered 400 bad_request
	call GET "/api/execs/$id/terminal" '' -H 'Connection: Upgrade' -H 'Upgrade: websocket' \
		-H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' \
		-H 'Origin: http://evil.example'
	answered 403 origin_not_allowed
	has "$(ws /api/execs/00000000-0000-4000-8000-000000000000/terminal || true)" 404
}

# What is under way when a server stops reaches the command, or waits for the next server.
@test "keys typed while servers come and go all arrive" {
	inside
	type_in 'cat >typed'
	for i in $(seq 60); do
		type_in "line $i"
		[ $((i % 20)) != 10 ] || { end "$server" TERM; serve; }
	done
	type_in last
	wait_for 30 grep -qx last typed
	same "$(grep -c '^line' typed)" 60
}

@test "stopping the server does not wait for terminals, and they wait for the next" {
	inside
	type_in 'kept=$$'
	before=${EPOCHREALTIME/./}
	end "$server" TERM
	[ $((${EPOCHREALTIME/./} - before)) -lt 10000000 ]
	serve
	type_in '[ "$kept" = $$ ] && echo back again'
	wait_for 20 shows '^back again$'
}
