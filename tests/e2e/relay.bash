# For tests of places with a relay: nothing of them outlives the test, whatever became of its server.

# The keeper of this test's data directory, by the directory it was given.
keeper_pid() {
	local dir
	for dir in /proc/[0-9]*; do
		if tr '\0' '\n' 2>/dev/null <"$dir/cmdline" | grep -qxF -- "$BERTH_DATA/keeper"; then
			echo "${dir#/proc/}"
		fi
	done
}

relay_pids() {
	local keeper
	for keeper in $(keeper_pid); do
		cat /proc/"$keeper"/task/*/children 2>/dev/null
	done
}

end_places() {
	if healthy >/dev/null 2>&1; then
		berth lease release -q "$lease" >/dev/null 2>&1 || true
	fi
	local pid
	for pid in $(relay_pids) $(keeper_pid); do
		end "$pid" KILL
	done
}

raw() { curl -sS --max-time 60 --path-as-is --unix-socket "$BERTH_DATA/berth.sock" "$@"; }
