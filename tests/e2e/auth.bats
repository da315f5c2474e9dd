load lib

# Tokens from outside: over TCP, over TLS, from another user of this machine.

more_setup() { unset BERTH_TOKEN BERTH_TOKEN_FILE BERTH_CA_FILE; }

# certify NAME: NAME.pem and NAME.key, signed by the authority of this test
certify() {
	[ -f "$T/ca.pem" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
		-keyout "$T/ca.key" -out "$T/ca.pem" -subj "/CN=test authority" 2>/dev/null
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$T/$1.key" -subj "/CN=$1" 2>/dev/null |
		openssl x509 -req -CA "$T/ca.pem" -CAkey "$T/ca.key" -days 2 -out "$T/$1.pem" \
			-extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") 2>/dev/null
}
url() { sed -n 's/.* and \(https\?:\/\/[^ ]*\)$/\1/p' "$T/serve.log" | tail -1; }
shown_name() { openssl s_client -connect "$(url | sed 's/.*:\/\///')" </dev/null 2>/dev/null | sed -n 's/^subject=CN = //p'; }
secure() { BERTH_URL=$(url) BERTH_CA_FILE=$T/ca.pem berth "$@"; }
stranger() { # CURL-ARGUMENT...: as somebody else; $code, $body
	body=$(setpriv --reuid=65534 --regid=65534 --clear-groups curl -sS --max-time 10 -w '\n%{http_code}' "$@")
	code=${body##*$'\n'}
	body=${body%$'\n'*}
}

@test "a person with a token works over TLS, and only as far as their role goes" {
	certify server
	serve --allow-fake --listen 127.0.0.1:0 --tls-cert "$T/server.pem" --tls-key "$T/server.key"
	has "$(url)" '^https://127'
	berth user add ada
	berth token create --user ada --name laptop --expires 1h >token
	chmod 600 token
	has "$(cat token)" '^pcp_board_[0-9a-f]{48}$'
	fails grep -rqF "$(cut -c20- token)" "$BERTH_DATA"
	# Nobody's certificate is taken on trust, and no token is sent to it.
	exits 1 berth whoami --url "$(url)" --token-file token 2>err
	has "$(cat err)" 'certificate cannot be trusted'
	same "$(secure whoami --token-file token --json | jq -r .name)" ada
	BERTH_TOKEN=$(cat token) secure company ls --json >companies
	same "$(jq length companies)" 0
	berth env add box --provider fake
	berth member set ada --role viewer
	export BERTH_TOKEN_FILE=$PWD/token
	has "$(secure env ls)" box
	exits 1 secure env add other --provider fake 2>err
	has "$(cat err)" 'read-only'
	BERTH_TOKEN_FILE= berth member set ada --role operator
	exits 1 secure env add other --provider fake 2>err
	has "$(cat err)" 'environments:manage'
	same "$(secure run -q --env box -- echo through)" through
	# Using a place is something else than defining it.
	read -r lease _ < <(secure lease acquire -q box)
	same "$(secure exec "$lease" -- echo inside)" inside
	echo mine >file
	secure cp file "$lease:file"
	same "$(secure exec "$lease" -- cat file)" mine
	secure lease release "$lease"
	exits 1 env BERTH_TOKEN_FILE= "$BERTH" member set ada --grant leases:manage 2>err
	has "$(cat err)" '"leases:manage"; there are .*leases:use'
	exits 1 secure token create --only metrics:read 2>err
	has "$(cat err)" 'instance admins'
	BERTH_TOKEN_FILE= berth token create --user ada --only metrics:read >scraper
	same "$(curl -s -o metrics -w '%{http_code}' --cacert "$T/ca.pem" -H "Authorization: Bearer $(cat scraper)" "$(url)/metrics")" 200
	has "$(cat metrics)" berth_leases
	same "$(curl -s -o metrics -w '%{http_code}' --cacert "$T/ca.pem" -H "Authorization: Bearer $(cat scraper)" "$(url)/api/companies")" 403
	# A command on this host is something else than a token.
	exits 125 secure run -q --env Local -- echo here 2>err
	has "$(cat err)" 'driver local'
	id=$(BERTH_TOKEN_FILE= berth token ls --json | jq -r '.[] | select(.name == "laptop").id')
	BERTH_TOKEN_FILE= berth token revoke "$id"
	exits 1 secure whoami 2>err
	has "$(cat err)" 'not valid'
	fails grep -qF "$(cut -c20- token)" "$T/serve.log"
}

@test "terminals, files and long output go over TLS as well" {
	certify server
	serve --allow-fake --listen 127.0.0.1:0 --tls-cert "$T/server.pem" --tls-key "$T/server.key"
	berth env add box --provider fake
	berth user add ada --admin
	export BERTH_TOKEN
	BERTH_TOKEN=$(berth token create --user ada)
	export BERTH_URL BERTH_CA_FILE=$T/ca.pem
	BERTH_URL=$(url)
	read -r lease _ < <(berth lease acquire -q box)
	script -qec "'$BERTH' exec -it $lease -- sh -c 'test -t 0 && echo a terminal; read line; echo said \$line'" /dev/null \
		<<<'hello' >out
	has "$(cat out)" 'a terminal'
	has "$(cat out)" 'said hello'
	head -c 3000000 /dev/urandom >big
	berth cp big "$lease:big"
	berth cp "$lease:big" back
	cmp big back
	same "$(berth exec "$lease" -- seq 200000 | md5sum)" "$(seq 200000 | md5sum)"
	berth run -q --env box -- seq 200000 | cmp - <(seq 200000)
	# Refused in the middle of its body, and told why.
	head -c 40000000 /dev/zero >huge
	code=$(curl -s --cacert "$T/ca.pem" -o out -w '%{http_code}' -H 'Expect:' -H "Authorization: Bearer $BERTH_TOKEN" \
		-H 'Content-Type: application/json' --data-binary @huge "$BERTH_URL/api/companies")
	same "$code" 413
}

@test "the certificate is read again on SIGHUP, and a bad one leaves the old" {
	certify one
	certify two
	cp "$T/one.pem" "$T/cert.pem" && cp "$T/one.key" "$T/cert.key" && chmod 600 "$T/cert.key"
	serve --listen 127.0.0.1:0 --tls-cert "$T/cert.pem" --tls-key "$T/cert.key"
	same "$(shown_name)" one
	# One half of the new pair is no pair.
	cp "$T/two.pem" "$T/cert.pem"
	kill -HUP $server
	wait_for 5 grep -q 'was not replaced' "$T/serve.log"
	same "$(shown_name)" one
	cp "$T/two.key" "$T/cert.key"
	kill -HUP $server
	wait_for 5 grep -q 'certificate .* again' "$T/serve.log"
	same "$(shown_name)" two
	berth whoami --url "$(url)" --ca-file "$T/ca.pem"
	# A key that others can read is refused, also at the start.
	chmod 644 "$T/cert.key"
	kill -HUP $server
	wait_for 5 grep -q 'chmod 600' "$T/serve.log"
	same "$(shown_name)" two
	end $server
	exits 1 berth serve --listen 127.0.0.1:0 --tls-cert "$T/cert.pem" --tls-key "$T/cert.key" 2>err
	has "$(cat err)" 'chmod 600'
}

@test "beyond loopback there is TLS or a clear word, and no trust without a token" {
	exits 1 berth serve --listen 0.0.0.0:0 2>err
	has "$(cat err)" '--tls-cert'
	serve --allow-fake --listen 0.0.0.0:0 --insecure-http --allowed-host berth.example
	has "$(cat "$T/serve.log")" 'can be read on their way'
	port=$(tcp_port)
	berth user add ada --admin
	token=$(berth token create --user ada)
	# Even the server's own user, even over 127.0.0.1.
	code=$(curl -s -o out -w '%{http_code}' "http://127.0.0.1:$port/api/companies")
	same "$code" 401
	same "$(curl -s -o out -w '%{http_code}' -H "Authorization: Bearer $token" "http://127.0.0.1:$port/api/companies")" 200
	same "$(curl -s -o out -w '%{http_code}' -H "Host: berth.example" -H "Authorization: Bearer $token" "http://127.0.0.1:$port/api/companies")" 200
	same "$(curl -s -o out -w '%{http_code}' -H "Host: evil.example" -H "Authorization: Bearer $token" "http://127.0.0.1:$port/api/companies")" 403
	same "$(curl -s "http://127.0.0.1:$port/api/health")" '{"status":"ok"}'
}

@test "a token goes over plain http to this machine only" {
	serve --listen 0.0.0.0:0 --insecure-http
	port=$(tcp_port)
	berth user add ada
	BERTH_TOKEN=$(berth token create --user ada)
	export BERTH_TOKEN
	for near in 127.0.0.1 localhost 127.1; do
		same "$(berth whoami --url "http://$near:$port" --json | jq -r .name)" ada
	done
	# Nothing is sent: nothing could answer there.
	for far in 0.0.0.0:$port 192.0.2.1 127.0.0.1@192.0.2.1 localhost.example '[2001:db8::1]'; do
		exits 1 timeout 4 "$BERTH" whoami --url "http://$far" 2>err
		has "$(cat err)" 'token is not sent to .*https://, or --insecure-http'
	done
	same "$(berth whoami --url "http://0.0.0.0:$port" --insecure-http --json | jq -r .name)" ada
	# Without a token there is nothing to lose.
	unset BERTH_TOKEN
	exits 1 berth whoami --url "http://0.0.0.0:$port" 2>err
	fails grep -q 'token is not sent' err
}

@test "another user of this machine needs a token, and guesses only so often" {
	need_root "becomes another user"
	chmod 755 "$T"
	serve --listen 127.0.0.1:0
	at=http://127.0.0.1:$(tcp_port)
	berth user add ada
	token=$(berth token create --user ada)
	stranger "$at/api/companies"
	answered 401 unauthenticated
	stranger -H "Authorization: Bearer $token" "$at/api/me"
	answered 200
	same "$(jq -r .name <<<"$body")" ada
	for i in {1..10}; do
		stranger -H "Authorization: Bearer pcp_board_$i" "$at/api/me"
		answered 401 unauthenticated
	done
	stranger -D - -H "Authorization: Bearer $token" "$at/api/me"
	answered 429
	has "$body" '"code":"too_many_requests"'
	has "$(tr -d '\r' <<<"$body")" '^Retry-After: [1-9][0-9]?$'
	# The next one is not made to wait for it.
	call GET /api/me "" -H "Authorization: Bearer $token"
	answered 200
}

@test "a run speaks to the API as its agent until it ends" {
	serve --allow-fake --listen 127.0.0.1:0
	berth env add box --provider fake
	bot=$(berth agent add bot)
	# With a proxy's mark there is no local trust: the token alone has to do.
	berth run -q --agent bot --env box -- sh -c '
		curl -s -H "X-Forwarded-For: 192.0.2.1" -H "Authorization: Bearer $BERTH_API_KEY" "$BERTH_API_URL/api/me"
		echo; echo "$BERTH_API_KEY"' >out
	same "$(head -1 out | jq -r .agentId)" "$bot"
	same "$(head -1 out | jq -r .source)" agent_jwt
	call GET /api/me "" -H "Authorization: Bearer $(tail -1 out)"
	answered 401 unauthenticated
	fails grep -qF "$(tail -1 out)" "$T/serve.log"
}
