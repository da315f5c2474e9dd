load lib

# load_on FILE: acquires and runs until told to stop; every id that was answered is in FILE.
load_on() {
	while [ ! -e "$T/enough" ]; do
		berth lease acquire -q box 2>/dev/null | cut -d' ' -f1 | sed 's/^/lease /' >>"$1"
		berth run --env Local --detach -q -- true 2>/dev/null | sed 's/^/run /' >>"$1"
	done
}

@test "a backup under load, restored: everything acknowledged before it is there, the rest is settled" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	going=$(berth run --env Local --detach -- sleep 300)
	wait_for 10 run_is "$going" running
	loads=()
	for n in 1 2; do
		(load_on "$T/seen.$n") 3>&- &
		loads+=($!)
	done
	wait_for 20 sh -c "[ \$(cat '$T'/seen.* 2>/dev/null | wc -l) -ge 8 ]"
	cat "$T"/seen.1 "$T"/seen.2 >"$T/before"
	berth backup copy.db >/dev/null
	touch "$T/enough"
	wait "${loads[@]}" || true
	end $server KILL
	end_keeper "$BERTH_DATA/keeper"

	export BERTH_DATA=$T/restored
	berth restore copy.db
	same "$(stat -c %a "$BERTH_DATA")" 700
	same "$(stat -c %a "$BERTH_DATA/berth.db")" 600
	serve --allow-fake
	while read -r kind id; do
		case $kind in
		lease) call GET "/api/environment-leases/$id" ;;
		run) call GET "/api/runs/$id" ;;
		esac
		answered 200
	done <"$T/before"
	# The same node goes on: its commands are gone, and it says so at once.
	settled() { case $(run_field "$going" .status) in failed | cancelled) ;; *) return 1 ;; esac; }
	wait_for 20 settled
	berth run -q --env box -- true
	same "$(sqlite3 "$BERTH_DATA/berth.db" 'pragma integrity_check')" ok
}

@test "restore refuses what is not empty, damaged, foreign or newer, and leaves nothing behind" {
	serve
	berth company ls >/dev/null
	berth backup copy.db >/dev/null
	exits 1 berth restore copy.db --data "$BERTH_DATA" 2>err
	has "$(cat err)" 'is not empty'
	exits 2 env -u BERTH_DATA "$BERTH" restore copy.db 2>err
	exits 1 berth restore nothing.db --data "$T/new" 2>err
	cp copy.db damaged.db
	# The first pages, with the schema, stay.
	head -c 100000 /dev/urandom | dd of=damaged.db bs=4096 seek=40 conv=notrunc 2>/dev/null
	exits 1 berth restore damaged.db --data "$T/new" 2>err
	has "$(cat err)" 'damaged|malformed|cannot be read'
	head -c 4096 /dev/urandom >noise.db
	exits 1 berth restore noise.db --data "$T/new" 2>err
	sqlite3 foreign.db 'create table t (x)'
	exits 1 berth restore foreign.db --data "$T/new" 2>err
	has "$(cat err)" 'not a database of Berth'
	cp copy.db newer.db
	sqlite3 newer.db "insert into schema_migrations (version, applied_at) values (9999, 1)"
	exits 1 berth restore newer.db --data "$T/new" 2>err
	has "$(cat err)" 'newer Berth'
	same "$(ls -A "$T/new")" ""
	# What a restore left that was killed stands in nobody's way.
	touch "$T/new/berth.db.restoring"
	berth restore copy.db --data "$T/new"
	same "$(ls "$T/new" | tr '\n' ' ')" "berth.db node.json "
}

@test "a config file: its environments are made, changed in place, and never deleted" {
	mkdir -m 700 "$BERTH_DATA"
	cat >"$BERTH_DATA/berth.yaml" <<-YAML
		allow-fake: true
		environments:
		  - name: box
		    driver: sandbox
		    description: first
		    config: {provider: fake}
		  - name: other
		    company: nobody
		    driver: sandbox
		    config: {provider: fake}
	YAML
	berth config check
	serve
	id=$(environment box)
	same "$(berth env show box --json | jq -r '.metadata.managedBy, .description' | xargs)" "config-file first"
	has "$(healthy | jq -r '.warnings[]')" 'environment other of the config file'
	end $server
	sed -i 's/first/second/; /other/,$d' "$BERTH_DATA/berth.yaml"
	serve
	same "$(environment box)" "$id"
	same "$(berth env show box --json | jq -r .description)" second
	end $server
	sed -i 's/name: box/name: crate/' "$BERTH_DATA/berth.yaml"
	serve
	same "$(environment box)" "$id"
	environment crate
	has "$(healthy | jq -r '.warnings[]')" 'environment box .* is no longer in the config file'
	end $server
	echo 'colour: red' >>"$BERTH_DATA/berth.yaml"
	exits 1 berth config check 2>err
	has "$(cat err)" 'berth.yaml:[0-9]*: there is no setting colour'
	exits 2 berth serve 2>err
}

@test "config check lists everything that is wrong at once, environments too" {
	mkdir -m 700 "$BERTH_DATA"
	cat >"$BERTH_DATA/berth.yaml" <<-YAML
		colour: red
		sweep-every: soon
		environments:
		  - name: box
		    driver: sandbox
		    config: {provider: native, network: everywhere}
		  - name: far
		    driver: ssh
		    config: {host: h}
		  - driver: sandbox
		  - name: fine
		    driver: sandbox
		    config: {provider: native}
	YAML
	exits 1 berth config check 2>err
	has "$(cat err)" 'berth.yaml:1: there is no setting colour'
	has "$(cat err)" 'berth.yaml:2: sweep-every: wants a duration'
	has "$(cat err)" 'berth.yaml:4: environment box: .*network'
	has "$(cat err)" 'berth.yaml:7: environment far: .*remoteWorkspacePath|berth.yaml:7: environment far: .*username'
	has "$(cat err)" 'berth.yaml:10: environments: .*name'
	same "$(grep -c . err)" 5
	exits 1 berth config check --json >out
	same "$(jq '.problems | length' out)" 5
}

@test "a config file may describe the company's own Sandbox" {
	serve
	id=$(environment Sandbox)
	end $server
	cat >"$BERTH_DATA/berth.yaml" <<-YAML
		environments:
		  - name: Sandbox
		    driver: sandbox
		    config: {provider: native, writable: tmpfs}
	YAML
	serve
	same "$(environment Sandbox)" "$id"
	same "$(berth env show Sandbox --json | jq -r '.config.writable, .metadata.managedBy' | xargs)" "tmpfs config-file"
	same "$(healthy | jq -c '.warnings')" '[]'
}

@test "quotas: leases, running and waiting runs of a company have ends" {
	serve --allow-fake --max-leases-per-company 2 --max-runs-per-company 1 --max-queue-per-company 1
	berth env add box --provider fake >/dev/null
	first=$(berth run --env Local --detach -- sleep 300)
	wait_for 10 run_is "$first" running
	second=$(berth run --env Local --detach -- true)
	waits() { has "$(run_field "$second" .statusReason)" 'all it may have'; }
	wait_for 10 waits
	call POST "/api/companies/$(company)/runs" '{"command": ["true"]}'
	answered 429 queue_full
	berth lease acquire -q box >/dev/null
	call POST "/api/environments/$(environment box)/leases" '{}'
	answered 409 place_busy
	berth cancel "$first"
	wait_for 20 run_is "$second" succeeded
}

@test "lines of a request carry its id, and SIGHUP opens the log anew" {
	serve --log-format json --log-level debug --log-file "$T/berth.jsonl"
	curl -s --unix-socket "$BERTH_DATA/berth.sock" -H 'X-Request-Id: name-of-mine' \
		http://localhost/api/companies >/dev/null
	logged() { jq -es "any(.[]; .requestId == \"name-of-mine\" and .status == 200)" "$1" >/dev/null; }
	wait_for 5 logged "$T/berth.jsonl"
	mv "$T/berth.jsonl" "$T/old.jsonl"
	kill -HUP "$server"
	wait_for 5 test -s "$T/berth.jsonl"
	berth company ls >/dev/null
	wait_for 5 sh -c "grep -q '\"path\":\"/api/companies\"' '$T/berth.jsonl'"
	alive "$server"
}

@test "monitors are told what goes on, and only those who may know" {
	serve --allow-fake --listen 127.0.0.1:0
	berth env add box --provider fake >/dev/null
	berth lease acquire -q box >/dev/null
	berth run -q --env box -- true
	berth backup copy.db >/dev/null
	metrics=$(curl -s --unix-socket "$BERTH_DATA/berth.sock" http://localhost/metrics)
	has "$metrics" '^berth_leases\{status="active"\} 1$'
	has "$metrics" '^berth_lease_acquire_seconds_count\{result="ok"\} 2$'
	has "$metrics" '^berth_exec_seconds_count 1$'
	has "$metrics" '^berth_http_requests_total\{method="POST",route="/api/environments/:id/leases",status="201"\} 1$'
	has "$metrics" '^berth_db_write_seconds_count [1-9]'
	same "$(curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer nonsense' \
		"http://127.0.0.1:$(tcp_port)/metrics")" 401
}

@test "prune by kind, and a dry run that removes nothing" {
	serve
	id=$(berth run --env Local --detach -- true)
	wait_for 10 run_is "$id" succeeded
	would() { has "$(berth prune --dry-run --older-than 1s)" '^would prune 1 runs, '; }
	wait_for 10 would
	run_is "$id" succeeded
	has "$(berth prune --only leases --older-than 1s)" '^pruned [0-9]+ leases$'
	run_is "$id" succeeded
	has "$(berth prune --only runs --older-than 1s)" '^pruned 1 runs$'
	call GET "/api/runs/$id"
	answered 404 not_found
	exits 1 berth prune --only everything
}

@test "completion and manual pages come from the table of verbs" {
	berth completion bash >complete
	bash -n complete
	complete() { bash -c '. ./complete; COMP_WORDS=(berth "$@"); COMP_CWORD=$#; _berth; echo ${COMPREPLY[@]}' _ "$@"; }
	same "$(complete resto)" restore
	same "$(complete config '')" "check show"
	same "$(complete serve --log-format '')" "text json"
	has "$(complete env add --dr)" '^--driver$'
	for verb in $(berth --help | sed -n 's/^  \([a-z]*\).*/\1/p' | sort -u); do
		has "$(berth man)" "fBberth $verb"
		has "$(berth completion zsh)" "'$verb"
		has "$(berth completion fish)" "'$verb'"
	done
	has "$(berth man config check)" '^.TH "BERTH-CONFIG-CHECK" 1'
	exits 2 berth man nonsense
	exits 2 berth completion tcsh
}
