load lib

small_disk() {
	need_root "mounts a small file system"
	mkdir "$T/small"
	mount -t tmpfs -o size=32m,mode=700 tmpfs "$T/small" || skip "cannot mount a tmpfs here"
	export BERTH_DATA=$T/small/data
}

@test "a command that fills the disk waits for room, and the database keeps what it needs to say so" {
	small_disk
	serve
	id=$(berth run --env Local --detach -- sh -c 'head -c 30000000 /dev/zero; echo end')
	wait_for 20 grep -q 'output waits.*disk' "$T/serve.log"
	run_is "$id" running
	exits 1 berth doctor >out
	has "$(cat out)" '^bad +disk'
	in_background "$BERTH" run --env Local -q -- echo next in line >next
	next=$!
	berth runs >/dev/null
	berth audit
	mount -o remount,size=96m "$T/small"
	wait_for 20 run_is "$id" succeeded
	same "$(berth logs "$id" | wc -c)" 30000004
	same "$(berth logs "$id" | tail -c 4)" end
	exits 0 wait $next
	same "$(cat next)" "next in line"
}

@test "a command that waits for room on a full disk can be cancelled" {
	small_disk
	serve
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; cat /dev/zero')
	wait_for 20 grep -q 'output waits.*disk' "$T/serve.log"
	berth cancel "$id"
	wait_for 20 run_is "$id" cancelled
	gone "$(cat pid)"
	same "$(grep -c 'output waits' "$T/serve.log")" 1
	find "$BERTH_DATA/logs" -name '*.data' -size +1M -delete
	berth run --env Local -q -- echo room again
	berth audit
}

@test "a full disk: said clearly, nothing acknowledged is lost, and it goes on when there is room" {
	small_disk
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	read -r lease _ < <(berth lease acquire -q box)
	cat /dev/zero >"$T/small/filler" 2>/dev/null || true
	acknowledge >acknowledged
	same "$(tail -1 acknowledged)" '507 disk_full'
	call GET /api/health
	jq -e '.warnings | tostring | test("free")' <<<"$body"
	exits 1 berth doctor >out
	has "$(cat out)" '^bad +disk'
	call GET "/api/environment-leases/$lease"
	answered 200
	# Also a server that is killed now has lost nothing.
	end $server KILL
	rm "$T/small/filler"
	serve --allow-fake
	berth company ls --json | jq -r '.[].id' | sort >found
	grep -v ' ' acknowledged | sort | comm -23 - found >lost
	same "$(cat lost)" ""
	same "$(berth lease show "$lease" --json | jq -r .status)" active
	berth run --env Local -q -- echo again
	berth audit
}

@test "a server starts on a disk that is full, and what ran goes on" {
	small_disk
	serve
	wait_for 10 test -e "$BERTH_DATA/reserve"
	id=$(berth run --env Local --detach -- sh -c 'until [ -e go ]; do sleep 0.05; done; echo went on')
	wait_for 10 run_is "$id" running
	end $server KILL
	cat /dev/zero >"$T/small/filler" 2>/dev/null || true
	: >"$BERTH_DATA/.tmp-0123456789abcdef"
	serve
	has "$(cat "$T/serve.log")" 'kept for a start'
	run_is "$id" running
	fails test -e "$BERTH_DATA/.tmp-0123456789abcdef"
	rm "$T/small/filler"
	touch go
	wait_for 20 run_is "$id" succeeded
	same "$(berth logs "$id")" "went on"
	wait_for 20 test -e "$BERTH_DATA/reserve"
}

# Adds companies until the server refuses one: the ids it acknowledged, then the refusal.
acknowledge() {
	python3 - "$BERTH_DATA/berth.sock" <<'P'
import http.client, json, socket, sys
c = http.client.HTTPConnection("localhost", timeout=20)
c.sock = socket.socket(socket.AF_UNIX); c.sock.settimeout(20); c.sock.connect(sys.argv[1])
for i in range(20000):
    c.request("POST", "/api/companies", json.dumps({"name": "c%d" % i}), {"Content-Type": "application/json"})
    r = c.getresponse()
    answer = json.loads(r.read())
    if r.status != 201:
        print(r.status, answer["code"])
        break
    print(answer["id"])
P
}

@test "a database locked by somebody else: 503, readers go on, and so do writers afterwards" {
	serve
	berth run --env Local -q -- true
	coproc LOCKER { sqlite3 "$BERTH_DATA/berth.db"; }
	locker=$LOCKER_PID
	echo "$locker" >>"$T/pids"
	printf '.timeout 10000\nBEGIN EXCLUSIVE; SELECT 1;\n' >&"${LOCKER[1]}"
	read -rt 10 -u "${LOCKER[0]}" one
	same "$one" 1
	call POST /api/companies '{"name":"during"}'
	answered 503 database_busy
	call GET /api/companies
	answered 200
	fails grep -q during <<<"$body"
	printf 'ROLLBACK;\n.quit\n' >&"${LOCKER[1]}"
	wait_for 10 gone "$locker"
	call POST /api/companies '{"name":"after"}'
	answered 201
	exits 0 berth run --env Local -q -- true
	call GET /api/companies
	same "$(jq -r 'map(.name) | sort | join(" ")' <<<"$body")" "after default"
}

@test "a corrupted database: the message names the file and the way out, and the file stays as it is" {
	serve
	berth run --env Local -q -- true
	berth backup copy.db >/dev/null
	end $server
	for damage in header middle short; do
		cp copy.db "$BERTH_DATA/berth.db"
		rm -f "$BERTH_DATA"/berth.db-*
		case $damage in
		header) printf 'not a database at all' | dd of="$BERTH_DATA/berth.db" conv=notrunc status=none ;;
		middle) head -c 40000 /dev/urandom | dd of="$BERTH_DATA/berth.db" bs=1 seek=4096 conv=notrunc status=none ;;
		short) truncate -s 5000 "$BERTH_DATA/berth.db" ;;
		esac
		sum=$(sha256sum <"$BERTH_DATA/berth.db")
		exits 1 timeout 20 "$BERTH" serve 2>err
		has "$(cat err)" 'berth\.db'
		has "$(cat err)" 'backup'
		same "$(sha256sum <"$BERTH_DATA/berth.db")" "$sum"
	done
	# The way out works.
	cp copy.db "$BERTH_DATA/berth.db"
	rm -f "$BERTH_DATA"/berth.db-*
	serve
	same "$(berth runs --json | jq '.items | length')" 1
}

# A server whose wall clock is what the file says it is.
serve_with_clock() {
	local library
	library=$(dpkg -L libfaketime 2>/dev/null | grep 'libfaketimeMT.so' | head -1)
	[ -n "$library" ] || skip "libfaketime is not installed"
	echo "${1:-+0s}" >"$T/clock"
	in_background env LD_PRELOAD="$library" FAKETIME_TIMESTAMP_FILE="$T/clock" FAKETIME_NO_CACHE=1 \
		DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_FAKE_MONOTONIC=1 \
		"$BERTH" serve --allow-fake >>"$T/serve.log" 2>&1
	server=$!
	wait_for 20 healthy
}
drift() { healthy | jq .clockDriftMs; }
lease_is() { same "$(berth lease show "$1" --json | jq -r .status)" "$2"; }

@test "the clock jumps an hour: no lease ends early, none lives on, and doctor tells" {
	serve_with_clock
	berth env add box --provider fake >/dev/null
	for jump in +3600 -3600; do
		echo '+0s' >"$T/clock"
		read -r long _ < <(berth lease acquire -q box --ttl 10m)
		read -r short _ < <(berth lease acquire -q box --ttl 4s)
		began=${EPOCHREALTIME/./}
		echo "${jump}s" >"$T/clock"
		[ "$(drift)" -gt $((jump * 1000 - 5000)) ]
		[ "$(drift)" -lt $((jump * 1000 + 5000)) ]
		lease_is "$short" active
		berth run --env Local -q --timeout 1m -- true
		has "$(healthy | jq -r '.warnings[]')" 'clock'
		berth doctor >out
		has "$(cat out)" "^note +clock .*jumped by ${jump%3600}3(599|600|601) s" ||
			has "$(cat out)" '^note +clock .*jumped by 3(599|600|601) s'
		wait_for 15 lease_is "$short" expired
		[ $((${EPOCHREALTIME/./} - began)) -gt 2500000 ]
		lease_is "$long" active
		berth exec "$long" -- true
	done
}

@test "a clock that is set right after the start ends no healthy lease, and keeps none alive" {
	serve_with_clock -86400s
	berth env add box --provider fake >/dev/null
	read -r long _ < <(berth lease acquire -q box --ttl 2h)
	end $server KILL
	serve_with_clock +0s
	has "$(cat "$T/serve.log")" 'clock was set by 86[34]'
	lease_is "$long" active
	berth exec "$long" -- true
	# And the other way: a day ahead of the truth, a lease of seconds must not last a day.
	read -r short _ < <(berth lease acquire -q box --ttl 5s)
	end $server KILL
	serve_with_clock -86400s
	wait_for 20 lease_is "$short" expired
	lease_is "$long" active
}

@test "2,000 idle connections: requests are answered, and a connection costs little" {
	[ "$(ulimit -Hn)" -ge 6000 ] || skip "the limit of open files is $(ulimit -Hn)"
	serve --listen 127.0.0.1:0
	berth run --env Local -q -- true
	before=$(rss $server)
	in_background python3 "$BATS_TEST_DIRNAME/idle.py" "$(tcp_port)" 2000 "$T/ready"
	holder=$!
	wait_for 40 test -s "$T/ready"
	[ "$(healthy | jq .connections)" -ge 2000 ]
	berth run --env Local -q -- echo still here >out
	same "$(cat out)" "still here"
	each=$((($(rss $server) - before) / 2000))
	echo "$each kB a connection"
	[ "$each" -lt 96 ]
	end $holder KILL
	wait_for 20 few_connections
	[ $(($(rss $server) - before)) -lt 30000 ]
}
few_connections() { [ "$(healthy | jq .connections)" -lt 10 ]; }
