# What callers with a token may have of this host: lists and switches of the server, in force from
# its next start on, in both directions.
load lib.bash

native_config() { jq -c '{provider: "native", warmPool: {size: 0}} + .' <<<"$1"; }
mount_of() { # DIR [readOnly]
	jq -nc --arg dir "$1" --argjson ro "${2:-true}" '{mounts: [{source: $dir, target: "/mnt/tools", readOnly: $ro}]}'
}
# add NAME JSON: an environment, as the server's own user
add() { berth env add --no-probe "$1" --driver sandbox --config "$(native_config "$2")" >/dev/null; }

restart() { # FLAGS...: the keeper stays
	local before
	before=$(keeper)
	end "$server"
	serve "$@"
	same "$(keeper)" "$before"
}
# people NAME ROLE [COMPANY]: a token of a member in file NAME
people() {
	berth user add "$1" >/dev/null
	berth member set "$1" --role "$2" ${3:+--company "$3"}
	berth token create --user "$1" >"$T/$1"
	chmod 600 "$T/$1"
}
as() { # NAME VERB...: over the same socket, with a token
	local who=$1
	shift
	BERTH_TOKEN_FILE=$T/$who berth "$@"
}
# holding: a lease that keeps the keeper alive
holding() { add Keep '{}' && read -r kept _ < <(berth lease acquire -q Keep); }

more_setup() {
	unset BERTH_TOKEN BERTH_TOKEN_FILE
	mkdir -p "$T/tools/bin" "$T/other"
	chmod 755 "$T" "$T/tools"
	echo tool >"$T/tools/bin/tool"
}

@test "the server's own user mounts what it likes, but never what no place may have" {
	serve
	add Tools "$(mount_of "$T/tools")"
	same "$(berth run -q --no-workspace --env Tools -- cat /mnt/tools/bin/tool)" tool
	for path in / /proc /sys /dev "$BERTH_DATA" "$T"; do
		add "Bad$path" "$(mount_of "$path")"
		exits 125 berth run -q --no-workspace --env "Bad$path" -- true 2>err
		has "$(cat err)" 'whole host|no place can have|would show'
	done
}

@test "a mount that is given works at once, and one that is taken away is refused, with the same keeper" {
	serve
	holding
	people ada operator
	add Tools "$(mount_of "$T/tools")"
	exits 125 as ada run -q --no-workspace --env Tools -- true 2>err
	has "$(cat err)" '--allow-mount'
	restart --allow-mount "$T/tools"
	same "$(as ada run -q --no-workspace --env Tools -- cat /mnt/tools/bin/tool)" tool
	has "$(berth doctor 2>&1)" "allow-mount .*$T/tools.*; the keeper follows the server's settings"
	# While it was open a lease was taken: it lives on, and takes no new command.
	read -r lease _ < <(as ada lease acquire -q Tools)
	restart --allow-mount "$T/other"
	exits 125 as ada run -q --no-workspace --env Tools -- true 2>err
	has "$(cat err)" '--allow-mount'
	fails as ada lease acquire -q Tools 2>err
	has "$(cat err)" '--allow-mount'
	fails as ada exec "$lease" -- cat /mnt/tools/bin/tool 2>err
	has "$(cat err)" '--allow-mount'
	as ada lease release "$lease"
	# And back again.
	restart --allow-mount "$T"
	same "$(as ada run -q --no-workspace --env Tools -- cat /mnt/tools/bin/tool)" tool
}

@test "a root that is given works at once, and one that is taken away is refused, with the same keeper" {
	local lib
	mkdir -p "$T/roots/small/bin"
	cp "$(command -v dash)" "$T/roots/small/bin/sh"
	for lib in $(ldd "$(command -v dash)" | grep -o '/[^ ]*'); do
		mkdir -p "$T/roots/small${lib%/*}"
		cp -L "$lib" "$T/roots/small$lib"
	done
	chmod -R a+rX "$T/roots"
	serve
	holding
	people ada operator
	add Small "{\"root\": \"$T/roots/small\"}"
	exits 125 as ada run -q --no-workspace --env Small -- sh -c 'echo in' 2>err
	has "$(cat err)" '--allow-root'
	restart --allow-mount "$T/roots"
	exits 125 as ada run -q --no-workspace --env Small -- sh -c 'echo in' 2>err
	has "$(cat err)" '--allow-root'
	restart --allow-root "$T/roots"
	same "$(as ada run -q --no-workspace --env Small -- sh -c 'echo in')" in
	restart
	exits 125 as ada run -q --no-workspace --env Small -- sh -c 'echo in' 2>err
	has "$(cat err)" '--allow-root'
}

@test "what is one company's is not another's" {
	berth company add acme >/dev/null
	berth company add other >/dev/null
	end "$(holder)"
	serve --allow-mount "acme=$T/tools" --allow-workspace "acme=$T/tools"
	people ada operator acme
	people bob operator other
	export BERTH_COMPANY
	for BERTH_COMPANY in acme other; do add Tools "$(mount_of "$T/tools")"; done
	same "$(BERTH_COMPANY=acme as ada run -q --no-workspace --env Tools -- cat /mnt/tools/bin/tool)" tool
	BERTH_COMPANY=other exits 125 as bob run -q --no-workspace --env Tools -- true 2>err
	has "$(cat err)" '--allow-mount'
	cd "$T/tools"
	same "$(BERTH_COMPANY=acme as ada run -q -- cat bin/tool)" tool
	BERTH_COMPANY=other exits 125 as bob run -q -- cat bin/tool 2>"$T/err"
	has "$(cat "$T/err")" '--allow-workspace'
}

@test "a member's token writes nothing through in_place" {
	serve --allow-workspace "$T/tools" --allow-mount "$T/tools"
	people eve member
	berth run -q --no-workspace -- true
	cd "$T/tools"
	exits 125 as eve run -q --mode in_place -- sh -c 'echo evil >>bin/tool' 2>"$T/err"
	has "$(cat "$T/err")" '--allow-in-place-for-tokens'
	same "$(cat bin/tool)" tool
	# What may be read in a mount cannot be written there either.
	add Tools "$(mount_of "$T/tools")"
	same "$(as eve run -q --no-workspace --env Tools -- sh -c 'echo evil >>/mnt/tools/bin/tool || echo no' 2>/dev/null)" no
	same "$(cat bin/tool)" tool
	# Nor through a run that the operator started in place.
	same "$(berth run -q --mode in_place -- cat bin/tool)" tool
	cd "$T/work"
	restart --allow-workspace "$T/tools" --allow-in-place-for-tokens
	cd "$T/tools"
	as eve run -q --mode in_place -- sh -c 'echo more >>bin/tool'
	same "$(cat bin/tool)" $'tool\nmore'
}

@test "host network, writable mounts and user root are closed to tokens, also in what was saved before" {
	[ "$(id -u)" = 0 ] || skip "an ordinary user's places have none of them"
	serve --allow-host-network-for-tokens --allow-writable-mounts-for-tokens --allow-root-user-for-tokens \
		--allow-mount-rw "$T/tools"
	holding
	people amy admin
	people ada operator
	as amy env add --no-probe Net --driver sandbox --config "$(native_config '{"network":"host"}')"
	as amy env add --no-probe Rw --driver sandbox --config "$(native_config "$(mount_of "$T/tools" false)")"
	as amy env add --no-probe Root --driver sandbox --config "$(native_config '{"user":"root"}')"
	for env in Net Rw Root; do as ada run -q --no-workspace --env "$env" -- true; done
	read -r lease _ < <(berth lease acquire -q Net)
	as ada exec "$lease" -- true
	restart --allow-mount-rw "$T/tools"
	while read -r env flag; do
		exits 125 as ada run -q --no-workspace --env "$env" -- true 2>err
		has "$(cat err)" "$flag"
		exits 125 as amy run -q --no-workspace --env "$env" -- true 2>err
		has "$(cat err)" "$flag"
	done <<-'END'
		Net --allow-host-network-for-tokens
		Rw --allow-writable-mounts-for-tokens
		Root --allow-root-user-for-tokens
	END
	exits 1 as amy env add --no-probe Other --driver sandbox --config "$(native_config '{"network":"host"}')" 2>err
	has "$(cat err)" '--allow-host-network-for-tokens'
	# A lease of the operator's is no way around it.
	fails as ada exec "$lease" -- true 2>err
	has "$(cat err)" '--allow-host-network-for-tokens'
	berth exec "$lease" -- true
}

@test "the former setting is refused with the four there are now, wherever it stands" {
	for how in flag variable file; do
		rm -f berth.yaml
		case $how in
		flag) exits 2 berth serve --allow-path /srv 2>err ;;
		variable) BERTH_ALLOW_PATH=/srv exits 2 berth serve 2>err ;;
		file)
			echo 'allow-path: /srv' >berth.yaml
			exits 2 berth serve --config berth.yaml 2>err
			;;
		esac
		for flag in root mount mount-rw workspace; do has "$(cat err)" "--allow-$flag[ ,]"; done
	done
	exits 2 berth serve --allow-mount relative 2>err
	has "$(cat err)" 'allow-mount.*COMPANY='
}

@test "config show tells where the running server has something else" {
	mkdir -p "$BERTH_DATA"
	chmod 700 "$BERTH_DATA"
	echo 'allow-mount: [/srv/tools]' >"$BERTH_DATA/berth.yaml"
	serve
	same "$(berth config show 2>&1 >/dev/null)" ''
	echo 'allow-mount: [/srv/tools, "acme=/srv/acme"]' >"$BERTH_DATA/berth.yaml"
	berth config show >out 2>err
	has "$(cat out)" 'allow-mount .*acme=/srv/acme'
	has "$(cat err)" 'the running server has allow-mount \["/srv/tools"\]'
	end "$server"
	serve --allow-workspace "$T/work"
	berth config show >out 2>err
	has "$(cat err)" "the running server has allow-workspace .*$T/work"
	fails grep -q 'has allow-mount' err
}
