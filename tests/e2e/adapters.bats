#!/usr/bin/env bats
# Runs with a prompt, and trying adapters out, from the command line. The tools are scripts of the
# test's own: the real ones belong to the user.

load lib

more_setup() { mkdir "$T/bin"; }

# tool NAME SCRIPT: a program that settings can find; $config are such settings
tool() {
	printf '#!/bin/sh\n%s\n' "$2" >"$T/bin/$1"
	chmod 700 "$T/bin/$1"
	config=$(jq -nc --arg path "$T/bin:/usr/bin:/bin" '{env: {PATH: $path}}')
}

@test "the table of adapters says how each tool is installed" {
	out=$(berth adapter ls)
	has "$out" '^claude_local +Claude Code +claude +true +supported +unsupported +npm install'
	has "$out" '^http +HTTP +- +false +unsupported +unsupported +-'
	same "$(berth adapter ls --json | jq length)" 11
}

@test "a prompt reaches the tool on its standard input, in the current directory" {
	tool claude 'printf "%s|" "$@"; pwd; cat'
	out=$(berth run --env Local --adapter claude_local --adapter-config "$config" --prompt 'mend the roof')
	same "$out" "-p|--output-format|stream-json|--verbose|$(pwd)"$'\n'"mend the roof"
	printf 'from\na file\n' >prompt.txt
	out=$(berth run --env Local --adapter claude_local --adapter-config "$config" --prompt-file prompt.txt)
	has "$out" '^a file$'
	out=$(echo 'from a pipe' | berth run --env Local --adapter process --prompt-file - \
		--adapter-config '{"command": "sh", "args": ["-c", "pwd; cat"], "cwd": "/"}')
	same "$out" $'/\nfrom a pipe'
}

@test "the prompt stands in no argument list and no answer" {
	tool claude 'cat >/dev/null; tr "\0" " " </proc/$PPID/cmdline; tr "\0" " " </proc/$$/cmdline'
	id=$(berth run --env Local -d --adapter claude_local --adapter-config "$config" --prompt 'hush hush')
	wait_for 20 run_is "$id" succeeded
	fails has "$(berth logs "$id")" hush
	fails has "$(run_field "$id" .)" hush
	fails has "$(berth runs --json)" hush
}

@test "an agent's adapter is used for its prompts" {
	id=$(berth agent add ada --adapter process)
	call POST "/api/companies/$(company)/runs" "$(jq -nc --arg id "$id" '{agentId: $id, prompt: "x"}')"
	answered 422 unprocessable
	has "$body" 'adapterConfig.command'
	out=$(berth run --agent ada --adapter-config '{"command": "tr", "args": ["a-z", "A-Z"]}' --prompt shout)
	same "$out" SHOUT
}

@test "a prompt and a command are not mixed" {
	exits 125 berth run --prompt x -- true
	exits 125 berth run --prompt x --prompt-file y
	exits 125 berth run --adapter claude_local -- true
	exits 125 berth run --prompt x
	exits 125 berth run --adapter nobodys --prompt x
	exits 125 berth run
}

@test "a tool is looked for in the place where it would run" {
	serve --allow-fake
	berth env add box --provider fake --image any >/dev/null
	tool codex 'pwd >&2; echo codex-cli 0.9'
	out=$(berth adapter test codex_local --env box --config "$config")
	has "$out" '^info +Command "codex" is there'
	has "$out" 'codex-cli 0.9'
	has "$out" '^codex_local: pass$'
	exits 1 berth adapter test pi_local --env box --config "$config" >"$T/out"
	has "$(cat "$T/out")" 'hint: npm install -g'
	exits 1 berth adapter test http --env box >"$T/out"
	has "$(cat "$T/out")" 'not allowed in "box" environments'
	exits 1 berth adapter test codex_local --env nowhere
	same "$(berth lease ls box --json | jq -c 'map(.status)')" '["failed","released"]'
	same "$(berth audit --json | jq length)" 0
}

@test "a test whose server was killed leaves a lease that has an end" {
	serve --allow-fake
	berth env add box --provider fake --image any >/dev/null
	box=$(environment box)
	tool gemini ": >$T/asked; exec sleep 600"
	in_background "$BERTH" adapter test gemini_local --env box --config "$config"
	wait_for 20 test -e "$T/asked"
	lease=$(berth lease ls box --json | jq -r '.[0].id')
	kill -KILL "$server"
	serve --allow-fake
	# Nobody waits for it any more, but it has an end, and releasing it early is fine.
	call GET "/api/environment-leases/$lease"
	answered 200
	has "$(jq -r .expiresAt <<<"$body")" '^20'
	same "$(jq -r .heartbeatRunId <<<"$body")" null
	call POST "/api/environment-leases/$lease/release" '{}'
	answered 200
	wait_for 20 eval '[ "$(berth audit --json | jq length)" = 0 ]'
	same "$(relays | wc -l)" 0
}
