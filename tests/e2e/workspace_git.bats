# Repositories go along and commits come home: what git says in the place, it says on the host.
load lib.bash

more_setup() {
	export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
	export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=a@b.c
	git init -q -b main .
	git config user.name Ada
	git config user.email a@b.c
	echo 1 >a
	echo 2 >b
	echo 3 >c
	git add .
	git commit -qm one
}

looks() { git status --porcelain=v2 && git diff && git diff --cached && git log --format='%H %s'; }
LOOKS='git status --porcelain=v2; git diff; git diff --cached; git log --format="%H %s"'
sound() { same "$(git fsck --strict --no-dangling 2>&1 | grep -v -e ^notice: -e ^Checking)" ""; }

works() { # FLAGS...
	echo dirty >>a
	git rm -q b
	echo staged >s
	git add s
	echo unstaged >>s
	same "$(berth run -q "$@" -- sh -c "$LOOKS")" "$(looks)"
	berth run -q "$@" -- sh -c "git commit -qm two; git mv c d; git commit -qm three; echo x >>d
		git add d; echo y >>d; echo u >u; $LOOKS" >"$T/there"
	same "$(looks)" "$(cat "$T/there")"
	same "$(git log --format=%s)" $'three\ntwo\none'
	sound
}

@test "commits, index and edits come home through a layer" {
	works
}

@test "commits, index and edits come home from a copy" {
	works --mode copy
}

@test "a branch that moved meanwhile stays, and the run's commit is kept beside it" {
	run=$(berth run --detach --mode copy -- sh -c \
		'echo p >>a; git commit -qam place; touch /tmp/there; until [ -e /tmp/go ]; do sleep 0.05; done')
	there() { berth exec -q "$(run_field "$run" .leaseId)" -- test -e /tmp/there; }
	wait_for 20 there
	echo h >>c
	git commit -qam host
	berth exec -q "$(run_field "$run" .leaseId)" -- touch /tmp/go
	ended() { [ -n "$(run_field "$run" '.finishedAt // empty')" ]; }
	wait_for 20 ended
	kept() { git rev-parse -q --verify "refs/berth/$run"; }
	wait_for 20 kept
	same "$(git log -1 --format=%s)" host
	same "$(git log -1 --format=%s "refs/berth/$run")" place
	same "$(cat c)" $'3\nh'
	sound
}

@test "a run in a worktree of its own leaves the checkout alone" {
	echo dirty >>a
	before=$(looks)
	berth run --mode worktree -- sh -c 'cat a; git commit -qam work' >"$T/out" 2>"$T/err"
	has "$(cat "$T/err")" "^berth: work is on branch berth/[0-9a-f-]{36}, checked out in $PWD/.git/berth/worktree-"
	same "$(cat "$T/out")" $'1\ndirty'
	same "$(looks)" "$before"
	same "$(git for-each-ref --format='%(refname)' refs/heads/berth | wc -l)" 1
	same "$(git log --format=%s "$(git for-each-ref --format='%(refname)' refs/heads/berth)")" $'work\none'
	sound
}

@test "a tracked file that rules leave out is part of the tree, in a layer too" {
	echo '*.log' >.gitignore
	echo 1 >forced.log
	echo 1 >other.log
	git add -f .gitignore forced.log
	git commit -qm two
	for mode in overlay copy; do
		berth run -q --mode "$mode" -- sh -c "echo $mode >>forced.log; [ ! -e other.log ] && git commit -qam $mode"
		same "$(tail -1 forced.log)" "$mode"
		same "$(git status --porcelain)" ""
	done
	berth run -q --mode overlay -- rm forced.log
	[ ! -e forced.log ]
	sound
}

@test "where commits went is said" {
	berth run --mode copy -- sh -c 'echo 2 >>a; git commit -qam two; git branch side; git checkout -q side; git commit -q --allow-empty -m three' 2>"$T/err"
	run=$(berth runs --json | jq -r '.items[0].id')
	has "$(cat "$T/err")" "^berth: 2 commits kept as refs/berth/$run: "
	berth run -- sh -c 'echo 3 >>a; git commit -qam three' 2>"$T/err"
	has "$(cat "$T/err")" '^berth: 1 commit on branch main$'
}

@test "of a repository inside, secrets stay out, its files come home, and its commits are said not to" {
	git init -q lib
	git -C lib config remote.origin.url https://token@host/x
	echo l >lib/l
	git -C lib add l
	git -C lib commit -qm l
	for mode in overlay copy; do
		berth run -q --mode "$mode" -- sh -c 'cat lib/.git/config lib/.git/hooks/* 2>/dev/null; git -C lib log --format=%s; echo more >>lib/l' >"$T/out" 2>"$T/err"
		same "$(cat "$T/out")" l
		same "$(cat "$T/err")" ""
		berth run -q --mode "$mode" -- git -C lib -c user.name=a -c user.email=b commit -qam inner 2>"$T/err"
		has "$(cat "$T/err")" '^berth: 1 refused:$'
		has "$(cat "$T/err")" 'lib/.git: nothing under a .git directory is taken'
		same "$(git -C lib log --format=%s)" l
		git -C lib fsck --strict
	done
	same "$(cat lib/l)" $'l\nmore\nmore'
}

@test "a repository that is made in the place stays there, and that is said" {
	mkdir "$T/plain"
	cd "$T/plain"
	for mode in overlay copy; do
		berth run --mode "$mode" -- sh -c "git init -q .; echo $mode >$mode; git add ." 2>"$T/err"
		has "$(cat "$T/err")" '.git: the repository that was made in the place stays there'
		same "$(cat $mode)" "$mode"
		[ ! -e .git ]
	done
	berth run --mode copy -- true 2>"$T/err"
	fails grep refused "$T/err"
}

@test "a repository that the command locks keeps no file from coming home" {
	for mode in overlay copy; do
		berth run --mode "$mode" -- sh -c "echo $mode >>a; chmod 0 .git" 2>"$T/err"
		same "$(tail -1 a)" "$mode"
		git status --porcelain | grep -q '^ M a$'
		sound
	done
}

@test "what a place writes into .git to have it run is not there afterwards" {
	cp .git/config "$T/config"
	berth run -q --mode copy -- sh -c 'mkdir -p .git/hooks
		printf "#!/bin/sh\ntouch '"$T"'/ran\n" >.git/hooks/post-index-change; chmod +x .git/hooks/post-index-change
		cp .git/hooks/post-index-change /workspace/evil; git config core.fsmonitor "'"$PWD"'/evil"
		echo /etc >.git/objects/info/alternates; echo 2 >>a; git -c core.fsmonitor=false commit -qam two'
	cmp .git/config "$T/config"
	[ ! -e .git/hooks/post-index-change ]
	[ ! -e .git/objects/info/alternates ]
	git status >/dev/null
	[ ! -e "$T/ran" ]
	sound
}

@test "submodules that are checked out are refused with what to do" {
	git init -q "$T/sub"
	git -C "$T/sub" commit -q --allow-empty -m s
	git -c protocol.file.allow=always submodule --quiet add "$T/sub" inner
	git commit -qm with
	fails berth run --mode copy -- true 2>err
	has "$(cat err)" 'git submodule deinit inner'
	git submodule -q deinit -f inner
	berth run -q --mode copy -- git fsck
}

@test "acceptance 5: this project's own checkout goes along and comes home" {
	source=$(realpath "$BATS_TEST_DIRNAME/../..")
	git -C "$source" rev-parse HEAD >/dev/null 2>&1 || skip "not in a repository"
	git clone -q "$source" "$T/clone"
	cd "$T/clone"
	git config user.name Ada
	git config user.email a@b.c
	git worktree add -q -b linked "$T/linked"
	cd "$T/linked"
	printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >film.bin
	echo '*.bin filter=lfs' >.gitattributes
	git add .
	berth run -q --mode copy -- sh -c "git commit -qm film; git mv README.md READ.md; git commit -qam moved
		echo x >>check; git rm -q --cached LICENSE; $LOOKS" >"$T/there"
	same "$(looks)" "$(cat "$T/there")"
	same "$(git log -2 --format=%s)" $'moved\nfilm'
	sound
}
