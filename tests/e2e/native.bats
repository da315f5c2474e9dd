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
	berth env add "$1" --driver sandbox --config "$(jq -c '{warmPool:{size:0}} + .' <<<"$2")" >/dev/null
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
	user env add Lim --driver sandbox --config '{"provider":"native","limits":{"pids":5}}' >/dev/null
	exits 125 user run -q --env Lim -- true 2>err
	has "$(cat err)" 'run the server as root'
}

@test "doctor --sandbox repeats the self-test and keeps its evidence" {
	berth doctor --sandbox >out
	has "$(cat out)" 'A native place was made and holds'
	has "$(cat out)" 'attempt +read_shadow: denied'
	same "$(jq '[.evidence[] | select(.denied | not)] | length' "$BERTH_DATA/providers/native/selftest.json")" 0
	wait_for 10 nothing_left
}
