load lib

# acquire ENVIRONMENT FLAGS...: $lease and $generation
acquire() { read -r lease generation < <(berth lease acquire -q "$@"); [ -n "$lease" ]; }
lease_field() { berth lease show "$1" --json | jq -er "$2"; }
lease_is() { same "$(lease_field "$1" .status)" "$2"; }

@test "environments: add, list, show, probe, remove" {
	serve --allow-fake
	id=$(berth env add box --provider fake --image debian:12 --description 'for tests')
	has "$id" '^[0-9a-f-]{36}$'
	has "$(berth env ls)" 'box +sandbox +fake +active'
	has "$(berth env ls)" 'Local +local +- +active'
	berth env show box --json | jq -e --arg id "$id" \
		'.id == $id and .config.image == "debian:12" and .description == "for tests"'
	has "$(berth env show "$id")" '^name +box$'
	berth env probe box
	berth env probe Local --json | jq -e '.ok == true'
	exits 1 berth env add other --provider nobody-knows 2>err
	exits 1 berth env show nowhere 2>err
	has "$(cat err)" 'no environment "nowhere"; `berth env ls` lists them'
	exits 1 berth env add box --provider fake 2>err
	has "$(cat err)" 'has an environment named "box" already'
	berth env rm box
	exits 1 berth env show box 2>err
}

@test "env add tries the places first, and adds nothing that cannot work" {
	serve --allow-fake
	broken='{"provider":"fake","faults":{"probe":{"fail":true,"message":"no such cloud"}}}'
	exits 1 berth env add bad --config "$broken" 2>err
	has "$(cat err)" 'nothing was added.*no such cloud'
	far='{"host":"h","username":"u","remoteWorkspacePath":"/w"}'
	exits 1 berth env add far --driver ssh --config "$far" 2>err
	has "$(cat err)" 'nothing was added'
	exits 1 berth env show bad 2>err
	berth env add bad --config "$broken" --no-probe
	berth env show bad
}

@test "destroying: a held lease, and a place that is free" {
	serve --allow-fake
	berth env add box --provider fake --reuse
	acquire box
	same "$(berth lease destroy "$lease")" destroyed
	lease_is "$lease" failed
	acquire box
	berth lease release "$lease" --generation "$generation"
	same "$(healthy | jq .leases.free)" 1
	berth lease destroy "$lease"
	same "$(healthy | jq .leases.free)" 0
	berth env rm box
}

@test "without --allow-fake nobody gets a fake sandbox" {
	serve
	exits 1 berth env add box --provider fake 2>err
	has "$(cat err)" 'fake'
}

@test "a lease: acquire, list, show, exec, renew, release" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	acquire box --ttl 10m
	same "$generation" 1
	has "$(berth lease ls box)" "$lease +active"
	has "$(berth lease ls box --status active)" "$lease"
	fails grep -q "$lease" <<<"$(berth lease ls box --status released)"
	has "$(berth lease show "$lease")" '^place state +held$'
	before=$(lease_field "$lease" .expiresAt)
	berth lease renew "$lease" --generation 1 --ttl 2h --json | jq -e --arg before "$before" \
		'.expiresAt > $before and .status == "active"'
	printf 'a\0b' | berth exec -i -e X=y "$lease" --generation 1 -- sh -c 'cat; printf "%s" "$X"; printf err >&2' >out 2>err
	printf 'a\0by' | cmp - out
	same "$(cat err)" err
	exits 9 berth exec "$lease" -- sh -c 'exit 9'
	exits 137 berth exec "$lease" -- sh -c 'kill -9 $$'
	exits 124 berth exec "$lease" --timeout 200ms -- sleep 300
	exits 127 berth exec "$lease" -- no-such-program
	exits 125 berth exec 00000000-0000-4000-8000-000000000000 -- true
	same "$(berth lease release "$lease" --generation 1)" released
	# Repeating it is fine; using what is released is not.
	same "$(berth lease release "$lease")" released
	exits 125 berth exec "$lease" -- true
	call POST "/api/environment-leases/$lease/exec" '{"command":["true"]}'
	answered 409 lease_not_active
	call POST "/api/environment-leases/$lease/renew" '{"generation":1}'
	answered 409 lease_not_active
	berth audit
}

@test "a stale generation is refused everywhere" {
	serve --allow-fake
	berth env add box --provider fake --reuse >/dev/null
	acquire box
	berth lease release -q "$lease" --generation "$generation" >/dev/null
	old=$generation
	acquire box
	[ "$generation" -gt "$old" ]
	for verb in exec renew release; do
		for stale in "$old" 0 $((generation + 1)); do
			json='{"generation":'$stale'}'
			[ $verb = exec ] && json='{"command":["touch","was-here"],"generation":'$stale'}'
			call POST "/api/environment-leases/$lease/$verb" "$json"
			answered 409 lease_generation_stale
		done
	done
	lease_is "$lease" active
	exits 1 berth exec "$lease" --generation "$generation" -- test -e was-here
	exits 1 berth lease renew "$lease" --generation "$old"
}

@test "a reused place keeps its files, an ephemeral one does not" {
	serve --allow-fake
	berth env add keeps --provider fake --reuse >/dev/null
	berth env add forgets --provider fake >/dev/null
	for box in keeps forgets; do
		acquire $box
		berth exec "$lease" -- sh -c 'echo kept >note'
		berth lease release "$lease" >/dev/null
		acquire $box
		berth exec "$lease" -- sh -c 'cat note 2>/dev/null || echo gone' >$box
		berth lease release "$lease" >/dev/null
	done
	same "$(cat keeps)" kept
	same "$(cat forgets)" gone
	# One place is free and kept, none else is left.
	call GET /api/health
	jq -e '.leases == {active: 0, free: 1, retained: 0, cleanup: 0, intents: 0, waiting: 0}' <<<"$body"
	berth audit
}

@test "one too many is place_busy; --wait is first come, first served" {
	serve --allow-fake
	berth env add box --provider fake --max-leases 1 >/dev/null
	call POST "/api/environments/$(environment box)/leases" '{}'
	answered 201
	lease=$(jq -r .id <<<"$body")
	call POST "/api/environments/$(environment box)/leases" '{}'
	answered 409 place_busy
	exits 1 berth lease acquire box --wait 1s 2>err
	has "$(cat err)" '1 of 1'
	for n in 1 2 3; do
		in_background "$BERTH" lease acquire -q box --wait 30s >waiter.$n
		wait_for 10 waiting_are $n
	done
	for n in 1 2 3; do
		berth lease release "$lease" >/dev/null
		wait_for 10 test -s waiter.$n
		read -r lease _ <waiter.$n
		if [ $n -lt 3 ]; then
			same "$(cat waiter.$((n + 1)))" ""
		fi
	done
	# A waiter that goes away does not take a place with it.
	in_background "$BERTH" lease acquire -q box --wait 30s >waiter.4
	leaver=$!
	wait_for 10 waiting_are 1
	end $leaver KILL
	wait_for 10 waiting_are 0
	berth lease release "$lease" >/dev/null
	acquire box
}
waiting_are() { same "$(healthy | jq .leases.waiting)" "$1"; }

@test "runs without room are queued with the reason, and go on when there is room" {
	serve --allow-fake
	berth env add box --provider fake --max-leases 1 >/dev/null
	acquire box
	id=$(berth run --detach --env box -- echo done)
	wait_for 10 run_field "$id" '.statusReason // empty'
	has "$(run_field "$id" .statusReason)" '1 of 1'
	run_is "$id" queued
	berth lease release "$lease" >/dev/null
	wait_for 10 run_is "$id" succeeded
	same "$(berth logs "$id")" done
}

@test "retain_on_failure keeps a failed place, for as long as was asked" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	acquire box --policy retain_on_failure --retain 2s
	berth exec "$lease" -- sh -c 'echo evidence >note'
	dir=$(lease_field "$lease" .metadata.remoteCwd)
	same "$(berth lease release "$lease" --status failed)" retained
	same "$(cat "$dir/note")" evidence
	# Its end is seen to by itself, files and all.
	wait_for 30 test ! -e "$dir"
	fails lease_is "$lease" retained 2>/dev/null
	acquire box --policy retain_on_failure
	dir=$(lease_field "$lease" .metadata.remoteCwd)
	same "$(berth lease release "$lease")" released
	wait_for 10 test ! -e "$dir"
}

@test "a lease ends by itself: when its time is over, or when it is not used" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	acquire box --ttl 4s
	first=$lease
	acquire box --ttl 1h --idle 1s
	second=$lease
	acquire box --ttl 1h
	third=$lease
	dir=$(lease_field "$first" .metadata.remoteCwd)
	in_background "$BERTH" exec "$first" -- sh -c 'echo $$ >pid; exec sleep 300' 2>err
	cli=$!
	wait_for 10 test -s "$dir/pid"
	pid=$(cat "$dir/pid")
	wait_for 20 lease_is "$first" expired
	wait_for 20 lease_is "$second" expired
	lease_is "$third" active
	wait_for 10 gone "$pid"
	call POST "/api/environment-leases/$first/exec" '{"command":["true"]}'
	answered 409 lease_not_active
	exits 137 wait $cli
	has "$(cat err)" 'the lease ended'
}

@test "the same Idempotency-Key gives the first result, another body under it a 409" {
	serve --allow-fake
	cid=$(berth env add box --provider fake >/dev/null; company)
	box=$(environment box)
	call POST "/api/environments/$box/leases" '{"ttlSeconds":600}' -H 'Idempotency-Key: one'
	answered 201
	lease=$(jq -r .id <<<"$body")
	first=$body
	call POST "/api/environments/$box/leases" '{"ttlSeconds":600}' -H 'Idempotency-Key: one'
	answered 201
	same "$body" "$first"
	call POST "/api/environments/$box/leases" '{"ttlSeconds":601}' -H 'Idempotency-Key: one'
	answered 409 idempotency_key_reused
	same "$(berth lease ls box --json | jq length)" 1

	call POST "/api/companies/$cid/runs" '{"command":["true"]}' -H 'Idempotency-Key: one'
	answered 201
	id=$(jq -r .id <<<"$body")
	call POST "/api/companies/$cid/runs" '{"command":["true"]}' -H 'Idempotency-Key: one'
	answered 201
	same "$(jq -r .id <<<"$body")" "$id"
	same "$(berth runs --json | jq '.items | length')" 1

	exec='{"command":["sh","-c","echo x >>times; cat times"]}'
	call POST "/api/environment-leases/$lease/exec" "$exec" -H 'Idempotency-Key: two'
	answered 200
	first=$body
	call POST "/api/environment-leases/$lease/exec" "$exec" -H 'Idempotency-Key: two'
	answered 200
	same "$body" "$first"
	call POST "/api/environment-leases/$lease/exec" '{"command":["true"]}' -H 'Idempotency-Key: two'
	answered 409 idempotency_key_reused
	same "$(berth exec "$lease" -- cat times)" x

	# The keys outlive the server.
	end $server KILL
	serve --allow-fake
	call POST "/api/environment-leases/$lease/exec" "$exec" -H 'Idempotency-Key: two'
	answered 200
	same "$body" "$first"
	call POST "/api/companies/$cid/runs" '{"command":["true"]}' -H 'Idempotency-Key: one'
	same "$(jq -r .id <<<"$body")" "$id"
	same "$(berth exec "$lease" -- cat times)" x
}

@test "an exec's events are whole, and ?stream=0 gives one bounded object" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	acquire box
	call POST "/api/environment-leases/$lease/exec" '{"command":["sh","-c","printf hi; printf no >&2; exit 4"]}'
	answered 200
	jq -se '.[0].type == "start" and (.[0].execId | length == 36) and
		(map(select(.type == "stdout").data) | join("")) == "hi" and
		(map(select(.type == "stderr").data) | join("")) == "no" and
		(.[-1] | .type == "exit" and .exitCode == 4 and .signal == null and .reason == "exited" and
			(.durationMs | type == "number"))' <<<"$body"
	call POST "/api/environment-leases/$lease/exec?stream=0" '{"command":["sh","-c","yes | head -c 3000000; printf no >&2"]}'
	answered 200
	jq -e '.exitCode == 0 and .stdoutTruncated and (.stdout | length == 1048576) and
		.stderr == "no" and (.stderrTruncated | not) and (.execId | length == 36)' <<<"$body"
}

@test "a restart keeps an operator's lease, its place and its files" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	for signal in KILL TERM; do
		acquire box
		berth exec "$lease" -- sh -c 'echo kept >note'
		end $server $signal
		serve --allow-fake
		lease_is "$lease" active
		same "$(berth exec "$lease" --generation "$generation" -- cat note)" kept
		berth audit
		berth lease release "$lease" --generation "$generation"
	done
}

@test "a command in an operator's place outlives the server, and ends with the lease" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	acquire box
	dir=$(lease_field "$lease" .metadata.remoteCwd)
	in_background "$BERTH" exec "$lease" -- sh -c 'echo $$ >pid; echo said; exec sleep 300' >got 2>err
	cli=$!
	wait_for 10 test -s "$dir/pid"
	pid=$(cat "$dir/pid")
	end $server KILL
	alive "$pid"
	serve --allow-fake
	lease_is "$lease" active
	alive "$pid"
	same "$(berth exec "$lease" -- echo beside it)" "beside it"
	alive "$pid"
	# Whoever listened still does.
	alive $cli
	berth lease release "$lease"
	wait_for 10 gone "$pid"
	exits 137 wait $cli
	same "$(cat got)" said
	same "$(relays)" ""
	berth audit
}

@test "an environment in use is not removed, and the refusal says why" {
	serve --allow-fake
	box=$(berth env add box --provider fake)
	acquire box
	call DELETE "/api/environments/$box"
	answered 409 environment_in_use
	jq -e '.details.deleteBlockedReasons | index("active_leases")' <<<"$body"
	exits 1 berth env rm box 2>err
	has "$(cat err)" 'active lease'
	berth lease release "$lease" >/dev/null
	id=$(berth run --detach --env box -- sh -c 'while :; do sleep 0.1; done')
	wait_for 10 run_is "$id" running
	call DELETE "/api/environments/$box"
	answered 409 environment_in_use
	jq -e '.details.deleteBlockedReasons | index("unfinished_runs")' <<<"$body"
	berth cancel -q "$id"
	exits 1 berth env rm Local 2>err
	has "$(cat err)" 'Local'
	berth env show Local >/dev/null
}

@test "an agent's runs go to its environment, and to the company's default once that is removed" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	berth agent add worker --env box >/dev/null
	has "$(berth run -q --agent worker -- pwd)" "^$BERTH_DATA/providers/fake/"
	wait_for 10 berth env rm box
	same "$(berth run -q --agent worker -- pwd)" /workspace
}

@test "another company's environments cannot be named from this one" {
	serve --allow-fake
	berth company add other >/dev/null
	foreign=$(berth env add box --company other --provider fake)
	exits 1 berth env show box 2>err
	exits 125 berth run -q --env box -- true 2>err
	berth runs >/dev/null
	call POST "/api/companies/$(company)/runs" '{"command":["true"],"environmentId":"'"$foreign"'"}'
	answered 422 unprocessable
	berth run -q --company other --env box -- true
}
