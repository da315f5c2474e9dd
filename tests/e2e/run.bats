load lib

@test "a run needs no set-up: a server starts by itself, the timeline comes last" {
	berth run --env Local -- echo hello >out 2>err
	same "$(cat out)" hello
	has "$(head -1 err)" "^berth: starting a server on $BERTH_DATA$"
	has "$(tail -1 err)" '^berth: acquired [0-9.]+ m?s · ran [0-9.]+ m?s( · released [0-9.]+ m?s)? · run [0-9a-f-]{36} succeeded$'
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

@test "-i sends standard input, byte by byte, without a limit; without it there is none" {
	serve
	head -c 8000000 /dev/urandom >noise
	berth run --env Local -q -i -- cat <noise >got
	cmp noise got
	same "$(echo unread | berth run --env Local -q -- cat)" ""
	same "$(berth run --env Local -q -i -- cat </dev/null)" ""
	# A command that reads nothing ends, whatever is left of its input.
	timeout 20 "$BERTH" run --env Local -q -i -- true </dev/zero
}

# In the background, with the fifo "pipe" as its input.
fed() { in_background sh -c 'exec "$@" <pipe' _ "$BERTH" "$@"; }

@test "-i gives the command its input as it comes, also in a place that is made first" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	mkfifo pipe
	exec {to}<>pipe
	fed run --env box --no-workspace -q -i -- cat >got {to}>&-
	cli=$!
	echo one >&$to
	wait_for 20 grep -q one got
	echo two >&$to
	wait_for 20 grep -q two got
	alive $cli
	exec {to}>&-
	wait_for 20 gone $cli
	same "$(cat got)" "$(printf 'one\ntwo')"
}

@test "a client of -i that dies leaves the input open; the end can be sent by another" {
	serve
	mkfifo pipe
	exec {to}<>pipe
	fed run --env Local -i --json -- sh -c 'cat; echo over' >got {to}>&-
	cli=$!
	echo half >&$to
	wait_for 20 grep -q half got
	id=$(berth runs --json | jq -r '.items[0].id')
	kill -KILL $cli
	exec {to}>&-
	wait_for 20 gone $cli
	run_is "$id" running
	call POST "/api/execs/$id/stdin?end=1"
	answered 200
	wait_for 20 run_is "$id" succeeded
	same "$(berth logs "$id")" "$(printf 'half\nover')"
	# What was sent is kept nowhere, so it cannot be sent again.
	call POST "/api/runs/$id/retry"
	answered 409 run_state_conflict
	has "$body" 'standard input'
}

@test "-d -i sends what there is with the request, up to a mebibyte" {
	serve
	id=$(echo along | berth run --env Local -d -i -- cat)
	wait_for 10 run_is "$id" succeeded
	same "$(berth logs "$id")" along
	head -c 1048577 /dev/zero >noise
	exits 125 berth run --env Local -d -i -- cat <noise 2>err
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

@test "a run ends with its line while its place is still being taken down" {
	BERTH_FAULT=driver.release.before:hang,driver.destroy.before:hang serve --allow-fake
	berth env add box --provider fake >/dev/null
	berth run --env box --workspace . -- sh -c 'echo done >made' 2>err
	same "$(cat made)" done
	has "$(tail -1 err)" '^berth: acquired .* ran .* collected .* run [0-9a-f-]{36} succeeded$'
	fails grep -q released err
	berth run --env box --json -- true 2>err >got
	tail -1 got | jq -e '.status == "succeeded" and .timings.totalMs >= .timings.executedMs
		and (.timings | has("releasedMs") | not)'
	has "$(tail -1 err)" "run $(tail -1 got | jq -r .id) succeeded\$"
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
	has "$(cat err)" 'left run [0-9a-f-]+ running'
	serve
	id=$(sed -n 's/.*left run \([^ ]*\) running.*/\1/p' err)
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

@test "env and input of a run are deleted when it has ended, unless it may be retried" {
	serve
	stored() { sqlite3 "$BERTH_DATA/berth.db" .dump | grep -q -- "$1"; }
	id=$(echo input-canary | berth run --env Local -d -i -e KEY=env-canary -- sh -c 'cat; test -n "$KEY"')
	wait_for 10 run_is "$id" succeeded
	fails stored env-canary
	fails stored "$(echo input-canary | base64)"
	call GET "/api/runs/$id"
	same "$(jq -c .envKeys <<<"$body")" '["KEY"]'
	call POST "/api/runs/$id/retry"
	answered 409 run_state_conflict
	has "$body" 'deleted'
	# Without such values it can be repeated.
	id=$(berth run --env Local -d -- true)
	wait_for 10 run_is "$id" succeeded
	call POST "/api/runs/$id/retry"
	answered 201
	# A run that failed keeps them for a day, so that it can be retried.
	id=$(berth run --env Local -d -e KEY=failed-canary -- sh -c 'test -e "$KEY"')
	wait_for 10 run_is "$id" failed
	stored failed-canary
	call POST "/api/runs/$id/retry"
	answered 201
	again=$(jq -r .id <<<"$body")
	wait_for 10 run_is "$again" failed
	berth prune >/dev/null
	stored failed-canary
	sqlite3 "$BERTH_DATA/berth.db" "UPDATE runs SET finished_at = finished_at - 86400001"
	berth prune >/dev/null
	fails stored failed-canary
	call POST "/api/runs/$id/retry"
	answered 409 run_state_conflict
	# A run that is cancelled before it begins, too.
	id=$(berth run --env Local -d -e KEY=cancelled-canary -- sleep 300)
	wait_for 10 run_is "$id" running
	stored cancelled-canary
	berth cancel -q "$id"
	wait_for 10 run_is "$id" cancelled
	fails stored cancelled-canary
}
