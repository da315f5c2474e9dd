# Native places from end to end: what people see, what they may not, and that nothing is left.
load lib.bash

# The uids that sandboxes have on this machine, the cgroups and the mounts.
census() {
	# Ranges that are free stay the keeper's until it ends.
	[ -S "$BERTH_DATA/keeper/keeper.sock" ] || find /run/berth-uids -type l -lname "$T/*" 2>/dev/null
	find /sys/fs/cgroup -maxdepth 4 -path "*/berth-$(printf %s "$BERTH_DATA/keeper" | sha256sum | cut -c1-8)/*" -type d 2>/dev/null
	grep -F "$T" /proc/self/mountinfo
	ls "$BERTH_DATA"/keeper/places "$BERTH_DATA"/keeper/stores 2>/dev/null | grep -v ':$' | grep .
	return 0
}
nothing_left() { [ -z "$(census)" ]; }

native() { # NAME JSON; none are kept ready unless it says so
	berth env add "$1" --no-probe --driver sandbox --config "$(jq -c '{warmPool:{size:0}} + .' <<<"$2")" >/dev/null
}

@test "berth run shows a private, minimal view, and says so when no files go along" {
	echo mine >here
	same "$(berth run -q -- cat here)" mine
	berth run --no-workspace -- sh -c 'id; ls -la / /etc; ps -ef; cat /proc/self/status; ls' >out
	has "$(cat out)" '^uid=1000\(agent\)'
	has "$(cat out)" '^CapBnd:.0000000000000000$'
	has "$(cat out)" '^Seccomp:.2$'
	fails grep -Eq 'shadow|here$|/sbin/init|berth-relay' out
	# With those that are kept ready.
	end "$(keeper)" TERM
	wait_for 10 nothing_left
}

@test "the place of a failed run is kept for a look under retain_on_failure, and no other" {
	serve
	native Box '{"provider":"native"}'
	exits 3 berth run --env Box --no-workspace --policy retain_on_failure -- \
		sh -c 'echo why >/tmp/note; (sleep 300 &); exit 3' 2>err
	lease=$(sed -n 's/.*`berth exec \([0-9a-f-]*\) -- ls.*/\1/p' err)
	has "$(cat err)" "the place is kept until 20[0-9T:.-]+Z: .*berth lease destroy $lease"
	has "$(tail -1 err)" 'run [0-9a-f-]{36} failed$'
	same "$(berth lease show "$lease" --json | jq -r '.status, .leasePolicy')" $'retained\nretain_on_failure'
	same "$(berth exec "$lease" -- cat /tmp/note)" why
	same "$(berth exec "$lease" -- sh -c 'ps -ef | grep -c "[s]leep 300"' || true)" 0
	same "$(berth audit)" "nothing unexplained"
	# Also by the next server.
	kill -KILL $server
	wait_for 10 gone $server
	serve
	same "$(berth exec "$lease" -- cat /tmp/note)" why
	same "$(berth audit)" "nothing unexplained"
	berth lease destroy "$lease" >/dev/null
	wait_for 10 nothing_left
	exits 125 berth exec "$lease" -- true
	# One that succeeds leaves nothing; the environment can ask for the policy, too.
	berth run -q --env Box --no-workspace --policy retain_on_failure -- true
	wait_for 10 nothing_left
	native Look '{"provider":"native","leasePolicy":"retain_on_failure"}'
	exits 1 berth run -q --env Look --no-workspace -- false
	same "$(berth lease ls Look --json | jq -r '.[0].status')" retained
	exits 1 berth run --env Look --no-workspace --retain 1s -- false
	lease=$(berth lease ls Look --json | jq -r '.[0].id')
	wait_for 20 eval '[ "$(berth lease show $lease --json | jq -r .status)" = failed ]'
	exits 125 berth run --env Box --policy for_ever -- true 2>err
	has "$(cat err)" 'leasePolicy'
}

@test "runs of one execution workspace can share a place" {
	serve
	native Box '{"provider":"native"}'
	project=$(berth project add work --json | jq -r .id)
	call POST "/api/companies/$(company)/execution-workspaces" "{\"name\":\"w\",\"projectId\":\"$project\"}"
	answered 201
	workspace=$(jq -r .id <<<"$body")
	shared() { # SCRIPT MORE: its output
		call POST "/api/companies/$(company)/runs" "{\"command\":[\"sh\",\"-c\",\"$1\"],\"environmentId\":\"$(environment Box)\",\"leasePolicy\":\"reuse_by_execution_workspace\"$2}"
		answered 201
		id=$(jq -r .id <<<"$body")
		wait_for 20 run_field "$id" .timings.releasedMs
		berth logs "$id"
	}
	same "$(shared 'echo mine >/tmp/note; cat /tmp/note' ",\"executionWorkspaceId\":\"$workspace\"")" mine
	same "$(shared 'cat /tmp/note' ",\"executionWorkspaceId\":\"$workspace\"")" mine
	shared 'true' ''
	run_is "$id" failed
	run_field "$id" .error | grep -q 'needs an execution workspace'
}

# Every row of the database in which a text is, as TABLE lines of a dump.
rows_with() { sqlite3 "$BERTH_DATA/berth.db" .dump | grep -F -- "$1" | sed 's/^INSERT INTO \([a-z_]*\).*/\1/' | sort | uniq -c | sed 's/^ *//'; }

@test "values of an environment's env are on the environment and nowhere else" {
	serve
	native Box '{"provider":"native","env":{"KEY":"first-value"}}'
	native Kept '{"provider":"native","reuseLease":true,"env":{"KEY":"kept-value"}}'
	lease=$(berth lease acquire Box --json | jq -r .id)
	same "$(berth exec "$lease" -- printenv KEY)" first-value
	same "$(berth run -q --env Box --no-workspace -- printenv KEY)" first-value
	same "$(berth run -q --env Kept --no-workspace -- sh -c 'echo >here; echo $KEY')" kept-value
	same "$(rows_with first-value)" "1 environments"
	same "$(rows_with kept-value)" "1 environments"
	# The next server knows them, and a held place has the values of today.
	kill -KILL $server
	wait_for 10 gone $server
	serve
	same "$(berth exec "$lease" -- printenv KEY)" first-value
	call PATCH "/api/environments/$(environment Box)" '{"config":{"provider":"native","env":{"KEY":"second-value"},"warmPool":{"size":0}}}'
	answered 200
	same "$(berth exec "$lease" -- printenv KEY)" second-value
	same "$(rows_with first-value)" ""
	# A place is used again only while the values are the same.
	same "$(berth run -q --env Kept --no-workspace -- sh -c 'ls; echo $KEY')" $'here\nkept-value'
	call PATCH "/api/environments/$(environment Kept)" '{"config":{"provider":"native","reuseLease":true,"env":{"KEY":"other-value"},"warmPool":{"size":0}}}'
	answered 200
	same "$(berth run -q --env Kept --no-workspace -- sh -c 'ls; echo $KEY')" other-value
	berth lease release "$lease" >/dev/null
}

@test "the host, its processes and other places cannot be seen or reached" {
	native Box '{"provider":"native"}'
	first=$(berth lease acquire Box --json | jq -r .id)
	second=$(berth lease acquire Box --json | jq -r .id)
	berth exec "$first" -- sh -c 'echo secret >/tmp/note'
	fails berth exec "$second" -- cat /tmp/note
	fails berth exec "$second" -- ls "$BERTH_DATA"
	fails berth exec "$second" -- cat /etc/shadow
	fails berth exec "$second" -- kill -0 "$$"
	same "$(berth exec "$second" -- sh -c 'ls /proc/sys/net/ipv4/conf')" $'all\ndefault\nlo'
	berth lease release "$first" >/dev/null
	berth lease release "$second" >/dev/null
	wait_for 10 nothing_left
}

@test "commands, terminals, files and copies work in a native place" {
	native Box '{"provider":"native","env":{"FLAVOUR":"plain"}}'
	lease=$(berth lease acquire Box --json | jq -r .id)
	same "$(echo in | berth exec -i "$lease" -- sh -c 'cat; echo $FLAVOUR; pwd')" $'in\nplain\n/workspace'
	exits 7 berth exec "$lease" -- sh -c 'exit 7'
	exits 127 berth exec "$lease" -- no-such-program 2>err
	head -c 300000 /dev/urandom >data
	berth cp data "$lease":/workspace/data
	same "$(berth exec "$lease" -- sh -c 'stat -c %U data')" agent
	berth cp "$lease":/workspace/data back
	cmp data back
	same "$(berth exec "$lease" -- python3 -c 'import pty,os; pid, fd = pty.fork()
if pid == 0: os.execlp("tty", "tty")
print(os.read(fd, 100).decode().strip())')" /dev/pts/0
	berth lease release "$lease" >/dev/null
}

counted() { rm -f seen; berth cp "$lease":/workspace/count seen 2>/dev/null && stat -c %s seen || echo 0; }
counts_beyond() { [ "$(counted)" -gt "$1" ]; }

@test "a paused native place stands still, keeps its files reachable and goes on" {
	native Box '{"provider":"native"}'
	lease=$(berth lease acquire Box --json | jq -r .id)
	berth exec -d "$lease" -- sh -c 'while :; do printf x >>count; done' >/dev/null
	wait_for 10 counts_beyond 0
	same "$(berth lease pause "$lease")" paused
	at=$(counted)
	# Nothing to wait for: it had time for thousands more.
	sleep 0.1
	same "$(counted)" "$at"
	exits 125 berth exec "$lease" -- true 2>err
	has "$(cat err)" 'paused: resume it first'
	has "$(berth lease show "$lease")" '^paused +true'
	same "$(berth lease resume "$lease")" active
	wait_for 10 counts_beyond "$at"
	berth lease pause "$lease" >/dev/null
	same "$(berth lease release "$lease")" released
	wait_for 10 nothing_left
}

@test "the boundary is on the lease, and what is required and missing refuses it" {
	native Box '{"provider":"native","require":["seccomp","pid_namespace"]}'
	lease=$(berth lease acquire Box --json)
	has "$(jq -c .metadata.boundary.walls <<<"$lease")" '"seccomp"'
	has "$(berth lease show "$(jq -r .id <<<"$lease")" --json | jq -c .metadata.boundary.walls)" '"network_none"'
	native Strict '{"provider":"native","network":"host","require":["network_none"]}'
	exits 125 berth run --env Strict -- true 2>err
	has "$(cat err)" 'network_none'
	fails native Disk '{"provider":"native","limits":{"diskMb":10}}' 2>err
	has "$(cat err)" 'tmpfs'
	fails native Word '{"provider":"native","require":["moat"]}' 2>err
	fails native Pool '{"provider":"native","warmPool":{"size":17}}' 2>err
	berth lease release "$(jq -r .id <<<"$lease")" >/dev/null
	wait_for 10 nothing_left
}

places() { ls "$BERTH_DATA/keeper/places" | wc -l; }
has_places() { [ "$(places)" = "$1" ]; }

@test "a warm pool is filled behind the first lease, explained, and goes with the server" {
	berth env add Box --driver sandbox --config '{"provider":"native"}' >/dev/null
	serve
	first=$(berth lease acquire Box --json | jq -r .id)
	wait_for 10 has_places 3
	ready=$(ls -i "$BERTH_DATA/keeper/places" | cut -d' ' -f1 | sort)
	second=$(berth lease acquire Box --json | jq -r .id)
	wait_for 10 has_places 4
	# One of those that were ready, under its new name.
	same "$(ls -i "$BERTH_DATA/keeper/places" | cut -d' ' -f1 | sort | comm -12 - <(echo "$ready") | wc -l)" 3
	same "$(berth exec "$second" -- sh -c 'id -un; pwd')" $'agent\n/workspace'
	same "$(berth audit)" "nothing unexplained"
	berth lease release "$first" >/dev/null
	berth lease release "$second" >/dev/null
	wait_for 10 has_places 2
	same "$(berth audit)" "nothing unexplained"
	end "$(keeper)" TERM
	wait_for 10 has_places 0
}

@test "limits bite and are told apart" {
	need_root "cgroups"
	native Box '{"provider":"native","limits":{"memoryMb":64,"pids":20,"wallSeconds":2}}'
	exits 137 berth run -q --env Box --json -- python3 -c 'x = bytearray(300 << 20)' >out
	has "$(cat out)" '"oom"'
	berth run -q --env Box -- sh -c 'for i in $(seq 50); do sleep 1 & done; wait' >out 2>&1 || true
	has "$(cat out)" 'fork'
	exits 124 berth run -q --env Box -- sleep 60
	wait_for 10 nothing_left
}

@test "audit explains the cgroups of limits, and lists one that nobody has" {
	need_root "cgroups"
	local tag base
	native Box '{"provider":"native","limits":{"memoryMb":64,"pids":20,"cpus":1}}'
	lease=$(berth lease acquire Box --json | jq -r .id)
	tag=berth-$(printf %s "$BERTH_DATA/keeper" | sha256sum | cut -c1-8)
	base=$(find /sys/fs/cgroup/pids -maxdepth 5 -type d -name "$tag" | head -1)
	[ -n "$base" ] || skip "the machine has no v1 controllers"
	same "$(ls -d "$base"/*/ | wc -l)" 1
	same "$(berth audit)" "nothing unexplained"
	mkdir "$base/stray"
	berth audit >out || true
	rmdir "$base/stray"
	has "$(cat out)" "cgroup.*$base/stray"
	berth lease release "$lease" >/dev/null
	wait_for 10 nothing_left
	same "$(berth audit)" "nothing unexplained"
}

@test "what a place left is removed by whichever keeper runs, and audit lists what could not be removed" {
	local trash=$BERTH_DATA/keeper/trash
	native Box '{"provider":"native","warmPool":{"size":0}}'
	berth run -q --env Box -- sh -c 'mkdir -p /workspace/a/b && echo x >/workspace/a/b/c'
	wait_for 10 eval '[ -z "$(ls "$trash")" ]'
	mkdir "$trash/gone.0.0" "$trash/left.0.0.stuck"
	berth audit >out || true
	has "$(cat out)" "directory.*left.0.0.stuck"
	! grep gone.0.0 out
	# Of one that was killed the next keeper finds it; the server starts one for that.
	end "$(keeper)" KILL
	wait_for 10 eval 'berth audit >/dev/null; [ -z "$(ls "$trash")" ]'
	same "$(berth audit)" "nothing unexplained"
}

@test "files of a reusable place are kept for the next lease, and only there" {
	native Box '{"provider":"native","reuseLease":true}'
	lease=$(berth lease acquire Box --json | jq -r .id)
	berth exec "$lease" -- sh -c 'echo kept >/workspace/note'
	berth lease release "$lease" >/dev/null
	same "$(census | grep -c "$(basename "$BERTH_DATA"/keeper/stores/*)")" 1
	lease=$(berth lease acquire Box --json | jq -r .id)
	same "$(berth exec "$lease" -- cat /workspace/note)" kept
	berth lease release "$lease" >/dev/null
	# Made by another config it is not used again, and its files go.
	old=$(basename "$BERTH_DATA"/keeper/stores/*)
	call PATCH "/api/environments/$(environment Box)" '{"config":{"limits":{"openFiles":64}}}'
	answered 200
	lease=$(berth lease acquire Box --json | jq -r .id)
	fails berth exec "$lease" -- cat /workspace/note
	fails test -e "$BERTH_DATA/keeper/stores/$old"
	berth lease release "$lease" >/dev/null
}

@test "whoever is killed, a command goes on or nothing of it is left" {
	native Box '{"provider":"native"}'
	serve
	lease=$(berth lease acquire Box --json | jq -r .id)
	run=$(berth run --env Box --detach -- sh -c 'echo up; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done')
	wait_for 10 sh -c "'$BERTH' logs $run | grep -q up"
	end "$server" KILL
	end "$(keeper)" KILL
	serve
	same "$(berth exec "$lease" -- pwd)" /workspace
	relays | while read -r pid _; do kill -KILL "$pid"; done
	wait_for 20 run_ended "$run"
	exits 125 berth exec "$lease" -- true 2>err
	berth lease release "$lease" >/dev/null
	wait_for 20 nothing_left
	same "$(berth audit)" "nothing unexplained"
}
run_ended() { run_is "$1" failed; }

@test "an ordinary user has native places too, with fewer walls and says so" {
	need_root "to become an ordinary user"
	chmod 755 "$T" && chown -R 65534:65534 "$T"
	user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$BERTH" "$@"; }
	user run -q -- sh -c 'id -u; ls /home; cat /proc/self/status' >out
	has "$(cat out)" '^1000$'
	has "$(cat out)" '^CapBnd:.0000000000000000$'
	user doctor --sandbox >out || true
	has "$(cat out)" 'no wall +uid_range'
	user env add Lim --no-probe --driver sandbox --config '{"provider":"native","limits":{"pids":5}}' >/dev/null
	exits 125 user run -q --env Lim -- true 2>err
	has "$(cat err)" 'run the server as root'
}

@test "a command that stops every other one keeps no command past its timeout, and no lease" {
	native Box '{"provider":"native"}'
	lease=$(berth lease acquire Box --json | jq -r .id)
	berth exec -d "$lease" -- sh -c 'while :; do kill -STOP -1; done' >/dev/null
	# Stopped before it began, or after: each is answered.
	for i in 1 2 3 4 5 6; do
		code=0
		timeout -s KILL 25 "$BERTH" exec --timeout 1s "$lease" -- true 2>err || code=$?
		case $code in 0 | 124) ;; *) has "$(cat err)" 'stopped it before it began' ;; esac
	done
	berth lease release "$lease" >/dev/null
	wait_for 10 nothing_left
}

# As whom: a service of that user listens in the working directory, and so may the API itself.
sockets_of_the_host() { # COMMAND-PREFIX...
	printf '%s\n' 'import socket, sys' 's = socket.socket(socket.AF_UNIX)' \
		'print(s.connect_ex(sys.argv[1]))' >ask.py
	in_background "$@" /usr/bin/python3 -c 'import socket, time
s = socket.socket(socket.AF_UNIX); s.bind("service"); s.listen(8); time.sleep(300)'
	wait_for 10 test -S service
	same "$("$@" "$BERTH" run -q --mode in_place -- python3 ask.py service)" 111
	"$@" "$BERTH" env add Open --driver sandbox --config '{"provider":"native","sockets":true}' >/dev/null
	same "$("$@" "$BERTH" run -q --env Open --mode in_place -- python3 ask.py service)" 0
	cid=$("$@" "$BERTH" company ls --json | jq -er '.[0].id')
	box=$("$@" "$BERTH" env show Open --json | jq -er .id)
	end "$(holder)"
	# The directory that shows the API's own socket is no workspace, and no socket of it is trusted.
	in_background "$@" "$BERTH" serve --data "$BERTH_DATA" --socket "$T/work/api/s" >>"$T/serve.log" 2>&1
	wait_for 20 test -S api/s
	for mode in in_place overlay; do
		for dir in "$T/work" "$T/work/api"; do
			id=$(ask_api "$@" "companies/$cid/runs" -H 'Content-Type: application/json' --data-binary "{
				\"command\":[\"true\"],\"environmentId\":\"$box\",
				\"workspace\":{\"path\":\"$dir\",\"mode\":\"$mode\"}}" | jq -er .id)
			wait_for 20 eval 'ask_api "$@" "runs/$id" | jq -e ".finishedAt != null"'
			has "$(ask_api "$@" "runs/$id" | jq -r '.status + " " + .error')" "^failed .*would show the server's socket"
		done
	done
}
ask_api() { # COMMAND-PREFIX... PATH CURL-ARGUMENT...: at the socket that lies beside the work
	local prefix=()
	while [ "${1%%/*}" != companies ] && [ "${1%%/*}" != runs ]; do prefix+=("$1"); shift; done
	local path=$1
	shift
	"${prefix[@]}" curl -sS --max-time 20 --unix-socket "$T/work/api/s" "$@" "http://localhost/api/$path"
}

@test "unix sockets of the host are covered in what a place shares with it, and the API's is not shared" {
	mkdir api
	sockets_of_the_host env
}

@test "unix sockets of an ordinary user are covered in places of that user" {
	need_root "to become an ordinary user"
	mkdir api
	chmod 755 "$T" && chown -R 65534:65534 "$T"
	sockets_of_the_host setpriv --reuid 65534 --regid 65534 --clear-groups
}

@test "places are made with the privileges that the systemd unit leaves" {
	need_root "gives privileges up"
	unit=$BATS_TEST_DIRNAME/../../packaging/berth.service
	dropped=$(sed -n 's/^CapabilityBoundingSet=~//p' "$unit" | sed 's/CAP_/-/g; s/ /,/g' | tr A-Z a-z)
	grep -qx NoNewPrivileges=yes "$unit"
	has "$dropped" '^-sys_module,'
	in_background setpriv --no-new-privs --bounding-set "$dropped" "$BERTH" serve >>"$T/serve.log" 2>&1
	wait_for 20 healthy
	same "$(berth run -q -- sh -c 'echo made >made; id -un')" agent
	same "$(cat made)" made
	berth doctor --sandbox --json >doctor
	jq -e 'map(select(.verdict == "bad")) == []' doctor
	berth env add rooted --no-probe --config '{"provider":"native","user":"root"}'
	same "$(berth run -q --env rooted -- id -u)" 0
	read -r lease _ < <(berth lease acquire -q Sandbox)
	berth lease pause "$lease"
	berth lease resume "$lease"
}

@test "doctor --sandbox repeats the self-test and keeps its evidence" {
	berth doctor --sandbox >out
	has "$(cat out)" 'A native place was made and holds'
	has "$(cat out)" 'attempt +read_shadow: denied'
	same "$(jq '[.evidence[] | select(.denied | not)] | length' "$BERTH_DATA/providers/native/selftest.json")" 0
	wait_for 10 nothing_left
}
