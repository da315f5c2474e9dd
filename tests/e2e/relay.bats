load lib

# Commands are held by relays: what happens to the server, the keeper or a relay, and what is left.

# A counter that ends when it is told to: every number once, in order, then the code it was given.
# Each start of it leaves a line in the file.
COUNTER='echo $$ >>"$1"; i=0
	until [ -e "$2" ]; do
		n=$((i + 40)); while [ $i -lt $n ]; do i=$((i + 1)); echo $i; done; sleep 0.3
	done
	echo end $i; exit "$3"'
EACH=25 # as runs, each in a place of its own, and as many execs in one place

cgroup() { echo /sys/fs/cgroup/{,unified/}"berth-$(printf %s "$BERTH_DATA/keeper" | sha256sum | cut -c1-8)"; }
exec_field() {
	field_of "$2" from_api "execs/$1"
}
started() { [ "$(cat starts.* 2>/dev/null | wc -l)" -ge "$1" ]; }
ended() { ! berth runs --json --limit 100 | grep -q '"running"' && same "$(healthy | jq .execs.active)" 0; }
same_pids() { for pid in $(cat starts.*); do alive "$pid"; done; }

start_counters() {
	berth env add box --provider fake >/dev/null
	read -r lease _ < <(berth lease acquire -q box)
	local i
	: >runs
	: >execs
	for ((i = 0; i < EACH; i++)); do
		berth run --env Local --detach -- sh -c "$COUNTER" sh "$PWD/starts.r$i" "$PWD/go" $((i % 7)) >>runs
		berth exec --detach "$lease" -- sh -c "$COUNTER" sh "$PWD/starts.e$i" "$PWD/go" $((i % 5)) >>execs
	done
	wait_for 20 started $((2 * EACH))
}

# Every number is there, once, in order, and then nothing but the end.
counted() {
	awk '$1 == "end" { if ($2 != n || ended++) bad = 1; next } $1 != ++n || ended { bad = 1 }
		END { exit bad || !ended || n < 40 }' "$1"
}

check_counters() {
	: >go
	wait_for 30 ended
	same "$(cat starts.* | wc -l)" $((2 * EACH))
	local i=0 id
	while read -r id; do
		same "$(run_field "$id" '"\(.exitCode) \(.reason)"')" "$((i % 7)) exited"
		berth logs "$id" >out
		counted out
		i=$((i + 1))
	done <runs
	i=0
	while read -r id; do
		same "$(exec_field "$id" '"\(.exitCode) \(.reason)"')" "$((i % 5)) exited"
		curl -sf --unix-socket "$BERTH_DATA/berth.sock" -H 'Accept: application/octet-stream' \
			"http://localhost/api/execs/$id/output" >out
		counted out
		i=$((i + 1))
	done <execs
	same "$(berth runs --json --limit 100 | jq '.items | length')" $EACH
	berth audit
	berth lease release "$lease" >/dev/null
	wait_for 20 no_relays
	berth audit
}
no_relays() { same "$(relays)" ""; }

@test "50 commands print on while the server is killed twice: nothing lost, repeated or started again" {
	serve --allow-fake
	start_counters
	keeper=$(keeper)
	for _ in 1 2; do
		end $server KILL
		same_pids
		serve --allow-fake
	done
	same "$(keeper)" "$keeper"
	same_pids
	check_counters
}

@test "killed in the channel, after an acknowledgement and while taking up again: the same" {
	BERTH_FAULT=channel.ack.after@60:kill serve --allow-fake
	EACH=4
	start_counters
	wait_for 20 gone $server
	in_background env BERTH_FAULT=channel.attach.after@3:kill "$BERTH" serve --allow-fake >>"$T/serve.log" 2>&1
	wait_for 20 gone $!
	serve --allow-fake
	check_counters
}

@test "another build of the program takes over the same way" {
	EACH=5
	serve --allow-fake
	start_counters
	mkdir "$T/newer"
	cp "$BERTH" "$KEEPER" "${BERTH%/*}/berth-relay" "$T/newer"
	end $server TERM
	same_pids
	BERTH=$T/newer/berth
	serve --allow-fake
	is_berth $server
	check_counters
	end $server TERM
}

@test "a relay killed: its run ends lease_lost, its processes are gone, others go on" {
	serve
	other=$(berth run --env Local --detach -- sh -c 'echo $$ >other; while [ ! -e go ]; do sleep 0.05; done')
	wait_for 10 test -s other
	relays >before
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; (setsid sh -c "echo \$\$ >deep; sleep 300" &); sleep 300')
	wait_for 10 test -s deep
	wait_for 10 run_is "$id" running
	relay=$(relays | grep -vFf before | cut -d' ' -f1)
	end "$relay" KILL
	wait_for 10 run_is "$id" failed
	same "$(run_field "$id" .errorCode)" lease_lost
	wait_for 10 gone "$(cat pid)"
	wait_for 10 gone "$(cat deep)"
	run_is "$other" running
	: >go
	wait_for 10 run_is "$other" succeeded
	wait_for 10 no_relays
	wait_for 10 berth audit
	berth run --env Local -q -- true
}

@test "a relay killed while there is no server: the run is lost, and tried once more" {
	serve
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >>pids; while [ ! -e go ]; do sleep 0.05; done')
	wait_for 10 test -s pids
	wait_for 10 run_is "$id" running
	end $server KILL
	end "$(relays | cut -d' ' -f1)" KILL
	wait_for 10 gone "$(head -1 pids)"
	serve
	wait_for 10 run_is "$id" failed
	same "$(run_field "$id" .errorCode)" process_lost
	retry=$(berth runs --json | jq -er --arg id "$id" '.items[] | select(.retryOfRunId == $id).id')
	: >go
	wait_for 10 run_is "$retry" succeeded
	same "$(wc -l <pids)" 2
	wait_for 10 berth audit
}

written_down() { [ "$(cat "$BERTH_DATA"/keeper/places/*/spool/exits | wc -c)" -gt 0 ]; }

@test "a relay killed after its command ended unheard: exit and output are found in what it left" {
	for with_keeper in no yes; do
		serve
		id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; while [ ! -e go ]; do sleep 0.05; done
			seq 1 20000; echo last >&2; exit 3')
		wait_for 10 test -s pid
		wait_for 10 run_is "$id" running
		end $server KILL
		: >go
		wait_for 10 written_down
		[ $with_keeper = no ] || end "$(keeper)" KILL
		end "$(relays | cut -d' ' -f1)" KILL
		serve
		wait_for 10 run_is "$id" failed
		same "$(run_field "$id" '"\(.exitCode) \(.reason)"')" "3 exited"
		berth logs "$id" >out 2>err
		seq 1 20000 | cmp - out
		same "$(cat err)" last
		wait_for 10 berth audit
		end $server TERM
		rm pid go
	done
}

@test "the keeper killed: what runs goes on, and a new keeper adopts it" {
	serve
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; while [ ! -e go ]; do sleep 0.05; done; echo done')
	wait_for 10 test -s pid
	wait_for 10 run_is "$id" running
	old=$(keeper)
	relays >before
	end "$old" KILL
	alive "$(cat pid)"
	same "$(berth run --env Local -q -- echo next)" next
	fails same "$(keeper)" "$old"
	relays | grep -qFf before
	alive "$(cat pid)"
	berth audit
	: >go
	wait_for 10 run_is "$id" succeeded
	same "$(berth logs "$id")" "done"
	wait_for 10 no_relays
	berth audit
}

@test "server and keeper killed together: the next server finds all of it" {
	serve
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; while [ ! -e go ]; do sleep 0.05; done; echo done')
	wait_for 10 test -s pid
	end $server KILL
	end "$(keeper)" KILL
	alive "$(cat pid)"
	serve
	run_is "$id" running
	: >go
	wait_for 10 run_is "$id" succeeded
	same "$(berth logs "$id")" "done"
	wait_for 10 berth audit
}

@test "nobody there for longer than the absence: nothing is left, and the next server knows" {
	serve --allow-fake --absence 2s
	berth env add box --provider fake >/dev/null
	read -r lease _ < <(berth lease acquire -q box)
	berth exec --detach "$lease" -- sh -c "echo \$\$ >'$PWD/held'; (setsid sleep 300 & echo \$! >'$PWD/deep'); sleep 300"
	id=$(berth run --env Local --detach -- sh -c 'echo $$ >pid; sleep 300')
	wait_for 10 test -s pid
	wait_for 10 test -s held
	wait_for 10 run_is "$id" running
	end $server KILL
	alive "$(cat pid)"
	for file in pid held deep; do wait_for 10 gone "$(cat $file)"; done
	wait_for 10 no_relays
	wait_for 10 sh -c "[ -z \"\$(ls '$BERTH_DATA/keeper/places')\" ]"
	for dir in $(cgroup); do
		[ ! -d "$dir" ] || same "$(find "$dir" -mindepth 1 -type d)" ""
	done
	# What a place left is removed behind it, out of trash/.
	no_sockets() { [ -z "$(find "$BERTH_DATA/keeper" -type s ! -name keeper.sock)" ]; }
	wait_for 10 no_sockets
	serve --allow-fake --absence 2s
	wait_for 10 run_is "$id" failed
	wait_for 10 berth audit
}

@test "a timeout or a cancel ends the whole tree of that exec, and only that" {
	serve --allow-fake
	berth env add box --provider fake >/dev/null
	read -r lease _ < <(berth lease acquire -q box)
	tree='echo $$ >"$1.pid"; (setsid sh -c "trap \"\" TERM HUP
		(setsid sleep 300 & echo \$! >\"$1.deeper\"); echo \$\$ >\"$1.deep\"; while :; do sleep 0.1; done" sh &)
		while :; do sleep 0.1; done'
	berth exec --detach "$lease" -- sh -c "$tree" sh "$PWD/stays"
	wait_for 10 test -s stays.deep
	# Only cgroups can be frozen, and only root has them.
	if [ "$(id -u)" != 0 ]; then
		fails berth lease pause "$lease" 2>err
		has "$(cat err)" 'cgroup'
	fi
	exits 124 berth exec --timeout 1s "$lease" -- sh -c "$tree" sh "$PWD/timed"
	for part in pid deep deeper; do gone "$(cat timed.$part)"; done
	id=$(berth exec --detach "$lease" -- sh -c "$tree" sh "$PWD/killed")
	wait_for 10 test -s killed.deep
	call POST "/api/execs/$id/signal" '{"signal":"KILL","target":"tree"}'
	for part in pid deep deeper; do wait_for 10 gone "$(cat killed.$part)"; done
	run=$(berth run --env Local --detach -- sh -c "$tree" sh "$PWD/run")
	wait_for 10 test -s run.deep
	wait_for 10 run_is "$run" running
	berth cancel "$run"
	wait_for 20 run_is "$run" cancelled
	for part in pid deep deeper; do gone "$(cat run.$part)"; done
	for part in pid deep deeper; do alive "$(cat stays.$part)"; done
	berth lease release "$lease" >/dev/null
	for part in pid deep deeper; do wait_for 10 gone "$(cat stays.$part)"; done
	wait_for 10 berth audit
}

@test "without its keeper or relay program a run fails in clear words, and doctor names the program" {
	for missing in berth-keeper berth-relay; do
		mkdir "$T/part" "$T/$missing"
		cp "$BERTH" "$KEEPER" "${BERTH%/*}/berth-relay" "$T/part"
		rm "$T/part/$missing"
		export BERTH_DATA=$T/$missing
		chmod 700 "$BERTH_DATA"
		whole=$BERTH
		BERTH=$T/part/berth
		serve
		exits 125 berth run --env Local -q -- true 2>err
		has "$(cat err)" "keeper|$missing"
		exits 1 berth doctor >out
		has "$(cat out)" "^bad +${missing#berth-} .*part/$missing"
		has "$(cat out)" "install $missing"
		# It is missed when it is needed, so putting it there is all there is to do.
		cp "${whole%/*}/$missing" "$T/part"
		berth run --env Local -q -- true
		berth doctor >out
		has "$(cat out)" "^ok +${missing#berth-} "
		berth audit
		end $server TERM
		BERTH=$whole
		rm -r "$T/part"
	done
}
