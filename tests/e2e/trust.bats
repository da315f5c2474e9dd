load lib
export BATS_TEST_TIMEOUT=240 # every variant is two runs

# The way out of a sandbox that needs no hole in its walls: what is stored. Each variant is tried from
# inside a place, with the token of its run, and then the operator starts the next run.

# The server's own default is this host, so that whatever loses its choice would end there.
more_setup() {
	need_root "places with the host's network"
	serve --listen 127.0.0.1:0 --default-environment Local
	cid=$(company)
	local=$(environment Local)
	# Local trust opens the network: without it the token reaches nothing.
	open=$(berth env add open --provider native --config '{"network": "host"}')
	bot=$(make agents '{name: "bot", defaultEnvironmentId: $open, adapterConfig: {command: "sh"}}')
	lead=$(make agents '{name: "lead", defaultEnvironmentId: $open, permissions: {canCreateAgents: true}}')
	hostly=$(make agents '{name: "hostly", defaultEnvironmentId: $local}')
	project=$(make projects '{name: "boxed", executionWorkspacePolicy: {enabled: true, environmentId: $open}}')
	elsewhere=$(make projects '{name: "hostly", executionWorkspacePolicy: {enabled: true, environmentId: $local}}')
	space=$(make execution-workspaces '{name: "w", projectId: $elsewhere, config: {environmentId: $open}}')
	local_space=$(make execution-workspaces '{name: "l", projectId: $elsewhere, config: {environmentId: $local}}')
	issue=$(make issues '{title: "by project", projectId: $project}')
	chosen=$(make issues '{title: "by itself", projectId: $elsewhere, executionWorkspaceSettings: {environmentId: $open}}')
	assigned=$(make issues '{title: "by assignee", assigneeAgentId: $bot}')
	linked=$(make issues '{title: "by workspace", projectId: $elsewhere, executionWorkspaceId: $space,
		executionWorkspacePreference: "reuse_existing"}')
}

# with JQ: an object in which $names are ids of this test
with() {
	jq -nc --arg local "$local" --arg open "${open:-}" --arg bot "${bot:-}" --arg project "${project:-}" \
		--arg elsewhere "${elsewhere:-}" --arg space "${space:-}" --arg hostly "${hostly:-}" \
		--arg local_space "${local_space:-}" --arg issue "${issue:-}" --arg dir "$T" "$1"
}
make() { # COLLECTION JQ: by the operator; prints the id
	call POST "/api/companies/$cid/$1" "$(with "$2")"
	answered 201 && jq -r .id <<<"$body"
}
# run_as AGENT JQ COMMAND...: a run that the operator starts, to its end; $out is what it printed
run_as() {
	local agent=$1 more=$2 id
	shift 2
	call POST "/api/companies/$cid/runs" "$(with "$more" | jq -c --arg a "$agent" '. + {agentId: $a, command: $ARGS.positional}' --args -- "$@")"
	answered 201
	id=$(jq -r .id <<<"$body")
	wait_for 30 run_field "$id" '.finishedAt != null'
	out=$(berth logs "$id" 2>&1)
	status=$(run_field "$id" .status)
	errors=$(from_api "runs/$id" | jq -r '.error // ""')
}
# inside AGENT JQ METHOD PATH JQ: the request from inside a place of that agent; $out is its status
inside() {
	run_as "$1" "$2" sh -c 'test "$(id -u)" != 0 || exit 9
		curl -s --max-time 20 -o /dev/null -w "%{http_code}" -X "$1" -H "Authorization: Bearer $BERTH_API_KEY" \
			-H "Content-Type: application/json" --data-binary "$3" "$BERTH_API_URL$2"' \
		sh "$3" "$4" "$(with "$5")"
	same "$status" succeeded
}
# still_boxed AGENT JQ: the next run is in its place, where there is no file of this host
still_boxed() {
	run_as "$1" "$2" sh -c 'id -u; test -e "$1" || echo "nothing of the host"' sh "$T/on-the-host"
	same "$status: $out" $'succeeded: 1000\nnothing of the host'
}
attack() { # AGENT JQ-OF-RUNS METHOD PATH JQ
	inside "$@"
	same "$3 $4 $5: $out" "$3 $4 $5: 403"
	still_boxed "$1" "$2"
}

# every AGENT: each variant as that agent. None may succeed.
every() {
	local a=$1 of_issue='{issueId: $issue}'
	touch "$T/on-the-host"
	chmod 755 "$T"
	attack "$a" "$of_issue" PATCH "/api/issues/$issue" '{executionWorkspaceSettings: {environmentId: null}}'
	attack "$a" "$of_issue" PATCH "/api/issues/$issue" '{executionWorkspaceSettings: {environmentId: $local}}'
	attack "$a" "$of_issue" PATCH "/api/projects/$project" '{executionWorkspacePolicy: {enabled: true, environmentId: null}}'
	attack "$a" "$of_issue" PATCH "/api/projects/$project" '{executionWorkspacePolicy: {enabled: true, environmentId: $local}}'
	attack "$a" "$of_issue" PATCH "/api/projects/$project" '{executionWorkspacePolicy: {enabled: true}}'
	attack "$a" "{issueId: \"$chosen\"}" PATCH "/api/issues/$chosen" '{executionWorkspaceSettings: null}'
	attack "$a" "{issueId: \"$linked\"}" PATCH "/api/execution-workspaces/$space" '{config: {environmentId: null}}'
	attack "$a" "{issueId: \"$linked\"}" PATCH "/api/execution-workspaces/$space" '{config: {environmentId: $local}}'
	attack "$a" "{issueId: \"$linked\"}" POST "/api/execution-workspaces/$space/close" '{}'
	attack "$a" '{}' PATCH "/api/agents/$a" '{defaultEnvironmentId: null}'
	attack "$a" '{}' PATCH "/api/agents/$a" '{defaultEnvironmentId: $local}'
	attack "$a" '{}' PATCH "/api/agents/$a" '{adapterConfig: {command: "touch", args: ["\($dir)/marker"]}}'
	attack "$a" "$of_issue" PATCH "/api/projects/$project" '{env: {BASH_ENV: "\($dir)/marker"}}'
	attack "$a" "$of_issue" PATCH "/api/projects/$project" '{env: {GIT_CONFIG_COUNT: "1", GIT_CONFIG_KEY_0: "core.fsmonitor",
		GIT_CONFIG_VALUE_0: "touch \($dir)/marker"}}'
	attack "$a" "{issueId: \"$assigned\"}" PATCH "/api/issues/$assigned" '{assigneeAgentId: $hostly}'
	attack "$a" "$of_issue" PATCH "/api/issues/$issue" '{projectId: $elsewhere}'
	attack "$a" "$of_issue" PATCH "/api/issues/$issue" \
		'{executionWorkspaceId: $local_space, executionWorkspacePreference: "reuse_existing"}'
	attack "$a" "$of_issue" PATCH "/api/environments/$open" '{driver: "local"}'
	attack "$a" '{}' POST "/api/companies/$cid/runs" \
		"{agentId: \"$a\", environmentId: \$local, command: [\"touch\", \"\\(\$dir)/marker\"]}"
	attack "$a" '{}' POST "/api/companies/$cid/agents" '{name: "n", defaultEnvironmentId: $local}'
	attack "$a" '{}' POST "/api/companies/$cid/environments" '{name: "n", driver: "local"}'
	[ ! -e "$T/marker" ]
}

@test "a process in a sandbox changes nothing that decides where the next run is" {
	every "$bot"
}

@test "one whose agent may create agents and environments does not either" {
	every "$lead"
}

@test "where no native place can be built a run without a choice is refused, with what to do" {
	end "$server"
	BERTH_FAULT=driver.acquire.before:error serve
	call POST "/api/companies/$cid/runs" '{"command": ["true"]}'
	answered 201
	id=$(jq -r .id <<<"$body")
	wait_for 30 run_is "$id" failed
	same "$(run_field "$id" .errorCode)" lease_acquire_failed
	has "$(run_field "$id" .error)" 'berth doctor --sandbox.* Local, named, runs on this host'
	same "$(run_field "$id" '.context.environmentSource // "default"')" default
}

@test "variables that a token stored do not reach this host, nor the server's own git" {
	berth user add ada
	berth member set ada --role admin
	token=$(berth token create --user ada)
	call PATCH "/api/projects/$project" "$(with '{env: {BASH_ENV: "\($dir)/rc", GIT_CONFIG_COUNT: "1",
		GIT_CONFIG_KEY_0: "core.fsmonitor", GIT_CONFIG_VALUE_0: "touch \($dir)/marker", PLAIN: "x"}}')" \
		-H "Authorization: Bearer $token"
	answered 200
	echo "touch $T/marker" >"$T/rc"
	git init -q repo && git -C repo -c user.name=n -c user.email=e commit -q --allow-empty -m first
	# By name on this host, with a tree that the server looks at with git.
	call POST "/api/companies/$cid/runs" "$(with '{projectId: $project, environmentId: $local,
		command: ["bash", "-c", "git -C repo status >&2; env"]}' | jq -c --arg w "$PWD" '. + {cwd: $w}')"
	answered 201
	id=$(jq -r .id <<<"$body")
	wait_for 30 run_is "$id" succeeded
	fails has "$(berth logs "$id")" 'BASH_ENV|GIT_CONFIG|PLAIN'
	same "$(run_field "$id" '.context.variablesLeftOut | .writtenBy + " " + (.names | length | tostring)')" "token 5"
	call POST "/api/companies/$cid/runs" "$(with '{projectId: $project, command: ["env"]}' |
		jq -c --arg p "$PWD/repo" '. + {workspace: {path: $p}}')"
	answered 201
	id=$(jq -r .id <<<"$body")
	wait_for 30 run_is "$id" succeeded
	# In the sandbox they are what they were.
	has "$(berth logs "$id")" '^PLAIN=x'
	[ ! -e "$T/marker" ]
	# Written by the operator they are the operator's.
	call PATCH "/api/projects/$project" '{"env": {"PLAIN": "y"}}'
	answered 200
	run_as "$bot" '{projectId: $project, environmentId: $local}' env
	has "$out" '^PLAIN=y'
}
