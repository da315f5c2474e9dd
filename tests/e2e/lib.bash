# Shared by the end-to-end tests: a directory and a data directory of one's own per test, a server
# that ends with the test, and waiting for a condition instead of for luck.
#
# BERTH_BIN names the program; build/berth unless given.

bats_require_minimum_version 1.5.0
export BATS_TEST_TIMEOUT=120
BERTH=$(realpath "${BERTH_BIN:-$BATS_TEST_DIRNAME/../../build/berth}")
KEEPER=${BERTH%/*}/berth-keeper

berth() { "$BERTH" "$@"; }

setup() {
	T=$(mktemp -d "${TMPDIR:-/tmp}/berth-e2e.XXXXXX")
	unset BERTH_URL BERTH_COMPANY BERTH_FAULT XDG_DATA_HOME
	export BERTH_DATA=$T/data HOME=$T/home
	mkdir "$T/home" "$T/work"
	cd "$T/work"
	: >"$T/pids"
	if declare -F more_setup >/dev/null; then more_setup; fi
}

teardown() {
	if [ -z "${BATS_TEST_COMPLETED:-}" ]; then
		for log in "$T"/*.log "$T"/*/server.log; do
			[ -s "$log" ] && sed "s|^|$(basename "$log"): |" "$log" | tail -40
		done
	fi
	local pid lock dir
	if declare -F more_teardown >/dev/null; then more_teardown; fi
	while read -r pid; do end "$pid" KILL; done <"$T/pids"
	for lock in "$T"/*/lock; do
		[ -s "$lock" ] || continue
		pid=$(jq -r .pid "$lock")
		is_berth "$pid" && end "$pid" KILL
	done
	for dir in "$T"/*/keeper "$T"/*/*/keeper; do
		[ -d "$dir" ] && end_keeper "$dir"
	done
	mountpoint -q "$T/small" && umount -l "$T/small"
	# A command's last file may be in the making while its tree is ended.
	rm -rf "$T" || rm -rf "$T"
}

# The pid of the keeper of a data directory.
keeper() { keeper_in "${1:-$BERTH_DATA}/keeper"; }
# The anchors keep grep from finding itself.
keeper_in() { grep -alz -- "^$1\$" /proc/[0-9]*/cmdline 2>/dev/null | grep -m1 -o '[0-9]\+'; }
no_keeper_in() { fails keeper_in "$1"; }
# The pids of the relays of a keeper's directory, with their places: PID PLACE
relays() { relays_in "${1:-$BERTH_DATA}/keeper"; }
relays_in() {
	local file pid
	for file in "$1"/places/*/relay; do
		read -r pid _ 2>/dev/null <"$file" || continue
		is_relay "$pid" && echo "$pid $(basename "${file%/relay}")"
	done
	return 0
}
is_relay() { [ "$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" | cut -d' ' -f1)" = berth-relay ]; }

# end_keeper DIR: a keeper that finds places without their relays removes all that is left of them,
# and one that has nothing to keep ends.
end_keeper() {
	local pid
	pid=$(keeper_in "$1") && end "$pid" KILL
	relays_in "$1" | while read -r pid _; do end "$pid" KILL; done
	timeout 20 "$KEEPER" --dir "$(realpath "$1")" --idle-seconds 0 2>/dev/null 3>&- || true
	wait_for 10 no_keeper_in "$1"
}

# in_background COMMAND...: $! is ended with the test. Its own session keeps a signal meant for it
# from reaching the test, and descriptor 3 closed keeps bats from waiting for it.
in_background() {
	setsid "$@" 3>&- &
	echo $! >>"$T/pids"
}

alive() { kill -0 "$1" 2>/dev/null && [ "$(process_state "$1")" != Z ]; }
process_state() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
is_berth() { [ "$(readlink "/proc/$1/exe" 2>/dev/null)" = "$BERTH" ]; }
gone() { ! alive "$1"; }

# end PID [SIGNAL]: and sees it gone
end() {
	kill -"${2:-TERM}" "$1" 2>/dev/null || return 0
	wait_for 20 gone "$1"
}

# wait_for SECONDS COMMAND...: until it succeeds; the deadline passing is a failure
wait_for() {
	local until=$((${EPOCHREALTIME/./} + $1 * 1000000)) nap=
	shift
	until "$@" >/dev/null 2>&1; do
		if [ "${EPOCHREALTIME/./}" -gt "$until" ]; then
			echo "did not come about in time: $*" >&2
			return 1
		fi
		# Where nothing ever comes, reading waits without starting a process each time.
		[ -n "$nap" ] || exec {nap}<> <(:)
		read -rt 0.03 -u "$nap" || true
	done
	[ -z "$nap" ] || exec {nap}>&-
}

# fails COMMAND...: `!` does not fail a test, this does
fails() {
	if "$@"; then
		echo "succeeded, and should not have: $*" >&2
		return 1
	fi
}

# exits CODE COMMAND...: its output passes through
exits() {
	local want=$1 got=0
	shift
	"$@" || got=$?
	if [ "$got" != "$want" ]; then
		echo "exit code $got, not $want: $*" >&2
		return 1
	fi
}

same() {
	if [ "$1" != "$2" ]; then
		printf 'not the same:\n  %s\n  %s\n' "$1" "$2" >&2
		return 1
	fi
}

# has TEXT REGEX
has() {
	if ! grep -Eq -- "$2" <<<"$1"; then
		printf 'no "%s" in:\n%s\n' "$2" "$1" >&2
		return 1
	fi
}

healthy() { curl -sf --max-time 5 --unix-socket "$BERTH_DATA/berth.sock" http://localhost/api/health; }

# serve FLAGS...: a server in the background, healthy; $server is its pid
serve() {
	in_background "$BERTH" serve --data "$BERTH_DATA" "$@" >>"$T/serve.log" 2>&1
	server=$!
	wait_for 20 served_or_gone
	if ! healthy >/dev/null; then
		cat "$T/serve.log" >&2
		return 1
	fi
}
served_or_gone() { healthy || gone "$server"; }

# The pid of whichever server holds the data directory.
holder() { jq -er .pid "$BERTH_DATA/lock"; }

tcp_port() { sed -n 's/.* and http:\/\/127\.0\.0\.1:\([0-9]*\)$/\1/p' "$T/serve.log" | tail -1; }

# call METHOD PATH [JSON] [CURL-ARGUMENT...]: $code and $body
call() {
	local method=$1 path=$2 json=${3:-}
	shift $(($# < 3 ? $# : 3))
	[ -n "$json" ] && set -- -H 'Content-Type: application/json' --data-binary "$json" "$@"
	body=$(curl -sS --max-time 30 --path-as-is --unix-socket "$BERTH_DATA/berth.sock" \
		-X "$method" -w '\n%{http_code}' "$@" "http://localhost$path")
	code=${body##*$'\n'}
	body=${body%$'\n'*}
}

# answered STATUS [CODE]: the last call
answered() {
	if [ "$code" != "$1" ] || { [ $# -gt 1 ] && [ "$(jq -r .code <<<"$body")" != "$2" ]; }; then
		printf 'answered %s %s, not %s\n' "$code" "$body" "$*" >&2
		return 1
	fi
}

company() { berth company ls --json | jq -er '.[] | select(.name == "default").id'; }
environment() { berth env show "$1" --json | jq -er .id; }
# field_of JQ COMMAND...: of no answer at all jq would say that it is true
field_of() {
	local answer filter=$1
	shift
	answer=$("$@") || return 1
	jq -er "$filter" <<<"$answer"
}
# from_api PATH: by the socket
from_api() { curl -sf --max-time 10 --unix-socket "$BERTH_DATA/berth.sock" "http://localhost/api/$1"; }
run_field() { field_of "$2" from_api "runs/$1"; } # RUN JQ
run_is() { same "$(run_field "$1" .status)" "$2"; }

# rss PID: kB
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }

need_root() { [ "$(id -u)" -eq 0 ] || skip "needs root: $1"; }
