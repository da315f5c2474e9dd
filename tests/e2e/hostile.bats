load lib

# Everything here is refused with a clear status and code, and changes nothing: every test ends by
# looking at what is in the database and at how much memory the server has.

more_setup() {
	chmod 755 "$T"
	serve --allow-fake --listen 127.0.0.1:0
	port=$(tcp_port)
	cid=$(berth env add box --provider fake >/dev/null && company)
	box=$(environment box)
	read -r lease _ < <(berth lease acquire -q box)
	# Every room of the program has been used once before memory is measured.
	{ printf '{"name":["'; head -c 3000000 /dev/zero | tr '\0' a; printf '"]}'; } >warm
	send warm
	answered 400
	before=$(contents)
	memory=$(rss $server)
}

unchanged() {
	alive $server
	same "$(contents)" "$before"
	echo "memory before $memory kB, after $(rss $server) kB"
	[ $(($(rss $server) - memory)) -lt 6000 ]
}

# All rows but the heartbeat of the node itself.
contents() { sqlite3 "file:$BERTH_DATA/berth.db?mode=ro" .dump | grep -v '^INSERT INTO nodes'; }

raw() { printf "$1" | python3 "$BATS_TEST_DIRNAME/raw.py" "${2:-$BERTH_DATA/berth.sock}"; }
send() { # FILE: as the body of a new company
	body=$(curl -sS --max-time 30 --unix-socket "$BERTH_DATA/berth.sock" -H 'Content-Type: application/json' \
		--data-binary "@$1" -w '\n%{http_code}' http://localhost/api/companies)
	code=${body##*$'\n'}
	body=${body%$'\n'*}
}

@test "malformed JSON" {
	for json in '{' '{"name":}' '{"name":"x"' '{"name":"x"}}' '{"name":"x",}' "{'name':'x'}" 'nul' \
		'{"name":"\ud800"}' '{"name":"\u0000"}' '{"name":"x","name":"y"}' ' ' 'NaN' \
		'{"name":1e999}'; do
		call POST /api/companies "$json"
		case $code in
		400) jq -e '.code == "invalid_json" or .code == "validation_error"' <<<"$body" ;;
		*) answered 400 ;;
		esac
		jq -e '.error | length > 5' <<<"$body"
	done
	call POST /api/companies '[{"name":"x"}]'
	answered 400 validation_error
	call POST /api/companies '' -H 'Content-Type: application/json'
	answered 400 invalid_json
	unchanged
}

@test "wrong types, values and keys" {
	for json in '{"name":1}' '{"name":null}' '{"name":["x"]}' '{"name":{}}' '{}' '{"name":""}' \
		'{"name":"x","extra":1}' '{"name":"x","__proto__":{}}' '{"Name":"x"}'; do
		call POST /api/companies "$json"
		answered 400 validation_error
	done
	for json in '{"command":"true"}' '{"command":[]}' '{"command":[1]}' '{"command":[""]}' \
		'{"command":["true"],"env":[]}' '{"command":["true"],"env":{"A":1}}' \
		'{"command":["true"],"env":{"A=B":"x"}}' '{"command":["true"],"timeoutMs":-1}' \
		'{"command":["true"],"timeoutMs":0.5}' '{"command":["true"],"timeoutMs":99999999999999999999}' \
		'{"command":["true"],"cwd":"relative"}' '{"command":["true"],"stdin":"%%","stdinEncoding":"base64"}' \
		'{"command":["true"],"agentId":"not-a-uuid"}' '{"command":["true\u0000false"]}' \
		'{"command":["true"],"argv":["x"]}'; do
		call POST "/api/companies/$cid/runs" "$json"
		[ "$code" = 400 ] || answered 400
		jq -e '.code == "validation_error" or .code == "invalid_json"' <<<"$body"
	done
	for json in '{"ttlSeconds":0}' '{"ttlSeconds":"60"}' '{"ttlSeconds":999999999}' '{"policy":"for_ever"}' '{"waitSeconds":-1}'; do
		call POST "/api/environments/$box/leases" "$json"
		answered 400 validation_error
	done
	for json in '{"name":"x","driver":"warp"}' '{"name":"x","driver":"sandbox","config":{"provider":"fake","wings":2}}' \
		'{"name":"x","driver":"sandbox","config":[]}'; do
		call POST "/api/companies/$cid/environments" "$json"
		case $code in 400 | 422) ;; *) answered 4xx ;; esac
		jq -e '.code | length > 3' <<<"$body"
	done
	for query in limit=0 limit=x limit=99999 limit=1\&limit=2 status=perhaps nonsense=1; do
		call GET "/api/companies/$cid/runs?$query"
		case $code in 400) ;; *) answered 400 ;; esac
	done
	call PUT "/api/companies/$cid" '{}'
	answered 405 method_not_allowed
	call TRACE /api/companies
	case $code in 405 | 400 | 501) ;; *) answered 405 ;; esac
	unchanged
}

@test "bodies of 10 MB, by length and by chunks, and one that never ends" {
	{ printf '{"name":"'; head -c 10000000 /dev/zero | tr '\0' a; printf '"}'; } >large
	send large
	answered 413 payload_too_large
	body=$(curl -sS --max-time 30 --unix-socket "$BERTH_DATA/berth.sock" -H 'Content-Type: application/json' \
		-H 'Transfer-Encoding: chunked' --data-binary @large http://localhost/api/companies)
	same "$(jq -r .code <<<"$body")" payload_too_large
	python3 "$BATS_TEST_DIRNAME/raw.py" "$BERTH_DATA/berth.sock" --endless 256 >got
	has "$(cat got)" '^HTTP/1.1 413'
	has "$(cat got)" 'payload_too_large'
	[ "$(sed -n 's/^sent //p' got)" -lt $((64 << 20)) ]
	# What is announced as enormous is refused before it is sent.
	raw 'POST /api/companies HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{' >got
	has "$(cat got)" '^HTTP/1.1 413'
	unchanged
}

@test "nesting of 10,000, a million values, invalid UTF-8" {
	{ printf '{"name":'; printf '[%.0s' {1..10000}; printf ']%.0s' {1..10000}; printf '}'; } >deep
	send deep
	answered 400
	jq -e '.code == "invalid_json" or .code == "validation_error"' <<<"$body"
	{ printf '{"name":['; yes 1, | tr -d '\n' | head -c 2000000; printf '1]}'; } >wide
	send wide
	answered 400 validation_error
	for bytes in '\xff\xfe' '\xc0\x80' '\xed\xa0\x80' '\xf4\x90\x80\x80' '\xe2\x82'; do
		printf '{"name":"'"$bytes"'"}' >odd
		send odd
		answered 400 invalid_json
	done
	printf '{"name":"a\0b"}' >odd
	send odd
	answered 400 invalid_json
	unchanged
}

@test "paths: NUL, slashes, dots, double encoding, overlong" {
	for path in /api/runs/%00 "/api/runs/$cid%00" /api/runs/..%2f..%2fcompanies /api/%2e%2e/companies \
		/api/../api/companies /api/./companies //api/companies /api//companies /api/companies/ \
		/api%2Fcompanies /api/runs/%zz /api/runs/%2 /api/runs/%ff '/api/runs/a\b' \
		/api/runs/%5c..%5c /api/runs/%0d%0aX:1 '/api/companies?limit=%00'; do
		call GET "$path"
		answered 400 bad_path
	done
	for path in "/api/companies/%252e%252e/runs" /api/runs/%252f /api/nothing /api /; do
		call GET "$path"
		answered 404
		jq -e '.code == "not_found"' <<<"$body"
	done
	call GET "/api/runs/$(head -c 20000 /dev/zero | tr '\0' a)"
	answered 414
	raw 'GET /api/companies\0/x HTTP/1.1\r\nHost: localhost\r\n\r\n' >got
	fails grep '^HTTP/1.1 [235]' got
	raw 'GET http://elsewhere/api/companies HTTP/1.1\r\nHost: localhost\r\n\r\n' >got
	fails grep '^HTTP/1.1 [235]' got
	unchanged
}

@test "foreign and unknown ids are 404, or 403 for a company, or 422 inside a body" {
	ghost=00000000-0000-4000-8000-000000000000
	for path in "/api/runs/$ghost" "/api/runs/$ghost/log" "/api/environments/$ghost" "/api/environments/$ghost/leases" \
		"/api/environment-leases/$ghost" "/api/runs/$lease" "/api/environments/$cid" "/api/environment-leases/$box" \
		"/api/runs/%27%20OR%201=1--"; do
		call GET "$path"
		answered 404
	done
	for path in "/api/companies/$ghost" "/api/companies/$ghost/runs" "/api/companies/$box/agents"; do
		call GET "$path"
		case $code in 403 | 404) ;; *) answered 403 ;; esac
	done
	call POST "/api/companies/$cid/runs" '{"command":["true"],"agentId":"'$ghost'"}'
	answered 422 unprocessable
	call POST "/api/companies/$cid/runs" '{"command":["true"],"environmentId":"'$ghost'"}'
	answered 422 unprocessable
	call POST "/api/environments/$box/leases" '{"issueId":"'$ghost'"}'
	answered 422 unprocessable
	for verb in exec renew release; do
		json='{"generation":1}'
		[ $verb = exec ] && json='{"command":["true"]}'
		call POST "/api/environment-leases/$ghost/$verb" "$json"
		answered 404
	done
	unchanged
}

@test "hostile Host, Origin and content type over TCP" {
	tcp() { # CURL-ARGUMENTS: $code and $body
		body=$(curl -sS --max-time 10 -w '\n%{http_code}' "$@" "http://127.0.0.1:$port/api/companies")
		code=${body##*$'\n'}
		body=${body%$'\n'*}
	}
	tcp
	answered 200
	for host in evil.example "evil.example:$port" "localhost:$((port + 1))" "127.0.0.1.evil.example:$port" "localhost@evil:$port"; do
		tcp -H "Host: $host"
		answered 403 host_not_allowed
	done
	raw 'GET /api/companies HTTP/1.1\r\n\r\n' "$port" >got
	has "$(cat got)" '^HTTP/1.1 4'
	raw 'GET /api/companies HTTP/1.1\r\nHost: evil\r\nHost: localhost\r\n\r\n' "$port" >got
	has "$(cat got)" '^HTTP/1.1 4'
	for origin in http://evil.example null "http://localhost:$((port + 1))" "http://localhost.evil:$port" "https://127.0.0.1.evil"; do
		tcp -H "Origin: $origin" -X POST -H 'Content-Type: application/json' -d '{"name":"x"}'
		answered 403 origin_not_allowed
	done
	for type in text/plain application/x-www-form-urlencoded multipart/form-data 'application/json; charset=latin1' application/jsonx; do
		tcp -X POST -H "Content-Type: $type" -d '{"name":"x"}'
		answered 415 unsupported_media_type
	done
	raw 'POST /api/companies HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' >got
	has "$(cat got)" '^HTTP/1.1 4'
	fails grep -q 'Access-Control-Allow' got
	unchanged
}

@test "another local user, over TCP and over a socket left open to all" {
	need_root "becomes another user"
	stranger() {
		body=$(setpriv --reuid=65534 --regid=65534 --clear-groups curl -sS --max-time 10 -w '\n%{http_code}' "$@")
		code=${body##*$'\n'}
		body=${body%$'\n'*}
	}
	for path in /api/companies "/api/runs/$lease" /api/nothing /api/audit "/api/environment-leases/$lease"; do
		stranger "http://127.0.0.1:$port$path"
		answered 401 unauthenticated
	done
	stranger -X POST -H 'Content-Type: application/json' -d '{"command":["true"]}' "http://127.0.0.1:$port/api/environment-leases/$lease/exec"
	answered 401 unauthenticated
	stranger "http://127.0.0.1:$port/api/health"
	answered 200
	same "$body" '{"status":"ok"}'
	chmod 711 "$BERTH_DATA"
	chmod 777 "$BERTH_DATA/berth.sock"
	stranger --unix-socket "$BERTH_DATA/berth.sock" http://localhost/api/companies
	answered 401 unauthenticated
	stranger --unix-socket "$BERTH_DATA/berth.sock" -X POST -H 'Content-Type: application/json' -d '{"name":"x"}' http://localhost/api/companies
	answered 401 unauthenticated
	chmod 700 "$BERTH_DATA"
	unchanged
}

@test "the same bad requests a few thousand times leave memory where it was" {
	python3 - "$BERTH_DATA/berth.sock" "$cid" <<'P'
import socket, sys
bodies = [b'{', b'{"name":1}', b'[' * 5000, b'{"name":"' + b'a' * 50000 + b'"}', b'\xff' * 100,
          b'{"command":["true"],"env":{"A":1}}']
s = None
for i in range(3000):
    if s is None:
        s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])
    body = bodies[i % len(bodies)]
    s.sendall(b'POST /api/companies/%s/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
              b'Content-Length: %d\r\n\r\n' % (sys.argv[2].encode(), len(body)) + body)
    got = s.recv(65536)
    assert got.startswith(b'HTTP/1.1 4'), got[:200]
    if b'close' in got.lower().split(b'\r\n\r\n')[0]:
        s.close(); s = None
P
	unchanged
}

@test "half requests of another user leave loopback open to the others" {
	need_root "to become another user"
	in_background setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 -c '
import socket, sys, time
held = []
for i in range(600):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    try: s.send(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX: ")
    except OSError: pass
    held.append(s)
print("held", flush=True)
time.sleep(300)' "$port" >held
	wait_for 30 grep -q held held
	for i in 1 2 3 4 5; do
		curl -sf --max-time 5 "http://127.0.0.1:$port/api/companies" >/dev/null
	done
	[ "$(ls "/proc/$server/task" | wc -l)" -lt 200 ]
	alive $server
}
