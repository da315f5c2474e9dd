# What a run must not decide: what later runs see of its workspace, and what runs on this host by
# itself once the work is home.
load lib.bash

more_setup() {
	echo one >README.md
	printf '.env\n*.log\nprivate/\n' >.gitignore
	echo KEY=1 >.env
	mkdir -p private sub
	echo hush >private/note
	echo hush >sub/own.log
	echo two >sub/file
}

repository() { git init -qb main . && git add -A && git -c user.name=a -c user.email=a@b commit -qm base; }
# beside NAME: where the last run's version of it is
beside() { ls -d -- "$1".berth-* | tail -1; }
last_run() { berth runs --limit 1 --json | jq -er '(.items? // .)[0].id'; }
sees_nothing() { # MODE
	same "$(berth run -q --mode "$1" -- sh -c 'cat .env private/note sub/own.log 2>/dev/null; true')" ""
}

@test "a run that takes back what rules hide shows nothing to the next one" {
	for mode in overlay copy; do
		berth run --mode $mode -- sh -c 'printf "!.env\n!private/\n" >.berthignore; echo three >README.md' 2>err
		has "$(cat err)" '1 changed, 1 held back:$'
		has "$(cat err)" '\.berthignore kept beside as \.berthignore\.berth-[0-9a-f]+: it would show later runs'
		[ ! -e .berthignore ]
		same "$(cat "$(beside .berthignore)")" $'!.env\n!private/'
		same "$(cat README.md)" three
		same "$(run_field "$(last_run)" '.workspace.held[0].path')" .berthignore
		same "$(run_field "$(last_run)" .workspace.counts.held)" 1
		sees_nothing $mode
		rm -f .berthignore.berth-* err
		echo one >README.md
	done
}

@test "changing, emptying, removing or replacing a rule file shows nothing to the next run either" {
	cp .gitignore "$T/rules"
	for change in 'sed -i /env/d .gitignore' 'echo "!.env" >>.gitignore' ': >.gitignore' 'rm .gitignore' \
		'rm .gitignore; ln -s README.md .gitignore' 'rm .gitignore; mkdir .gitignore; touch .gitignore/x' \
		'printf "!own.log\n" >sub/.gitignore' 'mv .gitignore sub/rules'; do
		for mode in overlay copy; do
			berth run --mode $mode -- sh -c "$change" 2>err
			has "$(cat err)" 'held back'
			cmp .gitignore "$T/rules"
			[ ! -L .gitignore ] && [ ! -e sub/.gitignore ]
			sees_nothing $mode
			rm -rf .gitignore.berth-* sub/.gitignore.berth-* sub/rules err
		done
	done
}

@test "a rule that hides more is merged as any other file" {
	berth run -- sh -c 'echo "*.tmp" >>.gitignore; printf "# notes\n*.x\n" >sub/.berthignore' 2>err
	has "$(cat err)" '^berth: 1 changed, 1 added$'
	has "$(cat .gitignore)" '^\*\.tmp$'
	[ -s sub/.berthignore ]
}

RUNNING='.claude/settings.json .mcp.json .vscode/tasks.json .husky/pre-commit .github/workflows/x.yml .gitmodules .bashrc sub/.profile'
make_running() { echo "for f in $RUNNING; do mkdir -p \$(dirname \$f); echo evil >\$f; done; echo plain >Makefile"; }

@test "what runs by itself is listed apart, and with --collect careful it stays beside its name" {
	for mode in overlay copy; do
		berth run --mode $mode --collect careful -- sh -c "$(make_running)" 2>err
		has "$(cat err)" '1 added, 8 held back:$'
		has "$(cat err)" 'kept beside as .*: .* runs it by itself'
		for f in $RUNNING; do
			[ ! -e $f ]
			same "$(cat "$(beside $f)")" evil
		done
		same "$(cat Makefile)" plain
		same "$(run_field "$(last_run)" '[.workspace.held[].path] | sort | join(" ")')" \
			"$(tr ' ' '\n' <<<"$RUNNING" | LC_ALL=C sort | paste -sd' ')"
		same "$(run_field "$(last_run)" .workspace.counts.runsByItself)" 8
		rm -rf .claude .mcp.json* .vscode .husky .github .gitmodules* .bashrc* sub/.profile* Makefile err
	done
	# A person's own run is merged, and says what to read.
	berth run -- sh -c "$(make_running)" 2>err
	has "$(cat err)" '^berth: 9 added$'
	has "$(cat err)" '^berth: programs run these by themselves, read them first:$'
	has "$(cat err)" "^berth:   \.claude/settings\.json: run by an agent's tool$"
	same "$(cat .claude/settings.json)" evil
	same "$(run_field "$(last_run)" '.workspace.runsByItself | length')" 8
}

@test "a link that stands for a directory that runs by itself is held too" {
	berth run -q --collect careful -- sh -c 'mkdir plain; echo evil >plain/tasks.json; ln -s plain .vscode; ln -s plain .GitHub' 2>err
	has "$(cat err)" '2 held back:$'
	[ -s plain/tasks.json ] && [ ! -e .vscode ] && [ ! -e .GitHub ]
}

@test "config and hooks of a repository without a work tree do not come home by themselves" {
	berth run -q --collect careful -- sh -c 'git init -q --bare hull.git; git -C hull.git config core.fsmonitor "touch /tmp/ran"; echo evil >hull.git/hooks/post-checkout
		mkdir other; echo ref: refs/heads/main >other/HEAD; echo ../hull.git >other/commondir' 2>err
	[ ! -e hull.git/config ] && [ ! -e hull.git/HEAD ] && [ ! -e hull.git/hooks/post-checkout ] && [ ! -e other/commondir ]
	has "$(cat "$(beside hull.git/config)")" fsmonitor
	[ -d hull.git/objects ]
	# In two steps: the first brings what is no repository yet.
	berth run -q --collect careful -- sh -c 'mkdir slow; echo ref: refs/heads/main >slow/HEAD; echo "[core]" >slow/config'
	[ -s slow/config ]
	berth run -q --collect careful -- sh -c 'mkdir slow/objects slow/refs' 2>err
	fails git -C slow rev-parse --git-dir
	has "$(cat err)" 'slow/objects kept beside'
	berth run -- sh -c 'git init -q --bare free.git' 2>err
	has "$(cat err)" 'free.git/config: run by git'
}

@test "the run of an agent is collected with care unless a person says otherwise" {
	berth run -q -- true
	berth agent add ada >/dev/null
	berth run -q --env Sandbox --agent ada --workspace . -- sh -c 'echo evil >.mcp.json' 2>err
	[ ! -e .mcp.json ]
	has "$(cat err)" '1 held back:$'
	same "$(run_field "$(last_run)" .workspace.collect)" careful
	berth run -q --env Sandbox --agent ada --workspace . --collect auto -- sh -c 'echo evil >.mcp.json'
	same "$(cat .mcp.json)" evil
	# Kept for later, it is collected with the same care.
	berth run -q --env Sandbox --agent ada --workspace . --collect manual -- sh -c 'echo evil >.bashrc'
	berth collect -q "$(last_run)"
	[ ! -e .bashrc ] && [ -s "$(beside .bashrc)" ]
	exits 125 berth run --collect auto --no-collect -- true 2>err
	has "$(cat err)" 'not both'
	exits 125 berth run --collect later -- true 2>err
	has "$(cat err)" 'collect'
}

@test "names that hold secrets are hidden without any rule, and a rule does not take them back" {
	printf '!.env*\n!*.pem\n!id_rsa\n' >.gitignore
	cp .gitignore .berthignore
	mkdir -p a/.aws a/.docker tls
	for f in .env a/.env.local tls/server.pem tls/x.key id_rsa .npmrc .netrc .pypirc a/.aws/credentials a/.docker/config.json; do echo "secret $f" >$f; done
	for mode in overlay copy; do
		same "$(berth run -q --mode $mode -- sh -c 'cat README.md; find . -type f ! -path "./.git*" | xargs grep -l secret; true')" one
		# One that the place makes stays there, and is told; the host's is as it was.
		berth run --mode $mode -- sh -c 'echo mine >.env; echo mine >new.key; mkdir -p .aws; echo mine >.aws/x; echo mine >plain' 2>err
		has "$(cat err)" '1 added, 3 refused:$'
		has "$(cat err)" 'new.key: stays in the place: its name is one that is hidden'
		has "$(cat err)" '^berth: 10 paths were hidden from the command by their names'
		same "$(cat .env plain)" $'secret .env\nmine'
		[ ! -e new.key ] && [ ! -e .aws ]
		# A file and a directory, by path, and nothing else.
		same "$(berth run -q --mode $mode --show .env --show a/.aws -- sh -c 'cat .env a/.aws/credentials; cat id_rsa 2>/dev/null; true')" \
			$'secret .env\nsecret a/.aws/credentials'
		rm plain err
	done
	# What is shown is part of the work.
	berth run -q --show .env -- sh -c 'echo changed >.env; rm -f tls/server.pem'
	same "$(cat .env)" changed
	[ -s tls/server.pem ]
	exits 125 berth run --show ../x -- true 2>err
	has "$(cat err)" 'not in the workspace'
}

@test "--show shows what rules hide too" {
	for mode in overlay copy; do
		same "$(berth run -q --mode $mode --show .env --show private/note -- sh -c 'cat .env private/note; ls -A sub')" $'KEY=1\nhush\nfile'
	done
	cd sub
	same "$(berth run -q --workspace .. --show own.log -- cat own.log)" hush
}

@test "a file that git tracks is not hidden by its name" {
	mkdir tls
	echo sample >.env.example
	echo cert >tls/test.pem
	echo key >.npmrc
	repository
	echo other >.env.local
	for mode in overlay copy worktree; do
		same "$(berth run -q --mode $mode -- sh -c 'cat .env.example tls/test.pem .npmrc; cat .env .env.local 2>/dev/null; true')" $'sample\ncert\nkey'
	done
	berth run -q -- sh -c 'echo more >>.env.example'
	same "$(cat .env.example)" $'sample\nmore'
}

@test "--dry-run lists what is hidden, with the rule file or the name" {
	echo x >id_rsa
	printf '*.tmp\n' >sub/.berthignore
	touch sub/a.tmp
	berth run --dry-run -- true >out
	has "$(cat out)" '^hidden from the command'
	has "$(cat out)" '^  private/ +by .gitignore$'
	has "$(cat out)" '^  id_rsa +by its name: id_rsa$'
	has "$(cat out)" '^  sub/a.tmp +by sub/.berthignore$'
	berth run --dry-run --show id_rsa --json -- true >out
	same "$(jq -r '[.hidden[] | .path + " " + .reason] | join("\n")' out)" \
		$'.env .gitignore\nprivate/ .gitignore\nsub/a.tmp sub/.berthignore\nsub/own.log .gitignore'
	same "$(jq .hiddenCount out)" 4
	# In the directory itself nothing is hidden.
	same "$(berth run --dry-run --mode in_place --json -- true | jq .hiddenCount)" 0
}

@test "a commit that shows more is kept on its ref, and neither branch nor rules follow it" {
	repository
	for mode in overlay copy; do
		berth run --mode $mode -- sh -c 'printf "!.env\n" >>.gitignore; echo three >README.md; git commit -qam wide' 2>err
		has "$(cat err)" 'held back'
		has "$(cat err)" '1 commit kept as refs/berth/.*: the branch stays where it is: "\.gitignore" would show later runs'
		same "$(git log --format=%s)" base
		same "$(cat README.md)" three
		sees_nothing $mode
		rm -f .gitignore.berth-* err
		git checkout -q README.md
	done
}

@test "a file that is hidden does not become tracked by a run, so that the next one would see it" {
	repository
	echo KEY=2 >.npmrc
	for mode in overlay copy; do
		berth run --mode $mode -- sh -c 'echo x >blob; id=$(git hash-object -w blob); rm blob
			for f in .env .npmrc private/note; do git update-index --add --cacheinfo 100644,$id,$f; done; git commit -qm track' 2>err
		has "$(cat err)" 'is hidden from runs and would be tracked'
		same "$(git ls-files .env .npmrc private)" ""
		berth run --mode $mode -- sh -c 'echo x >blob; id=$(git hash-object -w blob); rm blob; git update-index --add --cacheinfo 100644,$id,.npmrc' 2>err
		has "$(cat err)" 'the index stays as it is'
		same "$(git ls-files .npmrc)" ""
		sees_nothing $mode
		fails berth run -q --mode $mode -- cat .npmrc 2>/dev/null
	done
}

@test "with care a commit that runs by itself is kept on its ref" {
	repository
	berth run --collect careful -- sh -c 'mkdir .husky; echo evil >.husky/pre-commit; echo four >README.md; git add -A; git commit -qm hook' 2>"$T/err"
	has "$(cat "$T/err")" 'the branch stays where it is: "\.husky/pre-commit" is run by git, as a hook'
	same "$(git log --format=%s)" base
	same "$(cat README.md)" four
	[ ! -e .husky/pre-commit ]
	# As the reason says.
	git reset -q "refs/berth/$(last_run)"
	same "$(git log --format=%s)" $'hook\nbase'
	same "$(git status --porcelain | grep -v '??')" ' D .husky/pre-commit'
	berth run -- sh -c 'echo five >README.md; git commit -qam five' 2>"$T/err"
	has "$(cat "$T/err")" '1 commit on branch main'
}

@test "a copy has only what the owner of the directory may read, and names the rest" {
	need_root "files of several users"
	chmod 711 "$T"
	mkdir -p "$T/theirs/closed" "$T/theirs/sub"
	cd "$T/theirs"
	echo open >open
	echo roots >roots && chmod 600 roots
	echo groups >sub/groups && chmod 640 sub/groups
	echo other >other && chown 1000:1000 other && chmod 600 other
	echo deep >closed/deep && chmod 700 closed
	echo own >own && chown 1001:1001 own . sub && chmod 600 own
	for mode in copy overlay; do
		same "$(berth run -q --mode $mode -- sh -c 'cat open own; cat roots sub/groups other closed/deep 2>/dev/null; true')" $'open\nown'
	done
	berth run -q --mode copy -- sh -c 'echo new >own; rm -rf open'
	same "$(run_field "$(last_run)" '[.workspace.staged.skipped[].path] | sort | join(" ")')" 'closed other roots sub/groups'
	same "$(cat own roots sub/groups other closed/deep)" $'new\nroots\ngroups\nother\ndeep'
	[ ! -e open ]
	same "$(stat -c %u own)" 1001
}

@test "staging into a lease hides the same, and shows what is named" {
	serve
	berth run -q -- true
	read -r lease _ < <(berth lease acquire -q Sandbox)
	stage() { call POST "/api/environment-leases/$lease/stage" "$(jq -n --arg p "$PWD" --argjson s "$1" '{path: $p, discard: true, show: $s}')"; }
	stage '[]'
	answered 200
	fails berth exec -q "$lease" -- cat /workspace/.env 2>/dev/null
	stage '[".env"]'
	answered 200
	same "$(berth exec -q "$lease" -- cat /workspace/.env)" KEY=1
	stage '["../x"]'
	answered 400 validation_error
}
