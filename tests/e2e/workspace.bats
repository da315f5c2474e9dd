# Files go along, work comes home: from the command line, with a person and other runs at the same
# files, and with servers that die.
load lib.bash

# Stands in for a project; everything of it is text.
more_setup() {
	mkdir -p src
	printf 'one\ntwo\nthree\n' >README.md
	echo 'int main(void) { return 0; }' >src/main.c
	echo old >old.txt
}

tree() { (cd "$1" && find . -type f ! -path './.berth/*' | sort | xargs sha256sum); }

# A run that waits in its place until `let_go RUN`; $run is its id
waiting_run() { # FLAGS... -- SHELL-TEXT
	local flags=()
	while [ "$1" != -- ]; do
		flags+=("$1")
		shift
	done
	run=$(berth run --detach "${flags[@]}" -- sh -c "touch /tmp/there; until [ -e /tmp/go ]; do sleep 0.05; done; $2")
	wait_for 20 has_begun "$run"
}
has_begun() { berth exec -q "$(run_field "$1" .leaseId)" -- test -e /tmp/there; }
let_go() { berth exec -q "$(run_field "$1" .leaseId)" -- touch /tmp/go; }
ended() { run_field "$1" '.finishedAt // empty'; }

@test "what a command changes comes home when it has ended, and is told" {
	berth run -- sh -c 'echo four >>README.md; mkdir -p a/b; echo new >a/b/c; rm old.txt; pwd' >out 2>err
	same "$(cat out)" /workspace
	# Files, not the directories they are in.
	has "$(cat err)" '^berth: 1 changed, 1 added, 1 deleted$'
	same "$(cat README.md)" $'one\ntwo\nthree\nfour'
	same "$(cat a/b/c)" new
	[ ! -e old.txt ]
	same "$(berth audit)" "nothing unexplained"
}

@test "a command stands where its caller stands, and sees no file that rules leave out" {
	mkdir -p deep/er
	echo 'secret*' >.gitignore
	echo '*.big' >.berthignore
	echo hush >secret.key
	echo huge >deep/film.big
	cd deep/er
	same "$(berth run -q --workspace ../.. -- sh -c 'pwd; cd ../..; find . -type f | sort')" \
		$'/workspace/deep/er\n./.berthignore\n./.gitignore\n./README.md\n./old.txt\n./src/main.c'
	same "$(cat ../film.big ../../secret.key)" $'huge\nhush'
}

@test "WS_50: what .berthignore takes back in goes along and comes home, in both modes" {
	echo 'node_modules/' >.gitignore
	echo '!node_modules/' >.berthignore
	mkdir node_modules
	echo 1 >node_modules/x
	for mode in overlay copy; do
		# Adding a rule in the place does not undo it.
		berth run -q --mode "$mode" -- sh -c "cat node_modules/x; echo $mode >node_modules/$mode; echo '*.o' >>.gitignore; touch a.o" >"$T/out"
		same "$(cat "$T/out")" 1
		same "$(cat node_modules/$mode)" "$mode"
		[ ! -e a.o ]
	done
	same "$(cat .gitignore)" $'node_modules/\n*.o\n*.o'
}

@test "WS_54 W31: a provision command runs behind the files, before the command, and a failing one instead of it" {
	serve
	berth project add apollo >/dev/null
	hull() { berth workspace add "$1" --project apollo --cwd "$PWD" --provision "$2" --json | jq -er .id; }
	good=$(hull good 'cat old.txt >provisioned; echo "$PWD" >>provisioned')
	bad=$(hull bad 'cat old.txt; exit 7')
	berth env ls --json >/dev/null
	sandbox=$(curl -sf --unix-socket "$BERTH_DATA/berth.sock" -X POST "http://localhost/api/companies/$(company)/sandbox" | jq -er .id)
	with() { # WORKSPACE-RECORD
		call POST "/api/companies/$(company)/runs" "$(jq -n --arg e "$sandbox" --arg w "$1" --arg p "$PWD" \
			'{command: ["sh", "-c", "cat provisioned; echo ran >ran"], environmentId: $e, executionWorkspaceId: $w, workspace: {path: $p}}')"
		answered 201
		run=$(jq -er .id <<<"$body")
		wait_for 20 ended "$run"
	}
	with "$good"
	same "$(run_field "$run" .status)" succeeded
	same "$(berth logs "$run")" $'old\n/workspace'
	same "$(cat provisioned ran)" $'old\n/workspace\nran'
	rm provisioned ran
	with "$bad"
	same "$(run_field "$run" .errorCode)" workspace_realization_failed
	has "$(run_field "$run" .error)" 'exit code 7'
	[ ! -e ran ]
}

@test "acceptance 3: two runs and a person at one directory, and all three sets survive" {
	mkdir "$T/proj"
	cp -r README.md src old.txt "$T/proj"
	cd "$T/proj"
	waiting_run -- 'echo first >first.txt; sed -i s/one/ONE-BY-FIRST/ README.md; echo f >>src/main.c'
	first=$run
	waiting_run -- 'echo second >second.txt; sed -i s/one/ONE-BY-SECOND/ README.md; rm old.txt'
	second=$run
	echo person >person.txt
	echo 'changed by a person' >old.txt
	sed -i s/two/TWO-BY-PERSON/ README.md
	let_go "$first"
	wait_for 20 ended "$first"
	let_go "$second"
	wait_for 20 ended "$second"
	# Each one's own.
	same "$(cat first.txt second.txt person.txt)" $'first\nsecond\nperson'
	has "$(cat src/main.c)" '^f$'
	# What all of them changed: the person's stays, the others' are beside it.
	has "$(cat README.md)" TWO-BY-PERSON
	fails grep -q BY-FIRST README.md
	has "$(cat "README.md.berth-${first: -8}")" ONE-BY-FIRST
	has "$(cat "README.md.berth-${second: -8}")" ONE-BY-SECOND
	# A deletion yields to a change.
	same "$(cat old.txt)" 'changed by a person'
	same "$(run_field "$first" .workspace.counts.conflicts)" 1
	berth diff --stat "$second" >stat
	has "$(cat stat)" 'conflict +README.md'
	has "$(cat stat)" 'kept_host +old.txt'
	same "$(run_field "$second" .status)" succeeded
}

@test "kept instead of merged: looked at, tried, merged later, once" {
	run=$(berth run --no-collect --json -- sh -c 'echo two-and-a-half >>README.md; rm old.txt' 2>/dev/null | tail -1 | jq -r .id)
	before=$(tree .)
	same "$(run_field "$run" .workspace.phase)" fetched
	berth diff "$run" >diff
	has "$(cat diff)" '^\+two-and-a-half$'
	has "$(cat diff)" '^-old$'
	rm diff
	berth collect --dry-run "$run" >dry
	has "$(cat dry)" 'README.md'
	rm dry
	same "$(tree .)" "$before"
	berth collect -q "$run"
	same "$(tail -1 README.md)" two-and-a-half
	[ ! -e old.txt ]
	berth collect -q "$run"
	same "$(run_field "$run" .workspace.phase)" applied
	berth drop "$run"
	exits 1 berth diff "$run" 2>err
	has "$(cat err)" 'nothing of this run'
	same "$(tail -1 README.md)" two-and-a-half
}

@test "a dry run says what would go along and runs nothing" {
	has "$(berth run --dry-run -- touch ran)" "would bring 3 files, .* of $PWD \(mode "
	same "$(berth run --dry-run --json -- touch ran | jq .files)" 3
	has "$(berth run --dry-run --no-workspace -- touch ran)" 'no files would be brought'
	[ ! -e ran ]
	same "$(berth runs --json | jq '.items | length')" 0
}

@test "work comes home from commands that fail, time out or are cancelled" {
	exits 3 berth run -q -- sh -c 'echo failed >>README.md; exit 3'
	exits 124 berth run -q --timeout 1s -- sh -c 'echo timed-out >>README.md; sleep 60'
	same "$(tail -2 README.md)" $'failed\ntimed-out'
	waiting_run -- 'true'
	berth exec -q "$(run_field "$run" .leaseId)" -- sh -c 'echo cancelled >>/workspace/README.md'
	berth cancel -q "$run"
	wait_for 20 ended "$run"
	same "$(run_field "$run" .status)" cancelled
	same "$(tail -1 README.md)" cancelled
}

@test "the whole file system and a home directory do not go along by accident" {
	cd "$HOME"
	exits 125 berth run -- true 2>err </dev/null
	has "$(cat err)" 'your home directory.*--allow-large'
	echo mine >mine
	same "$(berth run -q --allow-large -- cat mine)" mine
	same "$(berth run -q --no-workspace -- ls)" ""
	cd /
	exits 125 berth run -- true 2>"$T/err" </dev/null
	has "$(cat "$T/err")" 'the whole file system'
}

@test "a workspace that cannot be written keeps its results, and says why" {
	need_root "mounts"
	mkdir "$T/small"
	mount -t tmpfs -o size=1m tmpfs "$T/small"
	echo here >"$T/small/file"
	mount -o remount,ro "$T/small"
	cd "$T/small"
	berth run -- sh -c 'echo there >file' 2>"$T/err"
	run=$(berth runs --json | jq -r '.items[0].id')
	has "$(cat "$T/err")" "berth collect $run"
	same "$(run_field "$run" .status)" succeeded
	run_field "$run" .workspace.error.message
	mount -o remount,rw "$T/small"
	berth collect -q "$run"
	same "$(cat file)" there
	same "$(run_field "$run" '.workspace.error == null')" true
}

@test "a server killed while a command runs: the next one brings its work home" {
	serve
	waiting_run -- 'echo survived >>README.md'
	end "$server" KILL
	serve
	let_go "$run"
	wait_for 20 ended "$run"
	same "$(run_field "$run" .status)" succeeded
	same "$(tail -1 README.md)" survived
}

# Wherever it dies on the way home: the run is not over before its work is.
@test "a server killed while it collects: the next one finishes, and nothing is done twice" {
	# Every other point: tests/fault/kill_loop.py.
	for point in workspace.fetch.looked workspace.apply.swap workspace.apply.done db.run.end.before; do
		printf 'one\ntwo\n' >README.md
		rm -f added
		BERTH_FAULT=$point:kill serve
		run=$(berth run --detach -- sh -c 'echo once >>README.md; echo add >added')
		wait_for 20 died_or_ended
		alive "$server" || serve
		wait_for 30 ended "$run"
		end "$server" KILL
		same "$(cat README.md)" $'one\ntwo\nonce' || { echo "killed at $point" >&2; return 1; }
		same "$(cat added)" add
		same "$(ls)" $'README.md\nadded\nold.txt\nsrc'
	done
}
died_or_ended() { gone "$server" || ended "$run"; }

@test "changed on one side only, deleted on the other: nobody's change is lost" {
	waiting_run --mode copy -- 'rm src/main.c; echo changed >>old.txt'
	echo 'by a person' >>src/main.c
	rm old.txt
	let_go "$run"
	wait_for 20 ended "$run"
	has "$(cat src/main.c)" 'by a person'
	same "$(cat "old.txt.berth-${run: -8}")" $'old\nchanged'
}

@test "what may come home of one run has a bound that can be set" {
	serve --max-collect-mb 1
	berth run -- sh -c 'head -c 2000000 /dev/zero >large; echo small >small' 2>err
	has "$(cat err)" '1 added, 1 refused'
	has "$(cat err)" 'large: it is larger than what may be collected'
	same "$(cat small)" small
	[ ! -e large ]
}

@test "a copy goes where there is no layer, also into a place that is used again" {
	serve --allow-fake
	berth env add box --provider fake --image x --reuse >/dev/null
	berth run -q --env box -- sh -c 'echo 1 >>README.md'
	echo 'between the runs' >note
	same "$(berth run -q --env box -- sh -c 'cat note; rm note; tail -1 README.md')" $'between the runs\n1'
	[ ! -e note ]
	same "$(run_field "$(berth runs --json | jq -r '.items[0].id')" .workspace.mode)" copy
}

# The place is kept for it, whatever the sweep and a restart think.
@test "work that cannot be fetched stays in its place until somebody collects it" {
	BERTH_FAULT=workspace.fetch.before@1:error serve --sweep-every 100ms
	exits 3 berth run -- sh -c 'echo late >>README.md; exit 3' 2>err
	run=$(berth runs --json | jq -r '.items[0].id')
	has "$(cat err)" "could not be fetched.*berth collect $run"
	lease=$(run_field "$run" .leaseId)
	same "$(run_field "$run" .status)" failed
	run_field "$run" .workspace.placeKeptUntil
	same "$(berth lease show "$lease" --json | jq -r .status)" active
	end "$server" KILL
	# What was in the way is not any more: the next server does it by itself.
	serve --sweep-every 100ms
	wait_for 20 home "$run"
	same "$(tail -1 README.md)" late
	wait_for 20 released "$lease"
	same "$(berth audit)" "nothing unexplained"
}
home() { same "$(run_field "$1" .workspace.phase)" applied; }
released() { [ "$(berth lease show "$1" --json | jq -r .status)" != active ]; }

@test "a relay that is killed does not take the work under a layer with it" {
	serve
	waiting_run -- true
	same "$(run_field "$run" .workspace.mode)" overlay
	berth exec -q "$(run_field "$run" .leaseId)" -- sh -c 'echo saved >>/workspace/README.md'
	relays | while read -r pid _; do kill -KILL "$pid"; done
	wait_for 20 ended "$run"
	same "$(run_field "$run" .errorCode)" lease_lost
	same "$(tail -1 README.md)" saved
}

@test "server and relay killed: what the first try did is home before the second begins" {
	serve
	run=$(berth run --detach -- sh -c 'echo try >>README.md; touch /tmp/there; wc -l <README.md; sleep 600')
	wait_for 20 has_begun "$run"
	end "$server" KILL
	relays | while read -r pid _; do kill -KILL "$pid"; done
	serve
	wait_for 20 ended "$run"
	same "$(run_field "$run" .errorCode)" process_lost
	retry=$(berth runs --json | jq -er --arg id "$run" '.items[] | select(.retryOfRunId == $id).id')
	wait_for 20 has_begun "$retry"
	same "$(berth logs "$retry")" 5
	berth cancel -q "$retry"
	wait_for 20 ended "$retry"
	same "$(grep -c try README.md)" 2
}
