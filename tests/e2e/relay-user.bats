load lib

# The same as relay.bats, by a user who may do nothing special: no cgroups, no other users.

ORDINARY=65534

# as_user PATTERN: those tests of relay.bats, with copies of the programs that everybody can reach.
as_user() {
	[ "$(id -u)" = 0 ] || skip "an ordinary user runs relay.bats itself"
	chmod 755 "$T"
	mkdir "$T/bin" "$T/tests" "$T/own"
	cp "$BERTH" "$KEEPER" "${BERTH%/*}/berth-relay" "$T/bin"
	cp "$BATS_TEST_DIRNAME"/{lib.bash,relay.bash,relay.bats} "$T/tests"
	chown $ORDINARY:$ORDINARY "$T/own"
	cd "$T/own"
	env -i PATH="${PATH//"$BATS_LIBEXEC:"/}" HOME="$T/own" TMPDIR="$T/own" BERTH_BIN="$T/bin/berth" \
		setpriv --reuid=$ORDINARY --regid=$ORDINARY --clear-groups \
		bats -f "$1" "$T/tests/relay.bats" 3>&- >out 2>&1 || { cat out; return 1; }
	grep -q '^ok 1 ' out
	fails grep -q 'skip' out
	cat out
}

@test "as an ordinary user: relay, keeper and server killed" {
	as_user '^(a relay killed: |a relay killed after|the keeper killed|server and keeper killed)'
	same "$(grep -c '^ok' out)" 4
}

@test "as an ordinary user: absence, and the end of a command's whole tree" {
	as_user '^(nobody there for longer|a timeout or a cancel)'
	same "$(grep -c '^ok' out)" 2
}
