load lib

@test "a run needs no set-up: a server starts by itself, the timeline comes last" {
	berth run --env Local -- echo hello >out 2>err
	same "$(cat out)" hello
	has "$(head -1 err)" "^berth: starting a server on $BERTH_DATA$"
	has "$(tail -1 err)" '^berth: acquired [0-9.]+ m?s · ran [0-9.]+ m?s · released [0-9.]+ m?s · run [0-9a-f-]{36} succeeded$'
	alive "$(holder)"
	berth run --env Local -q -- echo again >out 2>err
	same "$(cat out)" again
	same "$(cat err)" ""
}

@test "output arrives byte by byte as it was written, each stream on its own" {
	head -c 700001 /dev/urandom >noise
	printf 'a\0b\377\376\r\n\303' >odd
	berth run --env Local -q -- cat "$PWD/noise" >got
	cmp noise got
	berth run --env Local -q -- cat odd >got
	cmp odd got
	berth run --env Local -q -- sh -c 'cat noise >&2; cat odd' >got 2>got.err
	cmp odd got
	cmp noise got.err
	berth run --env Local -q -- true >got
	same "$(wc -c <got)" 0
}

@test "the exit code is the command's own, or says how it ended" {
	serve
	: >data.txt
	exits 0 berth run --env Local -q -- true
	exits 3 berth run --env Local -q -- sh -c 'exit 3'
	exits 255 berth run --env Local -q -- sh -c 'exit 255'
	exits 137 berth run --env Local -q -- sh -c 'kill -KILL $$'
	exits 143 berth run --env Local -q -- sh -c 'kill -TERM $$'
	exits 124 berth run --env Local -q --timeout 300ms -- sleep 300
	exits 127 berth run --env Local -q -- no-such-program-anywhere 2>err
	has "$(cat err)" 'no-such-program-anywhere'
	exits 126 berth run --env Local -q -- ./data.txt 2>err
	has "$(cat err)" 'data.txt'
	exits 125 berth run -q --env nowhere -- true 2>err
	has "$(cat err)" 'no environment "nowhere"'
	exits 125 berth run --env Local -q --cwd /does/not/exist -- true
	exits 125 berth run --env Local --no-such-flag -- true
	exits 125 berth run --env Local
	exits 125 berth run --env Local -q --url http://127.0.0.1:1 -- true
}

@test "flags end where the command begins" {
	serve
	same "$(berth run --env Local -q echo -n --json -x)" "--json -x"
	same "$(berth run --env Local -q -- printf '%s|' '' 'a b' '$HOME' '*')" '|a b|$HOME|*|'
}

@test "a run stands in the caller's directory, with a minimal environment and what -e adds" {
	serve
	mkdir sub
	same "$(berth run --env Local -q -- pwd)" "$PWD"
	same "$(berth run --env Local -q --cwd sub -- pwd)" "$PWD/sub"
	CANARY=from-the-host berth run --env Local -q -e ONE=1 -e 'TWO=a=b c' -- env >got
	has "$(cat got)" '^ONE=1$'
	has "$(cat got)" '^TWO=a=b c$'
	has "$(cat got)" '^BERTH_RUN_ID=[0-9a-f-]{36}$'
	same "$(grep ^PAPERCLIP_RUN_ID= got | cut -d= -f2)" "$(grep ^BERTH_RUN_ID= got | cut -d= -f2)"
	fails grep from-the-host got
	fails grep ^BERTH_DATA got
	# A name alone takes the value it has here; one that has none is a mistake.
	same "$(CANARY=mine berth run --env Local -q -e CANARY -- printenv CANARY)" mine
	exits 125 berth run --env Local -q -e NOT_SET_ANYWHERE -- true
	exits 125 berth run --env Local -q -e =x -- true
}

@test "-i sends standard input, byte by byte, up to a mebibyte; without it there is none" {
	serve
	head -c 1048576 /dev/urandom >noise
	berth run --env Local -q -i -- cat <noise >got
	cmp noise got
	same "$(echo unread | berth run --env Local -q -- cat)" ""
	printf x >>noise
	exits 125 berth run --env Local -q -i -- cat <noise 2>err >got
	has "$(cat err)" 'standard input'
}

@test "--json gives the log's events, then the run" {
	berth run --env Local -q --json -- sh -c 'printf out; printf err >&2; exit 7' >got 2>err || same $? 7
	same "$(cat err)" ""
	same "$(jq -sr 'map(select(.type == "stdout").data) | join("")' got)" out
	same "$(jq -sr 'map(select(.type == "stderr").data) | join("")' got)" err
	tail -1 got | jq -e '.status == "failed" and .exitCode == 7 and .reason == "exited" and
		.command == ["sh", "-c", "printf out; printf err >&2; exit 7"]'
}

@test "--detach returns at once; logs shows what there is, logs -f all of it" {
	serve
	id=$(berth run --env Local --detach -- sh -c 'echo one; while [ ! -e go ]; do sleep 0.05; done; echo two')
	has "$id" '^[0-9a-f-]{36}$'
	wait_for 10 sh -c "'$BERTH' logs $id | grep -q one"
	same "$(berth logs "$id")" one
	in_background "$BERTH" logs -f "$id" >followed
	follower=$!
	wait_for 10 grep -q one followed
	: >go
	wait $follower
	same "$(cat followed)" "$(printf 'one\ntwo')"
	same "$(berth logs --since 4 "$id")" two
	run_is "$id" succeeded
	has "$(berth runs)" "$id +succeeded +0 "
	exits 1 berth logs 00000000-0000-4000-8000-000000000000
}

@test "a timeout ends what the command left behind too, however it hid" {
	serve
	exits 124 berth run --env Local -q --json --timeout 1s -- sh -c '
		(setsid sh -c "echo \$\$ >hidden; (setsid sleep 300 & echo \$! >deeper); sleep 300" &)
		sleep 300' >got
	wait_for 5 test -s deeper
	wait_for 10 gone "$(cat hidden)"
	wait_for 10 gone "$(cat deeper)"
	# All of them obeyed TERM, so nobody waited for the grace of 5 s to pass.
	tail -1 got | jq -e '.timings.executedMs < 5000'
}

@test "what a command leaves behind ends with it" {
	serve
	berth run --env Local -q -- sh -c 'setsid sleep 300 >/dev/null 2>&1 & echo $! >left'
	wait_for 10 gone "$(cat left)"
}

@test "Ctrl-C interrupts the command, which ends as it wants to" {
	serve
	in_background "$BERTH" run --env Local --json -- sh -c 'echo $$ >pid; sleep 300' >got 2>err
	cli=$!
	wait_for 10 test -s pid
	wait_for 10 run_is "$(berth runs --json | jq -r '.items[0].id')" running
	kill -INT $cli
	exits 130 wait $cli
	has "$(cat err)" '^berth: interrupted run'
	wait_for 10 gone "$(cat pid)"
	tail -1 got | jq -e '.status == "failed" and .signal == "SIGINT"'
	in_background "$BERTH" run --env Local -- sh -c 'trap "echo bye; exit 6" INT; echo $$ >pid2; while :; do sleep 0.05; done' >got 2>err
	cli=$!
	wait_for 10 test -s pid2
	wait_for 10 run_is "$(berth runs --json | jq -r '.items[0].id')" running
	kill -INT $cli
	exits 6 wait $cli
	same "$(cat got)" bye
}

@test "a second Ctrl-C ends the run, a third does not wait for that; berth cancel ends it as well" {
	serve
	stubborn='trap "" INT TERM; echo $$ >pid; while :; do sleep 0.1; done'
	in_background "$BERTH" run --env Local --json -- sh -c "$stubborn" >got 2>err
	cli=$!
	wait_for 10 test -s pid
	kill -INT $cli
	wait_for 10 grep -q interrupted err
	alive "$(cat pid)"
	kill -INT $cli
	wait_for 10 grep -q '^berth: cancelling run' err
	exits 130 wait $cli
	same "$(tail -1 got | jq -r .status)" cancelled
	wait_for 10 gone "$(cat pid)"
	rm pid
	in_background "$BERTH" run --env Local -- sh -c "$stubborn" 2>err
	cli=$!
	wait_for 10 test -s pid
	kill -INT $cli
	wait_for 10 grep -q interrupted err
	kill -INT $cli
	wait_for 10 grep -q cancelling err
	# It may have ended before the third; asking once more does no harm.
	kill -INT $cli || true
	exits 130 wait $cli
	id=$(sed -n 's/^berth: cancelling run \([0-9a-f-]*\).*/\1/p' err)
	berth cancel "$id"
	wait_for 20 run_is "$id" cancelled
	wait_for 10 gone "$(cat pid)"
}

@test "a server killed or stopped in the middle: the run goes on, its output is whole, nothing starts twice" {
	for signal in KILL TERM; do
		rm -f go pids
		serve
		in_background "$BERTH" run --env Local --json -- sh -c 'echo $$ >>pids; echo before; echo err >&2
			while [ ! -e go ]; do sleep 0.05; done; echo after; exit 5' >got 2>err
		cli=$!
		wait_for 10 grep -q before got
		end $server $signal
		alive "$(cat pids)"
		serve
		alive "$(cat pids)"
		: >go
		exits 5 wait $cli
		same "$(jq -sr 'map(select(.type == "stdout").data) | join("")' got)" "$(printf 'before\nafter')"
		tail -1 got | jq -e '.status == "failed" and .exitCode == 5 and .reason == "exited" and
			.processLossRetryCount == 0'
		same "$(wc -l <pids)" 1
		id=$(tail -1 got | jq -r .id)
		same "$(berth runs --json | jq --arg id "$id" '.items | map(select(.retryOfRunId == $id)) | length')" 0
		berth audit
		end $server TERM
	done
}

@test "a run that ends while there is no server ends as it did" {
	serve
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; while [ ! -e go ]; do sleep 0.05; done; seq 20000; exit 7')
	wait_for 10 test -s pid
	end $server KILL
	: >go
	wait_for 10 gone "$(cat pid)"
	serve
	wait_for 10 run_is "$id" failed
	same "$(run_field "$id" .exitCode)" 7
	berth logs "$id" | cmp - <(seq 20000)
	berth audit
}

@test "Ctrl-C while there is no server leaves the run behind and says so" {
	serve
	in_background "$BERTH" run --env Local -- sh -c 'echo $$ >pid; sleep 300' 2>err
	cli=$!
	wait_for 10 test -s pid
	kill -STOP $cli
	process=$(cat pid)
	end $server KILL
	kill -INT $cli
	kill -CONT $cli
	exits 130 wait $cli
	has "$(cat err)" 'left run [0-9a-f-]+ behind'
	serve
	id=$(sed -n 's/.*left run \([^ ]*\) behind.*/\1/p' err)
	alive "$process"
	berth cancel "$id"
	wait_for 20 run_is "$id" cancelled
	wait_for 10 gone "$process"
}

@test "logs -f goes on over restarts of the server, losing and repeating nothing" {
	serve --allow-fake
	berth env add box --provider fake --max-leases 1
	read -r lease generation < <(berth lease acquire -q box)
	id=$(berth run --detach --env box -- sh -c 'seq 20000; seq 5 >&2')
	in_background "$BERTH" logs -f "$id" >got 2>got.err
	follower=$!
	run_is "$id" queued
	end $server KILL
	serve --allow-fake
	run_is "$id" queued
	end $server TERM
	serve --allow-fake
	alive $follower
	berth lease release "$lease" --generation "$generation"
	exits 0 wait $follower
	seq 20000 | cmp - got
	seq 5 | cmp - got.err
}

@test "two first runs at once share one server and one company" {
	in_background "$BERTH" run --env Local -- echo one >one 2>one.err
	first=$!
	in_background "$BERTH" run --env Local -- echo two >two 2>two.err
	second=$!
	exits 0 wait $first
	exits 0 wait $second
	same "$(cat one two)" "$(printf 'one\ntwo')"
	same "$(grep -c ' serves ' "$BERTH_DATA/server.log")" 1
	same "$(berth company ls --json | jq length)" 1
	same "$(berth runs --json | jq '.items | length')" 2
}

@test "an --idle-exit server ends by itself, but not while something runs" {
	in_background "$BERTH" serve --idle-exit --idle-after 1s >"$T/serve.log" 2>&1
	server=$!
	wait_for 10 healthy
	id=$(berth run --env Local --detach -- sh -c 'while [ ! -e go ]; do sleep 0.1; done')
	# Twice the idle time without a request, seen on the server's own clock.
	start=$SECONDS
	while [ $((SECONDS - start)) -lt 3 ]; do alive $server; read -rt 0.2 <> <(:) || true; done
	: >go
	exits 0 wait $server
	has "$(cat "$T/serve.log")" 'nothing to do for 1 s'
	berth run --env Local -q -- true
	run_is "$id" succeeded
}

@test "values of -e are in no list, log, activity, server log or command line but the command's own" {
	serve -v # before the variable is there
	export TOKEN=canary-$RANDOM$RANDOM
	in_background "$BERTH" run --env Local -e TOKEN -- sh -c 'echo $$ >pid; while [ ! -e go ]; do sleep 0.05; done' >said 2>&1
	cli=$!
	wait_for 10 test -s pid
	# The variable reached the command ...
	tr '\0' '\n' <"/proc/$(cat pid)/environ" | grep -qx "TOKEN=$TOKEN"
	# ... and no argument list shows it.
	fails grep -l "$TOKEN" "/proc/$cli/cmdline" "/proc/$server/cmdline" "/proc/$(cat pid)/cmdline"
	fails grep -q "$TOKEN" "/proc/$server/environ"
	berth runs --json >>said
	jq -e '.items[0].envKeys == ["TOKEN"]' < <(berth runs --json)
	call GET "/api/runs/$(berth runs --json | jq -r '.items[0].id')"
	echo "$body" >>said
	call GET "/api/companies/$(company)/activity"
	echo "$body" >>said
	berth lease ls Local --json >>said
	: >go
	exits 0 wait $cli
	fails grep "$TOKEN" said "$T/serve.log"
	fails grep -r "$TOKEN" "$BERTH_DATA/logs"
}
