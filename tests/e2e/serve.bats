load lib

mode() { stat -c %a "$1"; }

@test "a second server on the same data directory names the holder and exits 3" {
	serve
	exits 3 berth serve 2>err
	has "$(cat err)" "$BERTH_DATA is in use by the server with pid $server on $(uname -n)"
	alive $server
	healthy
	# The lock is the kernel's: after a SIGKILL nothing stands in the way.
	end $server KILL
	serve
}

@test "the data directory is private, whatever it was before and whatever the umask" {
	mkdir -m 755 "$BERTH_DATA"
	umask 000
	serve
	berth run --env Local -q -- echo x
	same "$(mode "$BERTH_DATA")" 700
	same "$(mode "$BERTH_DATA/berth.sock")" 600
	same "$(mode "$BERTH_DATA/berth.db")" 600
	same "$(find "$BERTH_DATA" -perm /077 | head -3)" ""
}

@test "a data directory whose path is too long for a socket works all the same" {
	export BERTH_DATA=$T/$(printf 'long%.0s' {1..40})/data
	berth run --env Local -q -- echo x >out
	same "$(cat out)" x
	end "$(holder)"
}

@test "a database of a newer Berth is refused in clear words and left as it is" {
	serve
	end $server
	table=$(sqlite3 "$BERTH_DATA/berth.db" "select name from sqlite_master where name like '%schema%' or name like '%migration%'" | head -1)
	if [ -n "$table" ]; then
		sqlite3 "$BERTH_DATA/berth.db" "update $table set version = 999 where version = (select max(version) from $table)"
	else
		sqlite3 "$BERTH_DATA/berth.db" "pragma user_version = 999"
	fi
	sum=$(sha256sum <"$BERTH_DATA/berth.db")
	exits 1 berth serve 2>err
	has "$(cat err)" '999'
	has "$(cat err)" 'newer'
	same "$(sha256sum <"$BERTH_DATA/berth.db")" "$sum"
	# The command line passes on what the server said.
	exits 125 berth run --env Local -- true 2>err
	has "$(cat err)" 'newer'
}

@test "a backup taken while the server works restores into an empty directory" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	id=$(berth run --env Local --detach -- echo x)
	wait_for 10 run_is "$id" succeeded
	same "$(berth backup copy.db)" "$T/work/copy.db"
	same "$(mode copy.db)" 600
	own=$(berth backup)
	has "$own" "^$BERTH_DATA/backups/berth-.*\.db$"
	exits 1 berth backup "$T/no/such/dir/copy.db" 2>err
	has "$(cat err)" 'no/such/dir'
	end $server
	export BERTH_DATA=$T/restored
	mkdir -m 700 "$BERTH_DATA"
	cp copy.db "$BERTH_DATA/berth.db"
	serve --allow-fake
	berth env show box
	run_is "$id" succeeded
	berth run -q --env box -- true
	same "$(sqlite3 "$BERTH_DATA/berth.db" 'pragma integrity_check')" ok
}

@test "prune drops finished history and its logs, and nothing that goes on" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	old=$(berth run --env Local --detach -- echo x)
	wait_for 10 run_is "$old" succeeded
	wait_for 10 run_field "$old" '.timings.releasedMs'
	going=$(berth run --env Local --detach -- sleep 300)
	wait_for 10 run_is "$going" running
	read -r lease _ < <(berth lease acquire -q box)
	berth prune | grep -q "^pruned 0 runs, 0 leases, "
	# The age is whole seconds of the server's own clock.
	wait_for 10 sh -c "'$BERTH' prune --older-than 1s | grep -q 'pruned 1 runs'"
	call GET "/api/runs/$old"
	answered 404 not_found
	same "$(find "$BERTH_DATA/logs" -name "$old*")" ""
	run_is "$going" running
	same "$(berth lease show "$lease" --json | jq -r .status)" active
	exits 2 berth prune --older-than soon
	berth cancel -q "$going"
}

@test "SIGTERM stops cleanly: socket gone, exit 0, and what runs goes on" {
	serve
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; sleep 300')
	wait_for 10 test -s pid
	kill -TERM $server
	exits 0 wait $server
	[ ! -e "$BERTH_DATA/berth.sock" ]
	has "$(tail -1 "$T/serve.log")" 'stopped$'
	alive "$(cat pid)"
	serve
	run_is "$id" running
	alive "$(cat pid)"
	berth audit
	berth cancel -q "$id"
	wait_for 10 run_is "$id" cancelled
	gone "$(cat pid)"
	wait_for 10 berth audit
}

@test "--drain lets runs finish and takes no new ones" {
	serve --drain
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; while [ ! -e go ]; do sleep 0.05; done; echo finished')
	wait_for 10 test -s pid
	kill -TERM $server
	wait_for 10 test ! -e "$BERTH_DATA/berth.sock"
	alive $server
	alive "$(cat pid)"
	: >go
	exits 0 wait $server
	serve
	run_is "$id" succeeded
	same "$(berth logs "$id")" finished
}

@test "--listen on port 0 picks a port and says which; a taken one is a clear error" {
	serve --listen 127.0.0.1:0
	port=$(tcp_port)
	berth run --env Local -q --url "http://127.0.0.1:$port" -- echo over tcp >out
	same "$(cat out)" "over tcp"
	BERTH_URL=http://localhost:$port berth runs >/dev/null
	exits 1 berth serve --data "$T/other" --listen "127.0.0.1:$port" 2>err
	has "$(cat err)" "127.0.0.1:$port"
	exits 1 berth serve --data "$T/other" --listen nonsense 2>err
	exits 1 berth runs --url http://127.0.0.1:1 2>err
	has "$(cat err)" 'no server answers at http://127.0.0.1:1'
}

@test "a fresh server has a company with its Sandbox, and a path takes the company's name" {
	serve
	same "$(berth company ls --json | jq -r '.[].name')" default
	call GET /api/companies/default/environments
	same "$(jq -r '[.[].name] | sort | join(" ")' <<<"$body")" "Local Sandbox"
	same "$(jq -r '.[] | select(.name == "Sandbox").config.provider' <<<"$body")" native
	sandbox=$(jq -r '.[] | select(.name == "Sandbox").id' <<<"$body")
	call POST /api/companies/default/runs '{"command":["true"],"environmentId":"'"$sandbox"'"}'
	answered 201
}

@test "BERTH_URL is for clients and does not stop a server" {
	export BERTH_URL=http://127.0.0.1:1
	serve
	unset BERTH_URL
	healthy
}

@test "--listen beyond loopback is refused" {
	for address in 0.0.0.0:0 '[::]:0' ':0'; do
		exits 1 timeout 10 "$BERTH" serve --listen "$address" 2>err
		has "$(cat err)" 'loopback|127\.0\.0\.1|address'
	done
}

@test "--socket puts the API elsewhere" {
	in_background "$BERTH" serve --socket "$T/other.sock" 2>"$T/serve.log"
	wait_for 10 curl -sf --unix-socket "$T/other.sock" http://localhost/api/health
	same "$(mode "$T/other.sock")" 600
	[ ! -e "$BERTH_DATA/berth.sock" ]
}

@test "doctor finds nothing wrong, with and without a server, and says what is" {
	berth doctor >out
	has "$(cat out)" '^note +server +no server runs'
	serve
	berth doctor >out
	has "$(cat out)" '^ok +server +version'
	has "$(cat out)" '^ok +database +sqlite'
	berth doctor --json | jq -e 'map(.verdict) | index("bad") | not'
	chmod 755 "$BERTH_DATA"
	exits 1 berth doctor >out
	has "$(cat out)" '^bad +data directory .*open to others'
	has "$(cat out)" 'chmod 700'
}

@test "audit: nothing unexplained, until something is" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	berth lease acquire -q box
	same "$(berth audit)" "nothing unexplained"
	same "$(berth audit --json)" "[]"
	# What the database does not know of, the provider's own inventory still does.
	berth backup before.db >/dev/null
	berth lease acquire -q box
	end $server
	rm -f "$BERTH_DATA"/berth.db-*
	cp before.db "$BERTH_DATA/berth.db"
	BERTH_FAULT=driver.destroy.before:error serve --allow-fake
	exits 1 berth audit >out
	has "$(cat out)" 'sandbox://fake/|fake'
	exits 1 berth audit --json | jq -e 'length == 1 and (.[0].reason | length > 0)'
}

@test "version, faults, help, and what is not understood" {
	has "$(berth version)" '^berth [0-9]+\.[0-9]+\.[0-9]+$'
	same "$(berth --version)" "$(berth version)"
	berth version --json | jq -e .version
	[ "$(berth faults | wc -l)" -gt 50 ]
	berth faults | grep -qx 'db.lease.grant.before' || berth faults | grep -q '^db\..*\.before$'
	same "$(berth faults | sort | uniq -d)" ""
	berth faults --json | jq -e 'length > 50'
	exits 125 env BERTH_FAULT=no.such.point:kill "$BERTH" version 2>err
	has "$(cat err)" 'no.such.point'
	has "$(berth --help)" 'berth VERB'
	has "$(berth env --help)" 'env probe NAME'
	berth help >/dev/null
	exits 2 berth 2>err
	exits 2 berth nonsense 2>err
	has "$(cat err)" 'no verb "nonsense"'
	exits 2 berth env 2>err
	exits 2 berth env nonsense 2>err
	has "$(cat err)" 'env usage NAME'
	exits 2 berth runs --no-such-flag 2>err
	has "$(cat err)" 'unknown flag --no-such-flag'
	exits 2 berth runs extra 2>err
	exits 2 berth logs 2>err
	exits 2 berth serve --listen 2>err
	exits 2 berth serve --idle-after 1s 2>err
	exits 2 berth serve --url http://x 2>err
	# Every verb has a help of its own, and it starts no server.
	berth --help | sed -n 's/^  \([a-z]\+\( [a-z]\+\)\?\) .*/\1/p' | while read -r verb; do
		berth $verb --help | grep -q '^usage: berth' || berth ${verb%% *} --help | grep -q '^usage: berth'
	done
	[ ! -e "$BERTH_DATA" ]
}
