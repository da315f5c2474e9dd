# What people see of a server while it works: events over a restart, the live view in a terminal.
load lib

tm() { tmux -S "$T/tmux" "$@" 3>&-; }
more_teardown() { tm kill-server 2>/dev/null || true; }
screen() { tm capture-pane -p -t top; }
shows() { screen | grep -Eq -- "$1"; }

@test "berth events -f goes on over a restart of the server without a gap" {
	serve
	berth run --env Local -q -- true
	in_background "$BERTH" events -f --json --since 0 >heard 2>said
	reader=$!
	wait_for 10 grep -q '"status":"succeeded"' heard
	end "$server" KILL
	serve
	berth run --env Local -q -- true
	wait_for 20 sh -c '[ "$(grep -c "\"status\":\"succeeded\"" heard)" = 2 ]'
	# The last thing a run leaves is the release of its lease.
	wait_for 10 sh -c '[ "$(grep -c "lease_released" heard)" = 2 ]'
	end "$reader"
	# Every number once, in order, none left out.
	jq -r 'select(.id != null).id' heard >numbers
	seq 1 "$(tail -1 numbers)" | diff numbers -
	same "$(cat said)" ""
}

@test "berth events shows what there was, by type and from a number on" {
	serve
	berth run --env Local -q -- true
	wait_for 10 sh -c "'$BERTH' events | grep -q lease_released"
	has "$(berth events)" 'heartbeat.run.status status=succeeded'
	same "$(berth events --types heartbeat.run.queued --json | jq -r .payload.status)" queued
	last=$(berth events --json | tail -1 | jq .id)
	same "$(berth events --since "$last")" ""
	exits 1 berth events --types nonsense 2>said
	has "$(cat said)" 'types'
}

@test "berth top follows what happens, fits its window and leaves at q" {
	serve
	tm new-session -d -s top -x 80 -y 24 "'$BERTH' top; echo left \$?; cat"
	wait_for 10 shows 'q quits'
	has "$(screen)" '^Local +local +active +0 '
	berth run --env Local -q -d -- sleep 30 >id
	wait_for 10 shows "^$(cut -c1-8 id) running .* sleep 30"
	wait_for 10 shows '^Local +local +active +1 '
	tm resize-window -t top -x 50 -y 10
	wait_for 10 sh -c "[ \$(tmux -S '$T/tmux' capture-pane -p -t top | awk 'length > m { m = length } END { print m }') -le 50 ]"
	has "$(screen)" "$(cut -c1-8 id)"
	berth cancel -q "$(cat id)"
	wait_for 10 shows "^$(cut -c1-8 id) cancelled"
	tm send-keys -t top q
	wait_for 10 shows 'left 0'
	has "$(berth top --once)" "^$(cat id) +cancelled"
	berth top --once --json | jq -e 'any(.environments[]; .name == "Local") and (.runs | length) == 1'
	exits 2 berth top </dev/null 2>said
	has "$(cat said)" 'needs a terminal'
}

@test "events come over TLS as well" {
	openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost \
		-addext subjectAltName=IP:127.0.0.1 2>openssl.log
	serve --listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem
	url=$(sed -n 's/.* and \(https:[^ ]*\)$/\1/p' "$T/serve.log")
	berth run --env Local -q -- true
	in_background curl -sN --cacert cert.pem "$url/api/companies/$(company)/events?lastEventId=0" >heard
	reader=$!
	wait_for 10 grep -q '"status":"succeeded"' heard
	berth run --env Local -q -- true
	wait_for 10 sh -c '[ "$(grep -c "\"status\":\"succeeded\"" heard)" = 2 ]'
	# Nobody has to be waited for.
	end "$server"
	wait_for 5 gone "$reader"
}
