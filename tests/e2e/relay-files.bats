# Files of a place over HTTP, and berth cp: everything that tries to get out of the root, or to leave
# half a file.
load lib.bash
load relay.bash

more_setup() {
	serve --allow-fake
	berth env add -q box --provider fake >/dev/null
	read -r lease generation < <(berth lease acquire -q box)
	files=/api/environment-leases/$lease/files
	mkdir outside
	echo canary >outside/canary
	outside=$PWD/outside
}
more_teardown() { end_places; }

in_place() { berth exec "$lease" -- "$@"; }
# put FILE PATH [QUERY]: $code and $body
put() {
	body=$(raw -X PUT -H 'Content-Type: application/octet-stream' --data-binary "@$1" \
		-w '\n%{http_code}' "http://x$files?path=$2${3:+&$3}")
	code=${body##*$'\n'}
	body=${body%$'\n'*}
}
get() { raw -f "http://x$files?path=$1${2:+&$2}"; }

@test "a file goes in, comes back the same, and has its mode" {
	head -c 5000000 /dev/urandom >sent
	put sent big 'mode=0640'
	answered 200
	same "$(jq -c '[.type, .mode, .size]' <<<"$body")" '["file","0640",5000000]'
	get big >back
	cmp sent back
	same "$(in_place stat -c %a big)" 640
	in_place cat big | cmp - sent
	put sent big
	same "$(jq -r .mode <<<"$body")" 0640
	: >empty
	put empty big
	answered 200
	same "$(get big | wc -c)" 0
}

@test "parts of a file by Range or by offset and length" {
	printf 0123456789 >sent
	put sent digits
	same "$(get digits 'offset=3&length=4')" 3456
	same "$(get digits offset=8)" 89
	same "$(get digits offset=20)" ""
	same "$(raw -r 2-4 "http://x$files?path=digits")" 234
	same "$(raw -r 7- "http://x$files?path=digits")" 789
	same "$(raw -r -2 "http://x$files?path=digits")" 89
	has "$(raw -r 2-4 -o /dev/null -D - "http://x$files?path=digits")" '^Content-Range: bytes 2-4/10'
	same "$(raw -r 10-12 -o /dev/null -w '%{http_code}' "http://x$files?path=digits")" 416
}

@test "directories: made, listed in pages, renamed, emptied" {
	call POST "$files/mkdir" '{"path": "a/b/c"}'
	answered 404
	call POST "$files/mkdir" '{"path": "a/b/c", "parents": true, "mode": "0700"}'
	answered 201
	same "$(jq -r .mode <<<"$body")" 0700
	in_place sh -c 'cd a/b && seq 1 250 | xargs touch'
	cursor= names=
	for page in 1 2 3 4 5 6; do
		call GET "$files/list?path=a/b&limit=60${cursor:+&cursor=$cursor}"
		answered 200
		names="$names $(jq -r '.entries[].path' <<<"$body" | tr '\n' ' ')"
		cursor=$(jq -r '.nextCursor // empty' <<<"$body")
		[ -n "$cursor" ] || break
	done
	same "$(tr ' ' '\n' <<<"$names" | grep -c .)" 251
	same "$(tr ' ' '\n' <<<"$names" | sort -u | grep -c .)" 251
	call POST "$files/rename" '{"from": "a/b", "to": "z"}'
	answered 200
	call POST "$files/chmod" '{"path": "z/1", "mode": "0751"}'
	same "$(jq -r .mode <<<"$body")" 0751
	call POST "$files/rename" '{"from": "z/1", "to": "z/2", "noClobber": true}'
	answered 409 conflict
	call DELETE "$files?path=z"
	answered 409 conflict
	call DELETE "$files?path=z&recursive=1"
	answered 200
	call GET "$files/stat?path=z"
	answered 404 not_found
}

@test "an existing file can be left alone, and a stale holder writes nothing" {
	echo old >old
	echo new >new
	put old f
	put new f noClobber=1
	answered 409 conflict
	put new f "generation=$((generation + 1))"
	answered 409 lease_generation_stale
	same "$(get f)" old
	put new f "generation=$generation"
	answered 200
	same "$(get f)" new
	berth lease release -q "$lease"
	put old f
	answered 409 lease_not_active
}

@test "no path leads out of the root" {
	in_place sh -c "ln -s $outside link; ln -s $outside/canary file; ln -s /proc/self/root magic; mkdir d; ln -s ../../../../../../../../../../../../$outside d/up"
	echo hacked >hacked
	for path in link/canary file "../outside/canary" "d/../../outside/canary" "$outside/canary" \
		d/up/canary "magic$outside/canary" /proc/self/root"$outside"/canary \
		%2e%2e/%2e%2e/%2e%2e/%2e%2e"$outside"/canary; do
		fails test "$(get "$path" 2>/dev/null)" = canary
		put hacked "$path"
		same "$(cat outside/canary)" canary
		call DELETE "$files?path=$path&recursive=1"
		same "$(cat outside/canary)" canary
	done
	put hacked link/new
	put hacked d/up/new
	call POST "$files/mkdir" '{"path": "link/dir"}'
	call POST "$files/rename" '{"from": "d", "to": "link/d"}'
	call POST "$files/chmod" '{"path": "file", "mode": "0777"}'
	same "$(ls outside)" canary
	same "$(stat -c %a outside/canary)" 644
}

@test "a directory that turns into a link at any moment leads nowhere" {
	echo hacked >hacked
	in_place sh -c "mkdir real; echo mine >real/canary; ln -s $outside swap"
	cat >swap.py <<-'END'
		import ctypes, os, sys, time
		libc = ctypes.CDLL(None, use_errno=True)
		until = time.monotonic() + 100
		while time.monotonic() < until and not os.path.exists("enough"):
		    libc.renameat2(-100, b"real", -100, b"swap", 2)
	END
	berth exec -i "$lease" -- sh -c 'cat >swap.py' <swap.py
	exec_id=$(berth exec -d "$lease" -- python3 swap.py)
	for _ in {1..25}; do
		fails test "$(get real/canary 2>/dev/null)" = canary
		put hacked real/new
		call DELETE "$files?path=real/new"
	done
	same "$(raw "http://x/api/execs/$exec_id" | jq -r .status)" running
	put hacked enough
	same "$(ls outside) $(cat outside/canary)" "canary canary"
}

@test "what is no file is refused at once" {
	in_place sh -c 'mkfifo fifo; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")"; mkdir dir'
	echo x >x
	for path in fifo sock dir; do
		call GET "$files?path=$path" '' --max-time 5
		answered 422
	done
	call GET "$files/stat?path=fifo"
	same "$(jq -r .type <<<"$body")" fifo
	put x dir
	fails test "$code" = 200
}

@test "devices are refused" {
	need_root "mknod"
	in_place mknod zero c 1 5
	call GET "$files?path=zero" '' --max-time 5
	answered 422
}

@test "a sparse gigabyte passes through without filling the server" {
	in_place truncate -s 1G sparse
	before=$(rss "$server")
	same "$(get sparse | wc -c)" 1073741824
	same "$(get sparse 'offset=1073741820' | od -An -tx1 | tr -d ' \n')" 00000000
	after=$(rss "$server")
	[ $((after - before)) -lt 32768 ]
}

@test "of many writers one wins, whole" {
	for i in 1 2 3 4 5 6 7 8; do
		head -c 3000000 /dev/zero | tr '\0' "$i" >part$i
	done
	for round in 1 2 3; do
		writers=
		for i in 1 2 3 4 5 6 7 8; do
			raw -o /dev/null -X PUT -H 'Content-Type: application/octet-stream' \
				--data-binary @part$i "http://x$files?path=contended" 3>&- &
			writers="$writers $!"
		done
		wait $writers
		get contended >won
		same "$(wc -c <won) $(fold -w1 <(head -c 1 won)) $(tr -d "$(head -c 1 won)" <won | wc -c)" \
			"3000000 $(head -c 1 won) 0"
	done
	same "$(in_place sh -c 'ls -A | wc -l')" 1
}

# A PUT that never ends: the first bytes of many.
half_a_put() {
	in_background sh -c "(head -c 300000 /dev/zero; sleep 300) | exec curl -sS -X PUT -T - \
		-H 'Content-Type: application/octet-stream' --unix-socket '$BERTH_DATA/berth.sock' \
		'http://x$files?path=$1'" 2>/dev/null
}
# What is being written has no name yet: the relay holds it open.
writes_unseen() {
	local pid
	for pid in $(relay_pids); do
		ls -l "/proc/$pid/fd" 2>/dev/null | grep -Eq '/#[0-9]+ \(deleted\)$' && return
	done
	return 1
}

@test "a client that dies in the middle of a PUT leaves the old file and nothing else" {
	need_root "looking into the relay"
	echo old >old
	put old keep
	half_a_put keep
	wait_for 10 writes_unseen
	same "$(get keep)" old
	kill -KILL -- -$!
	wait_for 20 fails writes_unseen
	same "$(in_place ls -A)" keep
	same "$(get keep)" old
}

@test "a server that dies in the middle of a PUT leaves the old file and nothing else" {
	need_root "looking into the relay"
	echo old >old
	put old keep
	half_a_put keep
	wait_for 10 writes_unseen
	end "$server" KILL
	serve --allow-fake
	wait_for 20 fails writes_unseen
	same "$(in_place ls -A)" keep
	same "$(get keep)" old
}

@test "berth cp takes directories there and back" {
	mkdir -p tree/a/empty tree/b
	head -c 2000000 /dev/urandom >tree/a/big
	printf 'x y' >'tree/b/name with spaces & more'
	chmod 755 tree/a/big
	berth cp -q tree "$lease:copy"
	in_place test -x copy/a/big
	berth cp -q "$lease:copy" back
	diff -r tree back
	same "$(stat -c %a back/a/big)" 755
	berth cp -q tree "$lease:copy"
	in_place test -f copy/tree/a/big
	berth cp -q tree/a/big "$lease:copy/b/"
	in_place cat copy/b/big | cmp - tree/a/big
	mkdir here
	berth cp -q "$lease:copy/b/big" here
	cmp here/big tree/a/big
	exits 1 berth cp -q "$lease:nothing" here
	exits 1 berth cp -q nothing "$lease:x"
	exits 2 berth cp -q tree here
}

@test "berth cp names what it cannot take and says so with its exit code" {
	mkdir tree
	echo x >tree/x
	ln -s /etc/passwd tree/link
	mkfifo tree/fifo
	exits 1 berth cp tree "$lease:copy" 2>err
	has "$(cat err)" 'skipped copy/link: a symbolic link'
	has "$(cat err)" 'skipped copy/fifo'
	same "$(in_place ls copy)" x
	in_place ln -s /etc/passwd copy/evil
	exits 1 berth cp -q "$lease:copy" back 2>err
	same "$(ls back)" x
}
